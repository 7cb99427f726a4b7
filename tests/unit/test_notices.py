"""What is worth a note while nobody looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle_console.notices import Notice, news, osc9, states
from remote.protocol import jobs
from remote.protocol.jobs import Job
from remote.protocol.progress import Failure

JOB = Job("serve-20261201-030000-ab12", "serve", jobs.KIND_SERVICE, jobs.RUNNING, 0.0, "box", {}, seconds=1_320.0)
FAILURE = Failure("gpu_memory_busy", "GPU 0 has 3.1 GiB free.")


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (JOB, replace(JOB, state=jobs.READY), [Notice("serve on box is ready after 22:00.")]),
        (JOB, replace(JOB, state=jobs.DONE), [Notice("serve on box is done after 22:00.")]),
        (JOB, replace(JOB, state=jobs.DONE, seconds=None), [Notice("serve on box is done.")]),
        (
            JOB,
            replace(JOB, state=jobs.FAILED, failure=FAILURE),
            [Notice("serve on box failed after 22:00: GPU 0 has 3.1 GiB free.", bad=True)],
        ),
        (
            replace(JOB, state=jobs.READY),
            replace(JOB, state=jobs.GONE, note="the host was restarted while it ran"),
            [Notice("serve on box is gone: the host was restarted while it ran.", bad=True)],
        ),
        (JOB, JOB, []),
        (JOB, replace(JOB, state=jobs.STOPPING), []),
        (JOB, replace(JOB, state=jobs.STOPPED), []),
        (replace(JOB, state=jobs.FAILED), replace(JOB, state=jobs.FAILED), []),
        (None, replace(JOB, state=jobs.DONE), []),
    ],
)
def test_news(before: Job | None, now: Job, told: list[Notice]) -> None:
    assert news(states([before] if before else []), [now], "box") == told


def test_a_text_from_a_host_cannot_end_the_sequence() -> None:
    text = osc9("ready\x07\x1b]0;owned\x07", tmux=False)
    assert text.startswith("\x1b]9;ready") and text.endswith("\x07")
    assert text.count("\x07") == 1 and text.count("\x1b") == 1


def test_tmux_gets_it_wrapped() -> None:
    assert osc9("ready", tmux=True) == "\x1bPtmux;\x1b\x1b]9;ready\x07\x1b\\"
