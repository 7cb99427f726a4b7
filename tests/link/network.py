"""Hosts behind a bad network, and consoles that look at them through it: what the tests of bad networks are made of."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.jobkit import Bench
from link.sshd import SshServer, ssh_server, target
from link.tunlink import FAR, TunLink, Weather, tun_link

from eagle_console.client import HostClient
from eagle_console.link.supervisor import Supervisor
from eagle_console.link.surroundings import Surroundings
from eagle_console.state import Freshness, HostState, LinkState, freshness
from remote import procfs
from remote.protocol.jobs import Job, ProcessId

T = TypeVar("T")

LOADING = """
say = lambda text: print(text, flush=True)
phases = {
    10: "(APIServer pid=1) INFO 11-30 19:20:05 [api_utils.py:273] non-default args: {'model': 'x'}",
    40: "(EngineCore pid=2) INFO 11-30 19:20:25 [core.py:116] Initializing a V1 LLM engine (v0.32.0) with config:",
    80: "Loading safetensors checkpoint shards:   0%% Completed | 0/2 [00:00<00:00,  2.00it/s]",
    160: "Loading safetensors checkpoint shards: 100%% Completed | 2/2 [00:09<00:00,  2.00it/s]",
    240: "INFO:     Application startup complete.",
}
longest, last = 0.0, time.monotonic()
for number in range(TICKS):
    time.sleep(0.1)
    longest, last = max(longest, time.monotonic() - last), time.monotonic()
    say("tick %d" % number)
    if number in phases:
        say(phases[number])
say("longest step %.3f" % longest)
"""
"""A job that says something every 0.1 s and passes through the phases of a load in its first 24 s."""


@dataclass
class World:
    """One host behind one link. ``workspace`` is on the host."""

    link: TunLink
    server: SshServer
    home: Path

    @property
    def workspace(self) -> Path:
        return self.server.directory / "workspace"

    def job(self, seconds: float) -> Bench:
        """Starts ``LOADING`` on the host, without the link."""
        code = LOADING.replace("TICKS", str(int(seconds * 10)))
        return Bench(self.workspace).write(code, watcher="vllm_load").start()

    def agents(self) -> set[ProcessId]:
        """The agents that run on the host: those whose program lies in its cache."""
        found = set()
        for name in filter(str.isdigit, os.listdir("/proc")):
            line, process = procfs.command_line(int(name)) or "", procfs.identity(int(name))
            if str(self.server.cache) in line and "run_agent.py" in line and process and procfs.alive(process):
                found.add(process)
        return found

    def console(self, *words: str, output: Path) -> subprocess.Popen[bytes]:
        return start_console(self.home, self.server, *words, output=output, workspace=str(self.workspace))


def start_console(home: Path, server: SshServer, *words: str, output: Path, **profile: str) -> subprocess.Popen[bytes]:
    """The command line as a process of its own, with a profile ``box`` of the server.

    Its stdout goes to ``output``, its stderr into a file beside it that ends in ``.err``.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    lines = [f'{name} = "{value}"' for name, value in {"address": server.address, **profile}.items()]
    config = output.with_suffix(".toml")
    config.write_text("\n".join(["[hosts.box]", *lines, ""]))
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "eagle_console.cli", "--config", str(config), *words],
            env={**environment, "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )


@contextmanager
def world(directory: Path, home: Path, weather: Weather = FAR) -> Iterator[World]:
    """A host of its own behind a link of its own, that the console in ``home`` knows and has the key to."""
    directory.mkdir()
    for name in ("id_ed25519", "id_ed25519.pub"):  # one console has one key for all hosts
        shutil.copy(home / ".ssh" / name, directory / name)
    (directory / "workspace").mkdir()
    with (
        tun_link(weather) as link,
        ssh_server(directory, host=link.peer_address, enter=link.enter) as server,
        (home / ".ssh" / "known_hosts").open("a") as known,
    ):
        known.write(server.known_hosts_line)
        known.flush()
        yield World(link, server, home)


class Watch:
    """A screen's link to a host, running, and how far it is."""

    def __init__(self, to: World, surroundings: Surroundings | None = None) -> None:
        self.states: list[tuple[float, HostState]] = []
        self.supervisor = Supervisor(target(to.server, to.workspace), self._take, surroundings=surroundings)

    def _take(self, state: HostState) -> None:
        self.states.append((time.monotonic(), state))

    @property
    def state(self) -> HostState:
        return self.supervisor.state

    @property
    def live(self) -> bool:
        """Whether the screen shows the host as live."""
        return freshness(self.state, self.state.host, time.monotonic())[0] is Freshness.LIVE

    @property
    def stale(self) -> bool:
        return freshness(self.state, self.state.host, time.monotonic())[0] is Freshness.STALE

    @property
    def agent(self) -> int:
        """The pid of the agent that answers, or answered last."""
        assert self.state.hello is not None
        return self.state.hello.pid

    def losses(self) -> list[str]:
        """The reasons of all losses of the link so far."""
        told = [state.link for _, state in self.states if state.link.state is LinkState.WAITING]
        return [link.detail for number, link in enumerate(told) if number == 0 or told[number - 1] != link]

    def longest_gap(self) -> float:
        """The longest time between two readings of the host, in seconds."""
        times = sorted({state.host.received for _, state in self.states if state.host})
        return max(b - a for a, b in zip(times, times[1:], strict=False))


@asynccontextmanager
async def watched(to: World, surroundings: Surroundings | None = None) -> AsyncIterator[Watch]:
    watch = Watch(to, surroundings)
    running = asyncio.create_task(watch.supervisor.run())
    try:
        yield watch
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(condition: Callable[[], T], seconds: float, what: str) -> float:
    """Waits for a condition, and gives the seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, f"in {seconds:g} s: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - begin


async def prints(console: subprocess.Popen[bytes], output: Path) -> None:
    """Waits for the first output of a command."""

    def printed() -> bool:
        assert console.poll() is None, output.with_suffix(".err").read_text()
        return output.stat().st_size > 0

    await until(printed, 30, "the command prints")


class Reading:
    """The events and the log of a job, as they come over a screen's link."""

    def __init__(self, watch: Watch, bench: Bench) -> None:
        self.events: list[int] = []
        self.lines: list[str] = []
        self._bench = bench
        client = watch.supervisor.client
        self._tasks = [asyncio.create_task(self._read_events(client)), asyncio.create_task(self._read_log(client))]

    async def _read_events(self, client: HostClient) -> None:
        async for event in client.events(self._bench.id):
            self.events.append(event.seq)

    async def _read_log(self, client: HostClient) -> None:
        async for chunk in client.follow_log(self._bench.id, tail=100_000):
            self.lines.extend(chunk.lines)

    async def is_complete(self, seconds: float) -> Job:
        """Waits for the end of the job, then for all of its events and lines: each once, in order."""
        bench = self._bench
        await until(lambda: bench.job().ended, seconds, "the job has ended")
        lines = bench.log().splitlines()
        written = [event.seq for event in bench.store.events(bench.id, 0)]
        await until(lambda: len(self.lines) >= len(lines) and len(self.events) >= len(written), 20, "all has come")
        for task in self._tasks:
            task.cancel()
        assert self.lines == lines
        assert self.events == written == list(range(1, len(written) + 1))
        return bench.job()
