"""Curves as text: where points land, that an unknown one interrupts the line, and that the size is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_console.tui.plot import Curve, Scale, plot, scale


def text(*curves: Curve, width: int = 24, height: int = 6, **options: object) -> list[str]:
    return [line.plain for line in plot(curves, width, height, **options)]  # type: ignore[arg-type]


RISE = Curve([(0, 0.0), (10, 1.0)], "a")


def test_a_rise_in_ascii() -> None:
    assert text(RISE, width=12, height=6, ascii=True) == [
        "1|        aa",
        " |     aaa  ",
        " |  aaa     ",
        "0|aa        ",
        " +----------",
        "  0       10",
    ]


def test_a_rise_in_braille_ends_in_its_sign() -> None:
    lines = text(RISE, width=12, height=6)
    assert lines[0].endswith("a") and lines[0].startswith("1│")
    assert lines[3].startswith("0│⡠")


def test_an_unknown_value_interrupts_the_line() -> None:
    gap = Curve([(0, 1.0), (1, 1.0), (2, None), (3, 1.0), (4, 1.0)], "x")
    line = text(gap, width=24, height=4, ascii=True)[0].partition("|")[2]
    assert "x  " in line.strip() and " " in line.strip()


def test_epochs_are_marked_and_numbered_where_there_is_room() -> None:
    curve = Curve([(0, 1.0), (100, 2.0)], "a")
    axis, words = text(curve, width=46, height=5, marks=(0, 50, 54, 500))[-2:]
    assert axis.count("┴") == 3 and "e2" in words and "e3" not in words and words.rstrip().endswith("100")


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [((40.0, 1.0), True), ((10.0, 1.0), False), ((10.0, 0.0), False), ((10.0, -1.0), False)],
)
def test_the_scale_is_logarithmic_where_values_are_far_apart(values: tuple[float, float], logarithmic: bool) -> None:
    found = scale([Curve([(0, values[0]), (1, values[1])], "a")])
    assert found is not None and found.logarithmic is logarithmic
    assert found.share(values[0]) == 1.0 and found.share(values[1]) == 0.0
    assert found.value(0.0) == pytest.approx(values[1]) and found.value(1.0) == pytest.approx(values[0])


def test_one_value_lies_in_the_middle() -> None:
    lines = text(Curve([(5, 3.0)], "a"), height=7, ascii=True)
    assert "a" in lines[2] and not any("a" in line for line in (*lines[:2], *lines[3:5]))


def test_nothing_to_draw_or_no_room_draws_nothing() -> None:
    assert text() == [] and text(Curve([], "a")) == [] and text(Curve([(1, None)], "a")) == []
    assert text(RISE, width=6) == [] and text(RISE, height=3) == []


def test_given_scales_hold_and_what_lies_outside_stays_at_the_edge() -> None:
    curve = Curve([(0, -5.0), (10, 5.0)], "a")
    lines = text(curve, ascii=True, upward=Scale(0.0, 1.0), across=Scale(0.0, 20.0))
    assert lines[0].startswith("1|") and lines[3].startswith("0|")
    assert max(len(line.rstrip()) for line in lines[:4]) < 24 - 8


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 10**7), st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32)),
            max_size=30,
        ).map(lambda points: sorted(points, key=lambda point: point[0])),
        max_size=4,
    ),
    st.integers(0, 70),
    st.integers(0, 20),
    st.booleans(),
)
def test_any_points_keep_the_size(
    curves: list[list[tuple[int, float | None]]], width: int, height: int, ascii: bool
) -> None:
    lines = text(*(Curve(points, "a") for points in curves), width=width, height=height, ascii=ascii, marks=(0, 5))
    assert len(lines) in (0, height)
    assert all(len(line) == width for line in lines)
    assert not ascii or all(line.isascii() for line in lines)
