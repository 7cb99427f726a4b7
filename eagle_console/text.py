"""Text from a host is data: one place makes it safe to show, and cuts it to a width in terminal cells.

A log line or a file name can hold escape sequences that repaint the terminal, line ends that forge a second line,
bidirectional controls that show a path backwards and lone surrogates that no terminal encoding can write. Every string
that came over the wire goes through ``clean`` (or ``clean_lines``) before it reaches the screen or a table on stdout;
``--json`` needs none of it, since JSON escapes them.
"""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len, set_cell_size

ELLIPSIS = "…"

MAX_CHARACTERS = 2_000
"""Longest text that a single line of a screen takes from a host; the rest is replaced by an ellipsis."""

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, clipboard, hyperlinks
    r"|\x1b[ -/]*[0-~]?"  # the two- and three-character ones
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_SPACES = {ord(sign): " " for sign in "\t\n\v\f\r\x85\u2028\u2029"}
_UNSHOWN = ("Cc", "Cf")  # control and format characters: the latter hold every bidirectional control
_LINE_ENDS = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")


def clean(text: object, limit: int = MAX_CHARACTERS) -> str:
    """``text`` as one printable line: no escape sequences, control, format or bidirectional characters.

    Line ends and tabs become spaces, lone surrogates the replacement sign. At most ``limit`` characters.
    """
    raw = str(text)
    cut = raw[: 4 * limit]  # escape sequences take room that is given back
    if not (cut.isascii() and cut.isprintable()):
        cut = _ESCAPE_SEQUENCE.sub("", cut).translate(_SPACES)
        cut = "".join(_shown(sign) for sign in cut)
    return cut if len(cut) <= limit and len(raw) <= 4 * limit else cut[: limit - 1] + ELLIPSIS


def clean_lines(text: object, limit: int = MAX_CHARACTERS) -> list[str]:
    """``text`` as printable lines, each cleaned as by ``clean``."""
    return [clean(line, limit) for line in _LINE_ENDS.split(str(text))]


def fit(text: str, width: int) -> str:
    """Clean ``text`` cut or padded to exactly ``width`` cells; a cut one ends in an ellipsis."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1).rstrip() + ELLIPSIS, width)


def shorten(text: str, width: int) -> str:
    """Clean ``text`` of at most ``width`` cells, not padded; a cut one ends in an ellipsis."""
    return text if cell_len(text) <= width else fit(text, width).rstrip()


def shorten_path(path: str, width: int) -> str:
    """A clean path of at most ``width`` cells: the end tells paths apart, so it is the beginning that goes."""
    if cell_len(path) <= width or width <= 1:
        return shorten(path, width)
    end = path
    while cell_len(end) > width - 1:
        end = end[max(1, (cell_len(end) - width + 1) // 2) :]
    return ELLIPSIS + end


def _shown(sign: str) -> str:
    category = unicodedata.category(sign)
    if category in _UNSHOWN:
        return ""
    return "\ufffd" if category == "Cs" else sign
