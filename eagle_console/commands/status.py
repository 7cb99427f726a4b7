"""``status``: one picture of everything on a host."""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

from eagle_console import documents
from eagle_console.adopted import TRAIN, as_job, serving_words, training_words
from eagle_console.client import HostClient
from eagle_console.commands import disk as disk_command
from eagle_console.commands import gpus as gpus_command
from eagle_console.commands import jobs as jobs_command
from eagle_console.commands import watch as watch_command
from eagle_console.commands.invocation import Invocation
from eagle_console.documents import Document
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN, clock, duration, gib, percent
from eagle_console.state import newest_of_stage
from remote.protocol.adopted import Adopted, AdoptedList
from remote.protocol.disk import DiskSnapshot
from remote.protocol.gpu import GpuSnapshot
from remote.protocol.host import HostSample
from remote.protocol.jobs import Job, JobList

WATCH_SECONDS = 2.0

Picture = tuple[GpuSnapshot, HostSample, DiskSnapshot, JobList, AdoptedList]


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
    return await asyncio.gather(client.gpus(), client.host(), client.disk(), client.jobs(), client.adopted())


def _document(call: Invocation, client: HostClient, picture: Picture) -> Document:
    gpus, host, disk, jobs, adopted = picture
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
        "adopted": [documents.adopted(record) for record in adopted.records],
        "load": documents.load(_shown(documents.LOAD_STAGE, jobs, adopted)),
        "training": documents.training(_adopted_training(jobs, adopted)),
    }


def _shown(stage: str, jobs: JobList, adopted: AdoptedList) -> Job | None:
    """The job of a stage to look at, or what runs in its place without being ours."""
    return newest_of_stage(jobs.jobs, stage, tuple(as_job(record) for record in adopted.records))


def _adopted_training(jobs: JobList, adopted: AdoptedList) -> Adopted | None:
    """The adopted training run, where no run of ours is the one to look at."""
    shown = _shown(TRAIN, jobs, adopted)
    return next((record for record in adopted.records if shown is not None and record.id == shown.id), None)


def _show(call: Invocation, client: HostClient, picture: Picture) -> None:
    gpus, host, disk, jobs, adopted = picture
    out = call.out
    readonly = f"  READ-ONLY: {client.hello.readonly_reason}" if client.hello.readonly else ""
    load = " ".join(f"{value:.2f}" for value in host.load) if host.load else UNKNOWN
    used = None
    if host.memory_total is not None and host.memory_available is not None:
        used = host.memory_total - host.memory_available
    out.line(
        f"{call.target.profile.name}  {client.hello.user}@{client.hello.host}  {clock(client.hello.wall)}{readonly}"
    )
    out.line()
    out.line(
        f"{host.cpus} CPUs {percent(host.cpu_percent)}  load {load}  memory {gib(used)} of {gib(host.memory_total)}"
    )
    out.line()
    gpus_command.show(gpus, out)
    out.line()
    serve = _shown(documents.LOAD_STAGE, jobs, adopted)
    if serve is not None:
        out.line(
            f"Model load  {serve.id}  {jobs_command.state_word(serve)}  {duration(serve.seconds)}"
            f"  {jobs_command.progress_words(serve)}"
        )
        for record in adopted.records:
            if record.id == serve.id and record.serving is not None:
                for words in serving_words(record.serving):
                    out.line(f"            {words}")
        out.line()
    training = _adopted_training(jobs, adopted)
    if training is not None and training.training is not None:
        out.line(f"Training  {training.id}  {training_words(training.training)}")
        out.line()
    jobs_command.show(jobs, call.target.profile.name, out)
    out.line()
    if adopted.records:
        watch_command.show(adopted.records, out)
        out.line()
    disk_command.show(disk, out)
