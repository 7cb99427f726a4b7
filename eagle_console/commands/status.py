"""``status``: one picture of everything on a host."""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

from eagle_console import documents
from eagle_console.client import HostClient
from eagle_console.commands import disk as disk_command
from eagle_console.commands import gpus as gpus_command
from eagle_console.commands import jobs as jobs_command
from eagle_console.commands.invocation import Invocation
from eagle_console.documents import Document
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, clock, duration, gib, percent
from eagle_console.state import newest_of_stage
from remote.protocol.disk import DiskSnapshot
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.host import HostSample
from remote.protocol.jobs import JobList

WATCH_SECONDS = 2.0

Picture = tuple[GpuSnapshot, HostSample, DiskSnapshot, JobList]


async def status(call: Invocation) -> ExitCode:
    if call.arguments.watch:
        await call.follow(lambda client: _watch(call, client))
    async with call.host() as client:
        await _look_and_show(call, client)
    return ExitCode.DONE


async def _watch(call: Invocation, client: HostClient) -> NoReturn:
    while True:
        await _look_and_show(call, client)
        await asyncio.sleep(WATCH_SECONDS)


async def _look_and_show(call: Invocation, client: HostClient) -> None:
    picture = await _look(client)
    if call.out.json:
        call.out.document(_document(call, client, picture))
    else:
        _show(call, client, picture)


async def _look(client: HostClient) -> Picture:
    return await asyncio.gather(client.gpus(), client.host(), client.disk(), client.jobs())


def _document(call: Invocation, client: HostClient, picture: Picture) -> Document:
    gpus, host, disk, jobs = picture
    return {
        "host": call.target.profile.name,
        "address": call.target.profile.address,
        "time": time.time(),
        "simulated": gpus.simulated or client.hello.simulated,
        "agent": documents.agent(client.hello),
        "gpus": documents.gpus(gpus),
        "machine": documents.host(host),
        "disk": documents.disk(disk),
        "jobs": [documents.job(job) for job in jobs.jobs],
        "jobs_problem": jobs.problem,
        "load": documents.load(newest_of_stage(jobs.jobs, documents.LOAD_STAGE)),
        "training": None,
    }


def _show(call: Invocation, client: HostClient, picture: Picture) -> None:
    gpus, host, disk, jobs = picture
    out = call.out
    readonly = f"  READ-ONLY: {client.hello.readonly_reason}" if client.hello.readonly else ""
    load = " ".join(f"{value:.2f}" for value in host.load) if host.load else UNKNOWN
    used = None
    if host.memory_total is not None and host.memory_available is not None:
        used = host.memory_total - host.memory_available
    out.line(
        f"{call.target.profile.name}  {client.hello.user}@{client.hello.host}  {clock(client.hello.wall)}{readonly}\n"
    )
    out.line(
        f"{host.cpus} CPUs {percent(host.cpu_percent)}  load {load}  memory {gib(used)} of {gib(host.memory_total)}"
    )
    out.line()
    gpus_command.show(gpus, out)
    out.line()
    serve = newest_of_stage(jobs.jobs, documents.LOAD_STAGE)
    if serve is not None:
        out.line(
            f"Model load  {serve.id}  {jobs_command.state_word(serve)}  {duration(serve.seconds)}"
            f"  {jobs_command.progress_words(serve)}"
        )
        out.line()
    jobs_command.show(jobs.jobs, out)
    out.line()
    disk_command.show(disk, out)
