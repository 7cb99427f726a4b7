"""A corpus of made logs, over releases, load formats, wrappers and failures: every field must be right."""

from __future__ import annotations

import re

import pytest
from fixtures.vllm_corpus import Log, corpus
from fixtures.vllm_log_cases import BREAKDOWNS, VERSIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.watch.explain import START_MARKS, Explainer, Explanation
from remote.watch.failure_classes import CLASSES
from remote.watch.vllm_wording import PHASES

LOGS = list(corpus())


def explained(content: bytes, block: int = 4096) -> Explanation:
    explainer = Explainer()
    for begin in range(0, len(content), block):
        explainer.feed(content[begin : begin + block])
    explainer.end()
    return explainer.explain()


def test_the_corpus_is_large_and_covers_what_it_says() -> None:
    assert len(LOGS) >= 150
    names = " ".join(log.name for log in LOGS)
    assert all(f" {version}," in names for version in VERSIONS)
    covered = {broken.klass for broken in BREAKDOWNS}
    assert {klass.name for klass in CLASSES} - covered == {"peer_rank_died", "process_died", "shape_mismatch"}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_every_field_of_a_log(log: Log) -> None:
    truth, found = log.truth, explained(log.content)
    tolerance = 2.5 if log.resolution is None else 1.1 * log.resolution  # uvicorn's lines have no stamps of their own
    assert found.version == truth.version
    assert [phase.name for phase in found.progress.phases] == list(truth.phases)
    for phase in found.progress.phases:
        assert phase.start == pytest.approx(truth.phases[phase.name], abs=tolerance), phase
    assert found.seconds.keys() == truth.phases.keys()
    assert sum(found.seconds.values()) == pytest.approx(truth.end, abs=tolerance)
    assert found.progress.ready == (truth.ready_at is not None)
    assert found.state == truth.state
    if truth.ready_at is not None:
        assert found.total_seconds == pytest.approx(truth.ready_at, abs=tolerance)
    if truth.klass:
        assert found.error is not None
        assert found.error.klass == truth.klass
        assert found.error.line == re.sub(r"^\[rank1\]:", "", truth.line)
        assert found.error.cause.endswith((".", truth.line))
    else:
        assert found.error is None
    if truth.figures:
        assert found.progress.figures == pytest.approx(truth.figures)
    if truth.count:
        done, total, unit = truth.count
        assert (found.progress.done, found.progress.total, found.progress.unit) == (done, total, unit)
        assert found.progress.percent == pytest.approx(100 * done / total)


@pytest.mark.parametrize("log", LOGS[::9], ids=lambda log: log.name)
def test_where_the_blocks_are_cut_does_not_matter(log: Log) -> None:
    assert explained(log.content, 7) == explained(log.content, 1 << 20)


PIECES = [
    line + b"\n"
    for log in LOGS
    for line in log.content.split(b"\n")
    if not any(mark in line for mark in START_MARKS)  # so that all are of one start
]


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(PIECES),
            st.builds(lambda piece, cut: piece[cut:], st.sampled_from(PIECES), st.integers(0, 120)),
            st.builds(lambda piece, cut: piece[:cut], st.sampled_from(PIECES), st.integers(0, 120)),
            st.sampled_from([b"\r", b"\n", b"\x1b[0;36m", b"\x00", b"\xff\xfe"]),
            st.binary(max_size=60),
        ),
        max_size=60,
    ),
    st.integers(1, 200),
)
def test_cuts_mixtures_and_garbage_keep_the_promises(pieces: list[bytes], block: int) -> None:
    """Never an exception, never a step back, never a phase of which the log holds no word."""
    content = b"".join(pieces)
    explainer = Explainer()
    known: list[tuple[str, float]] = []
    for begin in range(0, len(content), block):
        explainer.feed(content[begin : begin + block])
        found = explainer.explain()
        phases = [(phase.name, phase.start) for phase in found.progress.phases]
        assert phases[: len(known)] == known or found.progress.ready
        known = phases if not found.progress.ready else []
        names = [name for name, _ in phases]
        assert [PHASES.index(name) for name in names] == sorted({PHASES.index(name) for name in names})
        assert [start for _, start in phases] == sorted(start for _, start in phases)
        assert all(seconds >= 0 for seconds in found.seconds.values())
        if found.progress.done is not None:
            assert 0 <= found.progress.done <= (found.progress.total or 0)
        assert found.error is None or (found.error.klass and found.error.cause)
    explainer.end()
    explainer.explain(1, None)


@given(st.lists(st.text(alphabet=st.characters(blacklist_characters="%"), max_size=100), max_size=30))
def test_text_of_anything_else_has_no_phase(lines: list[str]) -> None:
    assert explained("\n".join(lines).encode("utf-8", "replace")).progress.phases == ()


def test_a_log_of_two_starts_tells_the_last() -> None:
    first = next(log for log in LOGS if log.truth.klass == "kv_cache_zero")
    second = next(log for log in LOGS if log.truth.state == "ready" and log.truth.figures and log.resolution is None)
    found = explained(first.content + second.content)
    assert (found.state, found.error, found.version) == ("ready", None, second.truth.version)
    assert [phase.name for phase in found.progress.phases] == list(second.truth.phases)
    assert found.total_seconds == pytest.approx(second.truth.ready_at, abs=2.5)
    assert explained(second.content + first.content).state == "failed"
