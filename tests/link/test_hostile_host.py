"""What a host gets of the console: one command, and neither the ssh agent, nor a display, nor the environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.agent_process import AgentProcess
from link.odd_host import Asker
from link.sshd import SshServer

pytestmark = pytest.mark.system


@pytest.fixture
def ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A running ssh-agent of the user."""
    socket = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as process:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        yield socket
        process.terminate()


def test_nothing_is_forwarded_whatever_the_ssh_configuration_says(
    sshd: SshServer,
    console_home: Path,
    ssh_agent: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "ConsoleSecret" * 3)
    monkeypatch.setenv("DISPLAY", ":0")
    (console_home / ".ssh" / "config").write_text("Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  RequestTTY force\n")
    (sshd.home / ".bashrc").write_text("env >~/seen; tty >~/tty\n")
    assert Asker(capfd)(sshd).hello["psutil"]
    seen = dict(line.split("=", 1) for line in (sshd.home / "seen").read_text().splitlines() if "=" in line)
    assert seen["HOME"] == str(sshd.home)
    assert not {"SSH_AUTH_SOCK", "DISPLAY", "SSH_TTY", "HF_TOKEN"} & set(seen)
    assert (sshd.home / "tty").read_text() == "not a tty\n"


def test_the_agent_listens_nowhere(tmp_path: Path) -> None:
    with AgentProcess(HOME=str(tmp_path)) as agent:
        agent.hello(tmp_path)
        for op in ("gpus", "host", "jobs"):
            assert agent.request(op)["error"] is None
        folder = f"/proc/{agent.process.pid}/fd"
        opened = {os.readlink(f"{folder}/{number}") for number in os.listdir(folder)}
        assert any(name.startswith("pipe:") for name in opened)
        assert not [name for name in opened if name.startswith("socket:")]
