from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from eagle_console.text import clean, clean_lines, fit, shorten, shorten_path


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain [/data/x] text", "plain [/data/x] text"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jgone", "gone"),
        ("one\ntwo\r\nthree\tfour", "one two  three four"),
        ("bell\x07 null\x00 del\x7f", "bell null del"),
        ("\u202e/data/evil\u202c\u2066\u200f", "/data/evil"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("模型", "模型"),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_clean_is_bounded() -> None:
    assert len(clean("x" * 10_000)) == 2_000
    assert clean("x" * 10_000).endswith("…")
    assert len(clean("x" * 10_000_000, 10)) == 10


def test_clean_lines_splits_at_every_line_end() -> None:
    assert clean_lines("a\nb\r\nc\x1b[0m\u2028d") == ["a", "b", "c", "d"]


@given(st.text(), st.integers(0, 60))
def test_any_text_fits_exactly(raw: str, width: int) -> None:
    shown = fit(clean(raw), width)
    assert cell_len(shown) == width
    assert not any(unicodedata.category(sign) in ("Cc", "Cf", "Cs") for sign in shown)
    shown.encode("utf-8")


@given(st.text(), st.integers(2, 60))
def test_shortened_texts_are_never_wider(raw: str, width: int) -> None:
    assert cell_len(shorten(clean(raw), width)) <= width
    assert cell_len(shorten_path(clean(raw), width)) <= width


def test_a_path_keeps_its_end() -> None:
    assert shorten_path("/data/eagle3-train/output_1k", 12).endswith("output_1k")
    assert shorten_path("/data", 12) == "/data"
