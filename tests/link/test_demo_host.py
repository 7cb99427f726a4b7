"""The embedded host, spoken to by a real asyncssh client."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from eagle_console.demo import DemoHost, exec_session
from remote import procfs

DEADLINE = 20.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@asynccontextmanager
async def connection(host: DemoHost, **options: object) -> AsyncIterator[asyncssh.SSHClientConnection]:
    known = asyncssh.import_known_hosts(f"[{host.address}]:{host.port} {host.host_key}\n")
    arguments: dict[str, object] = {
        "username": host.user,
        "client_keys": [host.client_key],
        "known_hosts": known,
        "config": None,
        "agent_path": None,
        **options,
    }
    async with asyncssh.connect(host.address, host.port, **arguments) as client:
        yield client


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.02)


async def test_runs_a_command_and_reports_its_end(home: Path) -> None:
    async with DemoHost(home) as host, connection(host) as client:
        done = await client.run("echo out; echo err >&2; exit 7")
        assert (done.stdout, done.stderr, done.exit_status) == ("out\n", "err\n", 7)
        killed = await client.run("kill -TERM $$")
        assert killed.exit_signal is not None
        assert killed.exit_signal[0] == "TERM"


async def test_the_environment_is_the_demos(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("EAGLE_CONSOLE_PIPELINE", str(tmp_path))
    async with DemoHost(home) as host, connection(host) as client:
        lines = (await client.run("env", check=True)).stdout.splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    assert values["EAGLE_CONSOLE_DEMO"] == "1"
    assert values["EAGLE_CONSOLE_SIMULATE_GPUS"] == "1"
    assert "serve.jsonl" in os.listdir(values["EAGLE_CONSOLE_REPLAY"])
    assert values["XDG_CACHE_HOME"].startswith(str(home))
    assert "HF_TOKEN" not in values
    assert host.profile.python is None


async def test_with_a_pipeline_environment_nothing_is_replayed(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "ml" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    verifier = tmp_path / "SmolLM2-135M-Instruct"
    verifier.mkdir()
    (verifier / "config.json").write_text("{}")
    monkeypatch.setenv("EAGLE_CONSOLE_PIPELINE", str(tmp_path))
    async with DemoHost(home) as host, connection(host) as client:
        assert (await client.run("echo ${EAGLE_CONSOLE_REPLAY-none}", check=True)).stdout == "none\n"
        assert (host.profile.python, host.profile.verifier) == (str(python), str(verifier))
        assert host.profile.workspace == str(home / "workspace")


async def test_large_data_passes_unchanged_both_ways(home: Path) -> None:
    data = random.Random(7).randbytes(5_000_000)
    async with DemoHost(home) as host, connection(host) as client:
        done = await client.run("cat", input=data, encoding=None)
        assert done.stdout == data
        assert done.exit_status == 0
        fast = await client.run("head -c 5000000 /dev/zero; exit 3", encoding=None)
        assert (len(fast.stdout or b""), fast.exit_status) == (5_000_000, 3)


async def test_a_slow_client_pauses_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_session, "HANGUP_SECONDS", 0.2)
    async with DemoHost(home) as host, connection(host) as client:
        process = await client.create_process("echo $$; exec yes", encoding=None)
        pid = int(await process.stdout.readline())
        sleeping = 0

        def paused() -> bool:
            nonlocal sleeping
            record = procfs.stat(pid)
            sleeping = sleeping + 1 if record and record.state == "S" else 0
            return sleeping > 10

        await until(paused, "yes goes on writing although nobody reads")


async def test_endless_output_is_hung_up_after_a_dropped_connection(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_session, "HANGUP_SECONDS", 0.2)
    async with DemoHost(home) as host, connection(host) as client:
        process = await client.create_process("echo $$; exec yes", encoding=None)
        pid = procfs.identity(int(await process.stdout.readline()))
        assert pid is not None
        client.abort()
        await until(lambda: not procfs.alive(pid), "yes outlived its connection")


async def test_a_command_that_does_not_read_pauses_the_client(home: Path) -> None:
    async with DemoHost(home) as host, connection(host) as client:
        process = await client.create_process("read line; echo got $line; cat >/dev/null; echo end", encoding=None)
        process.stdin.write(b"first\n" + b"x" * 4_000_000)
        process.stdin.write_eof()
        assert await process.stdout.read() == b"got first\nend\n"


async def test_the_end_of_input_reaches_the_command(home: Path) -> None:
    async with DemoHost(home) as host, connection(host) as client:
        process = await client.create_process("cat; echo after", encoding=None)
        process.stdin.write(b"before ")
        process.stdin.write_eof()
        assert await process.stdout.read() == b"before after\n"


async def test_a_command_with_closed_input_keeps_running(home: Path) -> None:
    async with DemoHost(home) as host, connection(host) as client:
        process = await client.create_process("exec <&-; sleep 0.2; echo still here", encoding=None)
        process.stdin.write(b"x" * 200_000)
        assert await process.stdout.read() == b"still here\n"


async def test_a_dropped_connection_ends_an_idle_command(home: Path) -> None:
    async with DemoHost(home) as host, connection(host) as client:
        process = await client.create_process("echo $$; exec cat", encoding=None)
        pid = procfs.identity(int(await process.stdout.readline()))
        assert pid is not None
        client.abort()
        await until(lambda: not procfs.alive(pid), "cat outlived its connection")


async def test_a_dropped_connection_hangs_up_a_stubborn_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_session, "HANGUP_SECONDS", 0.2)
    async with DemoHost(home) as host, connection(host) as client:
        process = await client.create_process("trap '' HUP; echo $$; while :; do sleep 1; done", encoding=None)
        pid = procfs.identity(int(await process.stdout.readline()))
        assert pid is not None
        client.abort()
        await until(lambda: not procfs.alive(pid), "the loop outlived its connection")


async def test_what_was_detached_outlives_the_host(home: Path, tmp_path: Path) -> None:
    async with DemoHost(home) as host, connection(host) as client:
        done = await client.run("setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $!", check=True)
        sleeper = procfs.identity(int(done.stdout))
    assert sleeper is not None
    try:
        assert procfs.alive(sleeper)
    finally:
        os.kill(sleeper.pid, 9)


async def test_only_its_own_key_is_accepted(home: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    async with DemoHost(home) as host:
        for options in (
            {"client_keys": [other]},
            {"client_keys": None, "password": "demo"},
            {"username": "root"},
        ):
            with pytest.raises(asyncssh.PermissionDenied):
                async with connection(host, **options):
                    pass


async def test_everything_but_commands_and_terminals_is_refused(home: Path) -> None:
    async with DemoHost(home) as host, connection(host) as client:
        with pytest.raises(asyncssh.ChannelOpenError):
            await client.run()
        on_terminal = await client.run("stty size; tty; echo $TERM", term_type="xterm", term_size=(101, 33))
        assert str(on_terminal.stdout).startswith("33 101\r\n/dev/") and str(on_terminal.stdout).endswith("xterm\r\n")
        with pytest.raises(asyncssh.ChannelOpenError):
            await client.start_sftp_client()
        with pytest.raises(asyncssh.ChannelOpenError):
            await client.open_connection("127.0.0.1", host.port)
        with pytest.raises(asyncssh.ChannelListenError):
            await client.forward_remote_port("127.0.0.1", 0, "127.0.0.1", host.port)
        assert (await client.run("echo works", check=True)).stdout == "works\n"


async def test_keys_stay_and_are_private(home: Path) -> None:
    async with DemoHost(home) as first, DemoHost(home) as second:
        assert first.port != second.port
        assert first.host_key == second.host_key
        async with connection(first), connection(second):
            pass
    for name in ("host_key", "client_key"):
        assert (home / "keys" / name).stat().st_mode & 0o777 == 0o600
    assert (home / "keys").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in (home / "keys").iterdir()) == ["client_key", "host_key"]
