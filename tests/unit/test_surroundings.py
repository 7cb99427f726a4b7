"""Sleep and changes of network, with a clock and addresses that the test moves."""

from __future__ import annotations

import pytest

from eagle_console.link.surroundings import MOVED, SLEPT, Surroundings, awake_clock, local_addresses


class Outside:
    def __init__(self) -> None:
        self.now, self.where = 100.0, ("10.0.0.1",)

    def surroundings(self) -> Surroundings:
        return Surroundings(lambda: self.now, lambda: self.where)


def test_a_tick_that_comes_in_time_is_no_sleep() -> None:
    outside = Outside()
    watched = outside.surroundings()
    for step in (1.0, 1.3, 5.9):
        outside.now += step
        assert watched.changed() == ""


def test_sleep_is_noticed_once() -> None:
    outside = Outside()
    watched = outside.surroundings()
    outside.now += 3600
    assert watched.changed() == SLEPT
    assert watched.changed() == ""


def test_a_time_in_which_nobody_asked_is_no_sleep() -> None:
    outside = Outside()
    watched = outside.surroundings()
    outside.now += 3600
    watched.rest()
    outside.now += 1
    assert watched.changed() == ""


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([("10.0.0.2",)], [MOVED]),
        ([(), ("10.0.0.1",)], ["", MOVED]),  # gone and back: what was open may have been closed meanwhile
        ([()], [""]),
        ([("10.0.0.1",)], [""]),
    ],
)
def test_another_address_is_noticed_when_there_is_one(places: list[tuple[str, ...]], found: list[str]) -> None:
    outside = Outside()
    watched = outside.surroundings()
    seen = []
    for where in places:
        outside.where = where
        seen.append(watched.changed())
    assert seen == found


def test_the_real_ones() -> None:
    assert awake_clock() <= awake_clock()
    assert local_addresses(("127.0.0.1",)) == ("127.0.0.1",)
    assert local_addresses(("not an address",)) == ()
