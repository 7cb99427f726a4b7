"""The way in from the command line: questions on a real terminal, and ``hosts add`` against a real OpenSSH server."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomllib
from link.sshd import SshServer, introduce, ssh_keygen

from eagle_console.link import hostkeys

pytestmark = pytest.mark.system

SECONDS = 15.0


@dataclass
class Terminal:
    """A command on a terminal of its own. ``seen`` is what it has shown."""

    pid: int
    descriptor: int
    seen: str = ""
    ended: bool = False

    def until(self, words: str, times: int = 1) -> None:
        deadline = time.monotonic() + SECONDS
        while self.seen.count(words) < times:
            assert time.monotonic() < deadline and self._read(), f"{words!r} never came:\n{self.seen}"

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        deadline = time.monotonic() + 5
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.seen}"
            time.sleep(0.02)
        status = os.waitpid(self.pid, 0)[1]
        self.ended = True
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bool:
        if not select.select([self.descriptor], [], [], SECONDS)[0]:
            return False
        try:
            data = os.read(self.descriptor, 4096)
        except OSError:  # Linux says so when the other side is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def on_terminal() -> Iterator[Callable[..., Terminal]]:
    """Starts ``eagle-console`` with a controlling terminal; its stdin and stdout are no terminal."""
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        pid, descriptor = pty.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.execv(sys.executable, [sys.executable, "-m", "eagle_console.cli", *words])
        terminal = Terminal(pid, descriptor)
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        if not terminal.ended:
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        os.close(terminal.descriptor)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """``eagle-console`` without any terminal."""
    return subprocess.run(
        [sys.executable, "-m", "eagle_console.cli", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )


@pytest.fixture
def locked(sshd: SshServer, console_home: Path) -> SshServer:
    """A server whose key has the passphrase ``open sesame``."""
    key = console_home / ".ssh" / "id_ed25519"
    ssh_keygen("-q", "-p", "-P", "", "-N", "open sesame", "-f", str(key))
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {key}\n")
    return sshd


@pytest.fixture
def config(console_home: Path) -> Path:
    return console_home / ".config" / "eagle-console" / "config.toml"


def profile(config: Path, server: SshServer, transport: str) -> None:
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[hosts.box]\naddress = "{server.address}"\ntransport = "{transport}"\nworkspace = "{server.home}"\n'
    )


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
def test_a_passphrase_on_the_terminal(
    locked: SshServer, config: Path, transport: str, on_terminal: Callable[..., Terminal]
) -> None:
    profile(config, locked, transport)
    terminal = on_terminal("jobs", "box")
    terminal.until("id_ed25519" + ("" if transport == "asyncssh" else "'") + ": ")
    terminal.type("wrong\n")
    terminal.until("id_ed25519" + ("" if transport == "asyncssh" else "'") + ": ", times=2)
    terminal.type("open sesame\n")
    assert terminal.end() == 0, terminal.seen
    assert "open sesame" not in terminal.seen and "wrong\r\n" not in terminal.seen


@pytest.mark.parametrize(("typed", "code"), [("\x04", 3), ("\x03", 130)])
def test_a_question_can_be_left(
    locked: SshServer, config: Path, typed: str, code: int, on_terminal: Callable[..., Terminal]
) -> None:
    profile(config, locked, "asyncssh")
    terminal = on_terminal("jobs", "box")
    terminal.until("id_ed25519: ")
    terminal.type(typed)
    assert terminal.end() == code, terminal.seen
    assert "Traceback" not in terminal.seen


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
def test_without_a_terminal_ssh_add_is_named(
    locked: SshServer, console_home: Path, config: Path, transport: str
) -> None:
    profile(config, locked, transport)
    done = run("jobs", "box", "--json")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["class"] == "PromptCancelled" and error["remedy"] == f"ssh-add {console_home}/.ssh/id_ed25519"


def test_hosts_add_tests_reports_and_writes(sshd: SshServer, console_home: Path, config: Path, tmp_path: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text('# mine\n[hosts.other]\naddress = "other"\n')
    words = ["hosts", "add", "box", sshd.address, "--workspace", str(tmp_path), "--tensor-parallel", "8"]
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["host"]["workspace"] == str(tmp_path) and answer["config"] == str(config)
    verdicts = {check["rule"]: check["verdict"] for check in answer["checks"]}
    assert verdicts["link"] == verdicts["agent"] == verdicts["workspace"] == "ok"
    assert config.read_text().startswith("# mine\n")
    written = tomllib.loads(config.read_text())["hosts"]
    assert written["box"] == {"address": sshd.address, "workspace": str(tmp_path), "tensor_parallel": 8}
    again = run(*words)
    assert again.returncode == 2 and "already" in again.stderr


def test_hosts_add_asks_about_an_unknown_key(
    sshd: SshServer, console_home: Path, config: Path, on_terminal: Callable[..., Terminal]
) -> None:
    (console_home / ".ssh" / "known_hosts").unlink()
    refused = run("hosts", "add", "box", sshd.address)
    assert refused.returncode == 5 and "--yes" in refused.stderr and not config.exists()
    other = run("hosts", "add", "box", sshd.address, "--fingerprint", "SHA256:other")
    assert other.returncode == 5 and sshd.fingerprint in other.stderr and not config.exists()
    assert not hostkeys.known_hosts_path().exists()
    done = run("hosts", "add", "box", sshd.address, "--fingerprint", sshd.fingerprint)
    assert done.returncode == 0 and config.exists() and sshd.host_key in hostkeys.known_hosts_path().read_text()


def test_hosts_add_by_the_systems_ssh(sshd: SshServer, console_home: Path, config: Path) -> None:
    key = console_home / ".ssh" / "id_ed25519"
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {key}\n")
    (console_home / ".ssh" / "known_hosts").unlink()
    done = run("hosts", "add", "box", sshd.address, "--transport", "ssh", "--yes", "--workspace", str(sshd.home))
    assert done.returncode == 0, done.stderr
    assert 'transport = "ssh"' in config.read_text()
    assert run("jobs", "box").returncode == 0


def test_a_failed_test_writes_nothing_and_no_test_writes(console_home: Path, config: Path) -> None:
    failed = run("hosts", "add", "box", "nobody@127.0.0.1:1")
    assert failed.returncode == 3 and not config.exists()
    done = run("hosts", "add", "box", "nobody@127.0.0.1:1", "--no-test", "--readonly")
    assert done.returncode == 0
    assert tomllib.loads(config.read_text())["hosts"]["box"] == {"address": "nobody@127.0.0.1:1", "readonly": True}
    assert run("hosts", "add", "jobs", "x", "--no-test").returncode == 2


def test_options_that_are_not_followed_are_named(
    start_sshd: Callable[..., SshServer], console_home: Path, config: Path
) -> None:
    server = start_sshd()
    introduce(server, console_home)
    (console_home / ".ssh" / "config").write_text("Host *\n  RevokedHostKeys /etc/ssh/revoked\n  ControlMaster auto\n")
    done = run("hosts", "add", "box", server.address, "--json")
    named = [check for check in json.loads(done.stdout)["checks"] if check["rule"] == "ssh_config"]
    assert [check["verdict"] for check in named] == ["warning"]
    assert (
        named[0]["reason"].startswith("RevokedHostKeys /etc/ssh/revoked") and 'transport = "ssh"' in named[0]["remedy"]
    )
    (console_home / ".ssh" / "id_ed25519").unlink()
    refused = run("jobs", "box")
    assert refused.returncode == 3 and "RevokedHostKeys" in refused.stderr and "ControlMaster" not in refused.stderr
