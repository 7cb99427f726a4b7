"""Why there is no connection, and what helps; hidden while there is one."""

from __future__ import annotations

from textual.content import Content

from eagle_console.state import LinkState
from eagle_console.text import clean
from eagle_console.tui.view import View
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.prose import prose

_MAX_LINES = 6


class LinkBanner(Lines):
    """The link's own words: its problem, its remedy and the key that tries again."""

    def show(self, view: View) -> None:
        """Paints the banner, or hides it where the link has nothing to say."""
        lines = banner_lines(view, max(1, self.app.size.width - 4))
        self.display = bool(lines)
        self.set_class(view.state.link.state is LinkState.FAILED, "-failed")
        self.set_lines(lines)


def banner_lines(view: View, width: int) -> list[Content]:
    """The lines for a width; none while the link is live or making its first try."""
    link = view.state.link
    if link.state in (LinkState.LIVE, LinkState.IDLE) or not (link.detail or link.state is LinkState.UNKNOWN_HOST_KEY):
        return []
    detail = clean(link.detail) or "The host's key is not known. Nothing was sent; R shows the question again."
    remedy = clean(link.remedy)
    tries = "R tries again." if link.state is LinkState.FAILED else ""
    lines = prose(detail, width, "bold")[: _MAX_LINES - 3]
    return [*lines, *prose(remedy, width)[:2], *prose(tries, width, "$foreground-muted")]
