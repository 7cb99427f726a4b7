"""Consoles over bad networks: real packets, a real sshd and a real job behind each link.

Every scenario mostly waits, so all of them run at the same time, each with a host of its own; the tests below report
on one scenario each. ``pytest -s tests/link/test_network.py`` prints what was measured; docs/measurements.md keeps it.

The links need root and /dev/net/tun. A machine without them skips these tests, CI too: a container may not have them,
and that is no defect of the project.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
from link.network import Reading, World, prints, until, watched, world
from link.sshd import ssh_keygen
from link.tunlink import DOWN, FAR, Weather, available

from eagle_console.link.keeper import SECOND_SECONDS
from eagle_console.link.surroundings import Surroundings, local_addresses
from eagle_console.state import STALE_SECONDS, LinkState
from remote.protocol.frames import LEASE_SECONDS
from remote.protocol.jobs import DONE

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not available(), reason="needs root and /dev/net/tun"),
]

FIRST_FRAME_SECONDS = 6.0
"""At a round trip of 100 ms, twice the budget that bench/connect.py measures: seven scenarios begin at once."""

HOLE_SECONDS = 30.0
MARGIN_SECONDS = 5.0
"""For what a busy machine adds."""

Measured = dict[str, float]


async def far_away(host: World) -> Measured:
    """100 ms: the first live frame within its budget, the agent and its bundle already there; then no gaps."""
    async with watched(host) as warm_up:
        await until(lambda: warm_up.live, 30, "a first connection, with the bundle")
    begin = time.monotonic()
    async with watched(host) as watch:
        await until(lambda: watch.live, 30, "live")
        first = time.monotonic() - begin
        assert first < FIRST_FRAME_SECONDS
        await asyncio.sleep(5)
        begin = time.monotonic()
        await watch.supervisor.client.host()
        answer = time.monotonic() - begin
        assert not watch.losses()
        return {"first live frame": first, "one answer": answer, "longest gap": watch.longest_gap()}


async def lossy(host: World, weather: Weather) -> Measured:
    """Packets get lost: late, but never given up, and complete."""
    async with watched(host) as watch:
        first = await until(lambda: watch.live, 60, "live")
        agent, bench = watch.agent, host.job(20)
        reading = Reading(watch, bench)
        host.link.becomes(weather)
        job = await reading.is_complete(60)
        assert (job.state, watch.agent, watch.losses()) == (DONE, agent, [])
        return {"first live frame": first, "longest gap": watch.longest_gap()}


async def black_hole(host: World) -> Measured:
    """Nothing passes for 30 s while a job runs and three readers follow it: a screen's two, and ``logs -f``."""
    bench = host.job(45)
    async with watched(host) as watch:
        await until(lambda: watch.live, 30, "live")
        reading = Reading(watch, bench)
        output = host.server.directory / "followed.log"
        follower = host.console("logs", "box", bench.id, "-f", "--tail", "100000", output=output)
        await prints(follower, output)
        old = host.agents()
        assert len(old) == 2
        begin = time.monotonic()
        host.link.becomes(DOWN)
        stale = await until(lambda: watch.stale, 10, "stale")
        await until(lambda: "second connection" in watch.state.link.detail, 20, "a second connection is tried")
        second = time.monotonic() - begin
        await until(lambda: watch.state.link.state is not LinkState.LIVE, 30, "the link is lost")
        lost = time.monotonic() - begin
        await asyncio.sleep(begin + HOLE_SECONDS - time.monotonic())
        host.link.becomes(FAR)
        back = await until(lambda: watch.live, 20, "live again")
        caught_up = await until(lambda: _caught_up(reading, bench.log()), 20, "the log has caught up")
        await until(lambda: not old & host.agents(), LEASE_SECONDS + MARGIN_SECONDS, "the old agents are gone")
        gone = time.monotonic() - begin
        job = await reading.is_complete(60)
        await until(lambda: follower.poll() is not None, 30, "logs -f ends with the job")
        assert (job.state, follower.returncode) == (DONE, 0)
        assert output.read_text() == bench.log()
        notes = output.with_suffix(".err").read_text()
        assert "silent" in notes and "connection lost" in notes and "box answers again after" in notes
        longest_step = float(bench.log().splitlines()[-1].split()[-1])
        assert longest_step < 2.0  # the job says something every 0.1 s
        assert STALE_SECONDS - 1 < stale < STALE_SECONDS + 2
        assert SECOND_SECONDS - 1 < second < SECOND_SECONDS + 4
        assert gone < 60
        await until(lambda: len(host.agents()) == 1, 10, "one agent for the one console that is left")
        return {
            "stale after": stale,
            "second connection after": second,
            "lost after": lost,
            "live again, from the end of the hole": back,
            "log complete again, from then": caught_up,
            "old agents gone after": gone,
            "longest step of the job": longest_step,
        }


def _caught_up(reading: Reading, log: str) -> bool:
    return bool(reading.lines) and reading.lines[-1] in log.splitlines()[-12:]


async def flapping(host: World) -> Measured:
    """The link comes and goes. Complete, and no more agents than the lease allows."""
    bench = host.job(70)
    most = 0
    async with watched(host) as watch:
        await until(lambda: watch.live, 30, "live")
        reading = Reading(watch, bench)
        for seconds in FLAPS:
            host.link.becomes(DOWN)
            await asyncio.sleep(seconds)
            host.link.becomes(FAR)
            await asyncio.sleep(4)
            most = max(most, len(host.agents()))
        back = await until(lambda: watch.live, 30, "live")
        job = await reading.is_complete(60)
        assert job.state == DONE
        assert most <= 3
        await until(lambda: len(host.agents()) == 1, LEASE_SECONDS + MARGIN_SECONDS, "one agent is left")
        return {"live again, after the last flap": back, "losses": len(watch.losses()), "most agents": most}


async def new_address(host: World) -> Measured:
    """This computer gets another address: noticed at once, and the console comes back from there."""
    toward = (host.link.peer_address,)
    surroundings = Surroundings(addresses=lambda: local_addresses(toward))
    bench = host.job(15)
    async with watched(host, surroundings) as watch:
        await until(lambda: watch.live, 30, "live")
        reading, old = Reading(watch, bench), watch.agent
        begin = time.monotonic()
        host.link.move()
        await until(lambda: "the network changed" in watch.state.link.detail, 10, "the change is noticed")
        noticed = time.monotonic() - begin
        await until(lambda: watch.agent != old and watch.live, 20, "live from the new address")
        back = time.monotonic() - begin
        assert not watch.losses()
        assert back < SECOND_SECONDS
        assert (await reading.is_complete(60)).state == DONE
        await until(lambda: len(host.agents()) == 1, LEASE_SECONDS + MARGIN_SECONDS, "the old agent is gone")
        return {"noticed after": noticed, "live again after": back}


async def killed_consoles(host: World) -> Measured:
    """A console that is killed leaves no agent: at once on a working link, within the lease in a black hole."""
    measured = {}
    for name, weather in (("a working link", FAR), ("a black hole", DOWN)):
        output = host.server.directory / f"{name}.log"
        console = host.console("status", "box", "--watch", output=output)
        await prints(console, output)
        assert len(host.agents()) == 1
        host.link.becomes(weather)
        await asyncio.sleep(0.3)
        console.kill()
        measured[f"agent gone, {name}"] = await until(
            lambda: not host.agents(), LEASE_SECONDS + MARGIN_SECONDS, f"no agent after a kill on {name}"
        )
        console.wait()
    assert measured["agent gone, a working link"] < 5
    return measured


FLAPS = (2, 5, 8, 12, 16)
"""Seconds for which a flapping link is down."""

LOSSY = replace(FAR, lost_there=0.05, lost_back=0.05)
ASYMMETRIC = replace(FAR, lost_back=0.2)


@dataclass(frozen=True)
class Scenario:
    """What runs, and the weather in which its world begins."""

    run: Callable[[World], Awaitable[Measured]]
    weather: Weather = FAR


SCENARIOS = {
    "round trip 100 ms": Scenario(far_away),
    "100 ms, 5 % lost each way": Scenario(lambda host: lossy(host, LOSSY), LOSSY),
    "100 ms, 20 % lost on the way back": Scenario(lambda host: lossy(host, ASYMMETRIC)),
    "black hole of 30 s": Scenario(black_hole),
    "flapping, 2 to 16 s down, 4 s up": Scenario(flapping),
    "another address": Scenario(new_address),
    "console killed": Scenario(killed_consoles),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Measured | BaseException]]:
    """What became of each scenario."""
    folder = tmp_path_factory.mktemp("network")
    home = folder / "console"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh" / "id_ed25519"))

    async def all_at_once(worlds: list[World]) -> list[Measured | BaseException]:
        runs = (scenario.run(host) for scenario, host in zip(SCENARIOS.values(), worlds, strict=True))
        return await asyncio.gather(*runs, return_exceptions=True)

    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("HOME", str(home))
        for name in ("SSH_AUTH_SOCK", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            patch.delenv(name, raising=False)
        worlds = [
            stack.enter_context(world(folder / f"host{number}", home, scenario.weather))
            for number, scenario in enumerate(SCENARIOS.values())
        ]
        yield dict(zip(SCENARIOS, asyncio.run(all_at_once(worlds)), strict=True))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, results: dict[str, Measured | BaseException]) -> None:
    found = results[name]
    if isinstance(found, BaseException):
        raise found
    words = "  ".join(f"{what} {value:.2f}" for what, value in found.items())
    print(f"\n{name}:  {words}")  # noqa: T201
