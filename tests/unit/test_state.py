"""The reducers: events in, immutable snapshots out."""

from __future__ import annotations

from typing import Any

import pytest

from eagle_console.state import (
    HISTORY_SAMPLES,
    STALE_SECONDS,
    Freshness,
    HostState,
    LinkState,
    LinkStatus,
    Timed,
    freshness,
    with_event,
    with_hello,
    with_link,
)
from remote.protocol.codec import to_wire
from remote.protocol.errors import ProtocolError
from remote.protocol.frames import AgentHello, Event, Fault
from remote.protocol.gpu import DRIVER_OK, GPU_OK, Gpu, GpuSnapshot
from remote.protocol.host import HostSample
from remote.protocol.jobs import DONE, FAILED, READY, RUNNING, Job, JobList

HELLO = AgentHello(1, "abc", "h", "u", "m", "b", "3.9.1", 7, 1.5, readonly=True, readonly_reason="asked")
LIVE = LinkStatus(LinkState.LIVE)


def event(topic: str, record: Any) -> Event:
    return Event(1, topic, 0.0, 0.0, data=to_wire(record))


def gpus(*utilization: int | None) -> GpuSnapshot:
    return GpuSnapshot(
        DRIVER_OK, tuple(Gpu(index, GPU_OK, 0.0, utilization=value) for index, value in enumerate(utilization))
    )


def job(job_id: str, stage: str, state: str) -> Job:
    return Job(job_id, stage, "service", state, 1.0, "h", {})


def test_each_topic_goes_to_its_place_with_its_time() -> None:
    state = HostState("box")
    for number, (topic, record) in enumerate(
        [("gpus", gpus(5)), ("host", HostSample(1.0, 8)), ("jobs", JobList((job("a", "serve", READY),)))]
    ):
        state = with_event(state, event(topic, record), float(number))
        assert getattr(state, topic) == Timed(record, float(number))
    assert state.disk is None
    assert with_event(state, event("weather", HostSample(1.0, 8)), 9.0) == state


def test_the_history_is_a_minute_long_and_keeps_the_place_of_the_unknown() -> None:
    state = HostState("box")
    for value in [*range(HISTORY_SAMPLES), None]:
        state = with_event(state, event("gpus", gpus(value, 1)), 0.0)
    history = state.gpu_history[0]
    assert len(history) == HISTORY_SAMPLES
    assert history[0] == 1.0
    assert history[-1] is None
    state = with_event(state, event("gpus", gpus(7)), 0.0)
    assert list(state.gpu_history) == [0]


def test_a_topic_that_fails_is_a_problem_until_it_works_again() -> None:
    state = with_event(HostState("box"), event("jobs", JobList()), 1.0)
    failed = with_event(state, Event(1, "jobs", 0.0, 0.0, error=Fault("failed", "no disk")), 2.0)
    assert failed.problems == {"jobs": "no disk"}
    assert failed.jobs == state.jobs
    assert with_event(failed, event("host", HostSample(1.0, 8)), 3.0).problems == {"jobs": "no disk"}
    assert with_event(failed, event("jobs", JobList()), 3.0).problems == {}


def test_data_that_does_not_fit_its_topic_is_refused() -> None:
    with pytest.raises(ProtocolError):
        with_event(HostState("box"), Event(1, "gpus", 0.0, 0.0, data={"driver": 5}), 0.0)


def test_freshness_needs_a_live_link_and_recent_data() -> None:
    state = with_event(with_link(HostState("box"), LIVE), event("host", HostSample(1.0, 8)), 10.0)
    assert freshness(state, state.host, 10.5) == (Freshness.LIVE, 0.5)
    assert freshness(state, state.host, 10.0 + STALE_SECONDS) == (Freshness.STALE, STALE_SECONDS)
    assert freshness(state, state.gpus, 10.5) == (Freshness.NONE, None)
    for link in set(LinkState) - {LinkState.LIVE}:
        assert freshness(with_link(state, LinkStatus(link)), state.host, 10.5) == (Freshness.DOWN, 0.5)


def test_readonly_and_simulated_come_from_the_agent() -> None:
    state = HostState("box")
    assert not state.readonly
    assert with_hello(state, HELLO).readonly
    simulated = GpuSnapshot(DRIVER_OK, simulated=True)
    assert not state.simulated
    assert with_event(state, event("gpus", simulated), 0.0).simulated


def test_the_job_of_a_stage_is_the_newest_live_one_else_the_newest() -> None:
    jobs = JobList(
        (job("d", "serve", FAILED), job("c", "serve", RUNNING), job("b", "serve", READY), job("a", "check", DONE))
    )
    state = with_event(HostState("box"), event("jobs", jobs), 0.0)
    assert [found.id for found in state.live_jobs()] == ["c", "b"]
    newest = state.newest("serve")
    assert newest is not None
    assert newest.id == "c"
    ended = state.newest("check")
    assert ended is not None
    assert ended.id == "a"
    assert state.newest("train") is None
    assert state.job("d") == jobs.jobs[0]
    assert state.job("x") is None
    assert HostState("box").newest("serve") is None
