"""``forward``: a job's server on a local port, over a real sshd."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fixtures import ml_environment
from link.sshd import SshServer, introduce, target

from eagle_console.forward_target import port_of
from eagle_console.link.connect import reach
from eagle_console.link.errors import ForwardingRefused
from eagle_console.link.forwarding import PortForward
from remote.protocol.errors import RequestError
from remote.protocol.jobs import Job

pytestmark = pytest.mark.system

BODY = b"x" * 700_000


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def http_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def fetch(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_a_port_of_the_host_is_a_port_here(
    sshd: SshServer, console_home: Path, http_port: int, transport: str
) -> None:
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {console_home}/.ssh/id_ed25519\n")
    async with reach(target(sshd, transport=transport)) as endpoint, endpoint.transport() as connection:
        forward = PortForward(http_port, lambda: connection)
        local = await forward.start()
        try:
            assert local not in (0, http_port)  # the host's number is taken here: it is the same machine
            assert await forward.probe()
            bodies = await asyncio.gather(*(asyncio.to_thread(fetch, local) for _ in range(4)))
            assert bodies == [BODY] * 4
        finally:
            await forward.close()
        with pytest.raises(urllib.error.URLError):
            await asyncio.to_thread(fetch, local)


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
@pytest.mark.parametrize("how", ["sshd_config", "authorized_keys"])
async def test_a_server_that_forbids_it_is_named(
    start_sshd: Callable[..., SshServer], console_home: Path, http_port: int, transport: str, how: str
) -> None:
    options = {"config": "AllowTcpForwarding no"} if how == "sshd_config" else {"authorized_options": "restrict"}
    server = start_sshd(**options)
    introduce(server, console_home)
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {console_home}/.ssh/id_ed25519\n")
    async with reach(target(server, transport=transport)) as endpoint, endpoint.transport() as connection:
        with pytest.raises(ForwardingRefused, match="passes no connections on") as refused:
            await PortForward(http_port, lambda: connection).probe()
    assert "AllowTcpForwarding" in refused.value.remedy


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_nothing_listens_yet(sshd: SshServer, console_home: Path, transport: str) -> None:
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {console_home}/.ssh/id_ed25519\n")
    async with reach(target(sshd, transport=transport)) as endpoint, endpoint.transport() as connection:
        assert await PortForward(9, lambda: connection).probe() is False


def job(**changes: Any) -> Job:
    values = {
        "id": "serve-20261130-100000-abcd", "stage": "serve", "kind": "service", "state": "ready", "created": 1.0,
        "host": "h", "parameters": {}, "health_url": "http://127.0.0.1:8000/health",
    }  # fmt: skip
    return Job(**{**values, **changes})


def test_what_has_a_port() -> None:
    assert port_of(job()) == 8000
    for changes, words in (
        ({"kind": "task"}, "has no server"),
        ({"state": "failed"}, "has ended"),
        ({"health_url": None}, "names no port"),
        ({"health_url": "http://x:99999999/"}, "names no port"),
        ({"health_url": "http://[x/"}, "names no port"),
    ):
        with pytest.raises(RequestError, match=words):
            port_of(job(**changes))


def test_the_command_until_ctrl_c_and_over_a_lost_link(sshd: SshServer, console_home: Path, tmp_path: Path) -> None:
    python, verifier = ml_environment.make(tmp_path)
    workspace, port = tmp_path / "workspace", ml_environment.free_port()
    workspace.mkdir()
    config = console_home / "config.toml"
    config.write_text(
        f'[hosts.box]\naddress = "{sshd.address}"\nworkspace = "{workspace}"\n'
        f'python = "{python}"\nverifier = "{verifier}"\n'
    )

    def console(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "eagle_console.cli", *words, "--config", str(config)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    run = console("run", "box", "serve", f"port={port}", "--follow", "--json")
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    try:
        forward = console("forward", "box", "serve", "--json")
        assert forward.stdout and forward.stderr
        up = json.loads(forward.stdout.readline())
        assert (up["port"], up["model"], up["job"]) == (port, str(verifier), json.loads(out)["id"])
        assert up["url"] == f"http://127.0.0.1:{up['local_port']}" and up["local_port"] != port
        assert urllib.request.urlopen(up["url"] + "/health", timeout=20).status == 200
        sshd.drop_connections()
        assert "connection lost" in forward.stderr.readline() + forward.stderr.readline()
        deadline = time.monotonic() + 30
        while True:
            try:
                assert urllib.request.urlopen(up["url"] + "/health", timeout=20).status == 200
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=30)
        assert forward.returncode == 130
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20).status == 200  # the job goes on

        taken = console("forward", "box", "serve", "--port", str(port))
        assert "cannot be used here" in taken.communicate(timeout=30)[1] and taken.returncode == 1

        again = console("forward", "box", "serve")
        assert again.stdout and again.stdout.readline().startswith("http://127.0.0.1:")
    finally:
        stop = console("stop", "box", "serve", "--yes", "--force")
        stop.communicate(timeout=60)
    said = again.communicate(timeout=30)[1]
    assert again.returncode == 1 and "has ended (stopped)" in said
    ended = console("forward", "box", "serve")
    assert "its server is gone" in ended.communicate(timeout=30)[1] and ended.returncode == 1
