"""What of a run stays: the table, the threads that lost checkpoints, and a property over random runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.disk.retention import complete, mixed, newest_first, protected, recommended, survives
from remote.protocol.artifacts import (
    LEVEL_TRIM,
    LEVEL_WHOLE,
    REVIEW,
    Artifact,
    Checkpoint,
    Reason,
    Size,
    Verdict,
)

HOUR = 3600.0


def item(
    number: int | None,
    state: str = "full",
    best: bool = False,
    possibly: str = "",
    at: float | None = None,
    name: str = "",
    holes: int = 0,
    guards: tuple[Reason, ...] = (),
) -> Checkpoint:
    shown = name or str(number)
    whole = state in ("full", "interrupted")
    modified = at if at is not None else (number or 0) * HOUR
    artifact = Artifact(f"/run/{shown}", "checkpoint", Size(9, 9, 9, 7), Verdict(REVIEW, guards), "/run", modified)
    return Checkpoint(
        shown, artifact, state, number, None if number is None else number * 100,
        resumable=whole, servable=whole or state == "trimmed", best=best, possibly_best=possibly, holes=holes,
        problem="model.safetensors is cut" if state in ("torn", "writing") else "",
    )  # fmt: skip


def goes(run: list[Checkpoint], level: str = LEVEL_WHOLE) -> dict[str, str]:
    return {going.checkpoint.name: going.level for going in recommended(run, level).goes}


def rules(run: list[Checkpoint]) -> dict[str, list[str]]:
    return {
        stay.checkpoint.name: [reason.rule for reason in stay.reasons] for stay in recommended(run, LEVEL_WHOLE).stays
    }


def test_best_newest_two_and_last_resumable_stay() -> None:
    run = [item(number, best=number == 3) for number in range(10)]
    assert goes(run) == dict.fromkeys("012" + "4567", LEVEL_WHOLE)
    assert rules(run) == {"9": ["newest_two", "last_resumable"], "8": ["newest_two"], "3": ["best"]}
    assert goes(run, LEVEL_TRIM) == dict.fromkeys("0124567", LEVEL_TRIM)


def test_the_last_resumable_stays_where_the_newest_are_trimmed() -> None:
    run = [item(0), item(1), item(2, "trimmed"), item(3, "trimmed", best=True), item(4, "trimmed")]
    assert goes(run) == {"0": LEVEL_WHOLE, "2": LEVEL_WHOLE}
    assert rules(run)["1"] == ["last_resumable"]
    assert goes(run, LEVEL_TRIM) == {"0": LEVEL_TRIM}, "a trimmed one has nothing more to trim"


def test_a_torn_one_goes_and_counts_for_nothing() -> None:
    run = [item(0, best=True), item(1), item(2), item(3, "torn")]
    assert goes(run) == {"3": LEVEL_WHOLE}
    assert goes(run, LEVEL_TRIM) == {"3": LEVEL_WHOLE}
    assert not survives(run, {"/run/3": LEVEL_WHOLE})


def test_guards_of_the_verdict_hold() -> None:
    run = [item(number, best=number == 5) for number in range(6)]
    run[1] = item(1, guards=(Reason("referenced", "kept: draft_1k uses it", guard=True),))
    assert "1" not in goes(run) and rules(run)["1"] == ["referenced"]


def test_what_is_being_written_stays_and_does_not_replace_the_newest() -> None:
    run = [item(0), item(1, best=True), item(2), item(3), item(4, "writing")]
    assert set(rules(run)) == {"1", "2", "3", "4"} and goes(run) == {"0": LEVEL_WHOLE}
    assert "being written" in survives(run, {"/run/4": LEVEL_WHOLE})[0]


def test_one_with_holes_does_not_replace_a_sound_one() -> None:
    run = [item(0), item(1), item(2, best=True), item(3, holes=99), item(4, holes=99)]
    assert set(rules(run)) == {"1", "2", "3", "4"}
    assert survives(run, {"/run/2": LEVEL_TRIM}), "the last sound one that can resume"


@pytest.mark.parametrize("level", [LEVEL_WHOLE, LEVEL_TRIM])
def test_the_newest_is_lost_at_either_level(level: str) -> None:
    run = [item(0, best=True), item(1), item(2)]
    problems = survives(run, {"/run/2": level})
    assert any("newest" in problem for problem in problems) and any("resume" in problem for problem in problems)
    assert not survives(run, {"/run/1": level})
    assert bool(survives(run, {"/run/0": level})) is (level == LEVEL_WHOLE), "trimmed, the best is still there"


class TestThreads:
    """Rows of the thread table: what other tools deleted."""

    def test_transformers_26961_times_alone_decide_nothing(self) -> None:
        """checkpoint-1000 was deleted right after saving, because its time was the oldest."""
        run = [item(800, at=5000.0), item(900, at=6000.0, best=True), item(1000, at=1.0)]
        assert not goes(run)
        assert "newest" in survives(run, {"/run/1000": LEVEL_WHOLE})[0]

    def test_transformers_37260_numbers_alone_decide_nothing(self) -> None:
        """A new run's checkpoint-100 was deleted as the oldest by number."""
        run = [item(400, at=1000.0), item(500, at=2000.0, best=True), item(600, at=3000.0), item(100, at=9000.0)]
        assert mixed(run) and not goes(run) and recommended(run, LEVEL_WHOLE).problem
        assert survives(run, {"/run/100": LEVEL_WHOLE})

    @pytest.mark.parametrize("best", range(6))
    def test_transformers_15089_neither_best_nor_last_goes(self, best: int) -> None:
        run = [item(number, best=number == best) for number in range(6)]
        assert not {str(best), "5", "4"} & goes(run).keys()

    def test_flowgym_51_the_newest_is_not_evicted_by_better_ones(self) -> None:
        run = [item(number, best=number == 0) for number in range(8)]
        assert "7" not in goes(run)

    def test_art_117_no_metrics_no_bulk_deletion(self) -> None:
        run = [item(number) for number in range(6)]
        assert not goes(run) and "any of them may be the best" in recommended(run, LEVEL_WHOLE).problem
        assert goes(run, LEVEL_TRIM) == dict.fromkeys("0123", LEVEL_TRIM), "trimming loses no weights"

    def test_lightning_1150_a_torn_newest_leaves_a_complete_one(self) -> None:
        """The old one was deleted before the new one was safe."""
        run = [item(0, best=True), item(1), item(2, "torn"), item(3, "torn")]
        assert set(goes(run)) == {"2", "3"}

    def test_kempnerforge_102_a_pointer_to_what_is_torn_protects_nothing_else(self) -> None:
        run = [item(0), item(1), item(2, "torn", best=True)]
        stays = rules(run)
        assert {"0", "1"} <= set(stays), "the newest two that are whole"

    def test_speculators_the_newest_may_be_the_best_while_validation_runs(self) -> None:
        run = [item(0, best=True), item(1), item(2), item(3, possibly="it is the newest, and not validated")]
        assert "possibly_best" in rules(run)["3"]
        assert any("may be the best" in problem for problem in survives(run, {"/run/3": LEVEL_WHOLE}))

    def test_fvcore_25_an_interrupted_one_without_a_number_is_found_by_its_time(self) -> None:
        run = [
            item(0),
            item(1, best=True),
            item(2),
            item(3),
            item(None, "interrupted", at=9 * HOUR, name="interrupted"),
        ]
        stays = rules(run)
        assert {"interrupted", "3", "2", "1"} == set(stays)
        assert "last_resumable" in stays["interrupted"] and "last_resumable" in stays["3"]


STATES = ("full", "full", "full", "trimmed", "torn", "writing", "interrupted")


@st.composite
def runs(draw: st.DrawFn) -> list[Checkpoint]:
    """A run of any state: epochs, torn, trimmed, interrupted, two runs mixed, with or without a best one."""
    numbers = draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    shuffled = draw(st.booleans())
    found = []
    for number in sorted(numbers):
        at = draw(st.floats(0, 1e6)) if shuffled else number * HOUR
        found.append(item(number, draw(st.sampled_from(STATES)), at=at, holes=draw(st.sampled_from((0, 0, 0, 5)))))
    if draw(st.booleans()):
        found.append(
            item(None, draw(st.sampled_from(("interrupted", "torn"))), at=draw(st.floats(0, 1e6)), name="interrupted")
        )
    whole = [index for index, one in enumerate(found) if complete(one)]
    if whole and draw(st.booleans()):
        index = draw(st.sampled_from(whole))
        found[index] = replace(found[index], best=True)
    return found


def lost(run: list[Checkpoint], removed: dict[str, str]) -> list[str]:
    """An independent account of guarantee G6: which of the three kinds is not there any more."""
    left = [one for one in run if removed.get(one.artifact.path) != LEVEL_WHOLE]
    can_resume = {one.name for one in left if one.resumable and one.artifact.path not in removed}
    problems = []
    if any(one.best for one in run) and not any(one.best for one in left):
        problems.append("best")
    counted = [one for one in run if complete(one)]
    numbered = [one for one in counted if one.epoch is not None]
    if numbered and max(numbered, key=lambda one: one.epoch or 0) not in left:
        problems.append("newest by number")
    if counted and max(one.artifact.modified or 0 for one in counted) > max(
        (one.artifact.modified or 0 for one in left if complete(one)), default=-1.0
    ):
        problems.append("newest by time")
    resumable = [one for one in run if one.resumable and one.state != "writing"]
    with_number = [one for one in resumable if one.epoch is not None]
    if with_number and max(with_number, key=lambda one: one.epoch or 0).name not in can_resume:
        problems.append("last resumable")
    if resumable and not can_resume:
        problems.append("every resumable")
    return problems


@settings(max_examples=400, deadline=None)
@given(runs(), st.data())
def test_t5_no_selection_that_passes_loses_what_a_run_needs(run: list[Checkpoint], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from([one.artifact.path for one in run]), unique=True)) if run else []
    removed = {path: data.draw(st.sampled_from((LEVEL_WHOLE, LEVEL_TRIM))) for path in chosen}
    if not survives(run, removed):
        assert lost(run, removed) == []
    # One by one it is the same: no item passes alone that would be refused among others.
    passing = {path: level for path, level in removed.items() if not survives(run, {path: level})}
    assert lost(run, passing) == []


@settings(max_examples=400, deadline=None)
@given(runs(), st.sampled_from((LEVEL_WHOLE, LEVEL_TRIM)))
def test_t5_the_recommended_policy_loses_nothing_and_names_everything(run: list[Checkpoint], level: str) -> None:
    advice = recommended(run, level)
    removed = {going.checkpoint.artifact.path: going.level for going in advice.goes}
    assert not survives(run, removed) and lost(run, removed) == []
    names = [one.checkpoint.name for one in (*advice.goes, *advice.stays)]
    assert sorted(names) == sorted(one.name for one in run)
    assert all(one.reasons for one in (*advice.goes, *advice.stays))
    assert not removed.keys() & protected(run).keys()
    assert {one.name for one in newest_first(run)} == set(names)
