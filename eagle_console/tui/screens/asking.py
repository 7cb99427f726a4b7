"""A screen whose content the host is asked for: when it opens, every few seconds, and after every change."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual import work

from eagle_console import format as fmt
from eagle_console.client import HostClient, Session
from eagle_console.state import Freshness, LinkState, Timed, freshness
from eagle_console.tui.link import HOST_ERRORS, explain
from eagle_console.tui.screens.base import ConsoleScreen
from eagle_console.tui.view import View
from eagle_console.tui.widgets.filter_input import FilterInput
from eagle_console.tui.widgets.status_bar import StatusBar
from eagle_console.tui.widgets.table import Table

T = TypeVar("T")

REFRESH_SECONDS = 10.0
STALE_AFTER = 25.0
"""Seconds after which the answer is old: keys that change something then wait for a newer one."""


class AskingScreen(ConsoleScreen, Generic[T]):
    """Subclasses say what they ask (``ask``) and paint ``answer``, which stays until a newer one is there."""

    REFRESH: ClassVar[float] = REFRESH_SECONDS
    STALE: ClassVar[float] = STALE_AFTER

    def __init__(self) -> None:
        super().__init__()
        self.answer: Timed[T] | None = None
        self.trouble = ""
        self._asked: Session | None = None

    async def ask(self, client: HostClient) -> T:
        """The screen's content, from the host.

        :raises LinkError, RequestError, ProtocolError: as ``HostClient`` does; they are shown.
        """
        raise NotImplementedError

    def on_mount(self) -> None:
        self.set_interval(self.REFRESH, self._ask_if_shown)
        super().on_mount()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.look_again()

    def paint(self, view: View) -> None:
        super().paint(view)
        client = self.console_app.client
        if client is not None and client.session is not self._asked:
            self.look_again()
        stale = self._freshness(view)[0] in (Freshness.STALE, Freshness.DOWN)
        for table in self.query(Table):
            table.set_class(stale, "-stale")

    def look_again(self) -> None:
        """Asks the host now."""
        client = self.console_app.client
        if client is not None:
            self._asked = client.session
            self._ask(client)

    def mark(self, view: View) -> str:
        """How old the answer is, in a word; why there is none."""
        kind, age = self._freshness(view)
        if self.trouble:
            return self.trouble
        if kind is Freshness.NONE:
            return "asking" if self.console_app.client is not None else "no connection"
        return f"{kind.value} {fmt.age(age)}"

    def obstacle(self) -> str:
        """Why nothing can be changed from this picture; empty where it can."""
        view = self.console_app.view()
        kind, age = self._freshness(view)
        if view.state.link.state is not LinkState.LIVE or self.console_app.client is None:
            return "There is no connection to the host: R tries again now."
        if view.state.readonly:
            return "This host is read-only: nothing can be changed from here."
        if kind is Freshness.NONE:
            return "There is no answer from the host yet."
        if kind is not Freshness.LIVE:
            return f"This picture is {fmt.age(age)} old: r looks again."
        return ""

    def may_change(self) -> bool:
        """Whether something can be changed from this picture; says why where it cannot."""
        obstacle = self.obstacle()
        if obstacle:
            self.console_app.say(obstacle, "warning")
        return not obstacle

    def action_look(self) -> None:
        self.look_again()

    def action_filter(self) -> None:
        self.query_one(FilterInput).open()

    def clear_filter(self) -> bool:
        """Removes the filter; False where there was none."""
        return any(field.clear_filter() for field in self.query(FilterInput))

    async def action_back(self) -> None:
        if not self.clear_filter():
            await super().action_back()

    def on_filter_input_applied(self) -> None:
        self.paint(self.console_app.view())

    def on_filter_input_left(self) -> None:
        self.query(Table).first().focus()

    def _freshness(self, view: View) -> tuple[Freshness, float | None]:
        return freshness(view.state, self.answer, view.now, self.STALE)

    def _ask_if_shown(self) -> None:
        if self.is_current:
            self.look_again()

    @work(group="asking", exclusive=True)
    async def _ask(self, client: HostClient) -> None:
        try:
            answer = await self.ask(client)
        except HOST_ERRORS as error:
            self.trouble = explain(error)
        else:
            self.trouble = ""
            self.answer = Timed(answer, self.console_app.view().now)
        if self.query(StatusBar):  # else the screen is being taken away, with its host
            self.paint(self.console_app.view())
