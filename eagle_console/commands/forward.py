"""``forward``: the server of a job on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import shlex
from typing import TYPE_CHECKING, cast

from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation
from eagle_console.documents import Document
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN
from eagle_console.forward_target import model_of, port_of, url_of
from eagle_console.link.connect import LOCAL
from eagle_console.link.forwarding import PortForward
from remote.protocol.errors import FAILED, RequestError
from remote.protocol.jobs import LIVE_STATES, Job

if TYPE_CHECKING:
    from eagle_console.link.moving import MovingSession

WATCH_SECONDS = 2.0
"""How often it is looked whether the job still runs."""


async def forward(call: Invocation) -> ExitCode:
    if call.target.profile.address == LOCAL:
        async with call.host() as client:
            job = await client.job(call.arguments.job)
        port = port_of(job)
        _tell(call, job, port, port, f"{job.id} runs on this machine: nothing to forward")
        return ExitCode.DONE
    return await call.follow(lambda client: _forward(call, client))


async def _forward(call: Invocation, client: HostClient) -> ExitCode:
    job = await client.job(call.arguments.job)
    session = cast("MovingSession", client.session)
    forwarding = PortForward(port_of(job), lambda: session.transport)
    try:
        answers = await forwarding.probe()
        try:
            local = await forwarding.start(call.arguments.port)
        except OSError as error:
            raise RequestError(FAILED, f"port {call.arguments.port} cannot be used here: {error.strerror}") from None
        note = "" if answers else f"nothing answers on port {forwarding.port} yet: {job.id} is {job.state}"
        _tell(call, job, forwarding.port, local, note)
        while job.state in LIVE_STATES:
            await asyncio.sleep(WATCH_SECONDS)
            job = await client.job(job.id)
    finally:
        await forwarding.close()
    call.out.say(f"{job.id} has ended ({job.state}), and the forward with it")
    return ExitCode.FAILED


def _tell(call: Invocation, job: Job, port: int, local_port: int, note: str) -> None:
    url, model = url_of(local_port), model_of(job)
    if call.out.json:
        call.out.document(_document(call, job, port, local_port))
    call.out.line(url)
    call.out.line(f"model {model or UNKNOWN}")
    if model:
        body = json.dumps({"model": model, "prompt": "Hello", "max_tokens": 16})
        call.out.line(f"  curl {url}/v1/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}")
    if note:
        call.out.say(note)
    if call.target.profile.address != LOCAL:
        call.out.say(f"port {local_port} here leads to {job.host}'s 127.0.0.1:{port} until Ctrl-C")


def _document(call: Invocation, job: Job, port: int, local_port: int) -> Document:
    return {
        "host": call.target.profile.name,
        "job": job.id,
        "port": port,
        "local_port": local_port,
        "url": url_of(local_port),
        "model": model_of(job) or None,
    }
