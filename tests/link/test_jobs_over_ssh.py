"""A job on a real OpenSSH host: launched from the bundle, it goes on without the link and is found again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fixtures import ml_environment
from link.sshd import SshServer, target

from eagle_console.client import HostClient
from eagle_console.link.connect import connect
from eagle_console.link.errors import ConnectionLost
from remote import procfs
from remote.protocol.codec import from_wire
from remote.protocol.frames import TOPIC_JOBS
from remote.protocol.jobs import ENDED_STATES, READY, STOPPED, Job, JobList
from remote.protocol.stages import LaunchRequest, StageContext

pytestmark = pytest.mark.system


async def until_state(client: HostClient, job_id: str, *states: str) -> Job:
    async with asyncio.timeout(30):
        async for event in client.session.subscribe(TOPIC_JOBS):
            for job in from_wire(JobList, event.data).jobs:
                if job.id == job_id and job.state in states:
                    return job
    raise AssertionError("the subscription ended")


async def test_a_job_outlives_the_link_and_is_stopped_over_the_next(sshd: SshServer, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    python, verifier = ml_environment.make(tmp_path)
    request = LaunchRequest(
        "serve", {"port": ml_environment.free_port()}, StageContext(verifier=str(verifier), python=str(python))
    )
    async with connect(target(sshd, workspace), 30) as client:
        launched = await client.launch(request, key="once")
        assert (await client.launch(request, key="once")).id == launched.id
        log = client.follow_log(launched.id)
        assert (await log.__anext__()).job == launched.id
        sshd.drop_connections()
        with pytest.raises(ConnectionLost):
            while True:
                await log.__anext__()
    async with connect(target(sshd, workspace), 30) as client:
        job = await until_state(client, launched.id, READY, *ENDED_STATES)
        assert job.state == READY
        assert job.pids
        assert all(procfs.stat(pid) for pid in job.pids)
        seen = []
        async for event in client.events(launched.id):
            seen.append(event)
            if event.kind == "ready":
                break
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
        await client.stop(launched.id, requested_by="the test")
        assert (await until_state(client, launched.id, *ENDED_STATES)).state == STOPPED
        assert not any(procfs.stat(pid) for pid in job.pids)
        lines = (await client.read_log(launched.id, tail=1)).lines
        assert lines == ("INFO:     Application startup complete.",)
