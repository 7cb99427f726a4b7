"""``shell`` on a terminal: a real pty for the user, a real sshd for the host."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from link.sshd import SshServer, introduce

pytestmark = pytest.mark.system

SECONDS = 30.0


class Terminal:
    """A user's terminal with a console on it."""

    def __init__(self, home: Path, *words: str, term: str = "xterm-256color") -> None:
        self.master, self._slave = pty.openpty()
        self.resize(33, 101)
        self.modes = termios.tcgetattr(self._slave)
        environment = {**os.environ, "HOME": str(home), "TERM": term}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eagle_console.cli", *words],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # signals of the terminal go to it
        )
        self.seen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, text: str) -> str:
        """Waits until the text is on the terminal, and gives all that came up to then."""
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} never came; there was: {self.seen!r}"
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def ended(self) -> int:
        """The exit status; the terminal must be as it was."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        assert termios.tcgetattr(self._slave) == self.modes
        return self.process.returncode

    def raw(self) -> bool:
        return not termios.tcgetattr(self._slave)[3] & (termios.ICANON | termios.ECHO)


def test_a_login_shell_over_ssh(sshd: SshServer, console_home: Path) -> None:
    with Terminal(console_home, "shell", sshd.address) as terminal:
        terminal.type("echo size $(stty size) term $TERM on $(tty)\n")
        terminal.until("size 33 101 term xterm-256color on /dev/")
        assert terminal.raw()
        terminal.resize(44, 122)
        terminal.type("sleep 0.2; echo now $(stty size)\n")
        terminal.until("now 44 122")
        terminal.type("sh -c 'echo begun; exec sleep 60'\n")
        terminal.until("begun\r")
        terminal.type("\x03")  # for the host's process
        terminal.until("^C")
        terminal.type("echo still $((40+2))\n")
        terminal.until("still 42")
        terminal.type("exit 37\n")
        assert terminal.ended() == 37


def test_a_command_over_ssh_with_its_words_kept(sshd: SshServer, console_home: Path) -> None:
    script = 'printf "<%s>" "$@"; exit 3'
    with Terminal(console_home, "shell", sshd.address, "--", "sh", "-c", script, "x", "two words", "$HOME", "'") as got:
        assert got.ended() == 3
        assert "<two words><$HOME><'>" in got.seen


def test_without_a_terminal_the_streams_are_passed_on(sshd: SshServer, console_home: Path) -> None:
    command = [sys.executable, "-m", "eagle_console.cli", "shell", sshd.address, "--", "sh", "-c"]
    data = os.urandom(3_000_000)
    environment = {**os.environ, "HOME": str(console_home)}
    done = subprocess.run(
        [*command, "cat; echo oops >&2; exit 9"], input=data, capture_output=True, env=environment, timeout=60
    )
    assert (done.returncode, done.stderr) == (9, b"oops\n")
    assert done.stdout == data
    with open(os.devnull) as nothing:
        done = subprocess.run([*command, "tty"], stdin=nothing, capture_output=True, env=environment, timeout=60)
    assert b"not a tty" in done.stdout


def test_the_terminal_is_given_back_when_the_link_is_lost(sshd: SshServer, console_home: Path) -> None:
    with Terminal(console_home, "shell", sshd.address) as terminal:
        terminal.type("echo up $((1+1))\n")
        terminal.until("up 2")
        sshd.drop_connections()
        assert terminal.ended() == 3
        assert "is lost" in terminal.seen


def test_the_terminal_is_given_back_when_the_console_is_told_to_end(sshd: SshServer, console_home: Path) -> None:
    with Terminal(console_home, "shell", sshd.address) as terminal:
        terminal.type("echo up $((1+1))\n")
        terminal.until("up 2")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM


def test_a_server_that_makes_no_terminal(start_sshd: Callable[..., SshServer], console_home: Path) -> None:
    server = start_sshd(authorized_options="restrict")
    introduce(server, console_home)
    with Terminal(console_home, "shell", server.address) as terminal:
        assert terminal.ended() == 3
        assert "gives us no terminal" in terminal.seen and "'pty'" in terminal.seen
        assert "Traceback" not in terminal.seen


def test_the_local_shell(console_home: Path) -> None:
    with Terminal(console_home, "shell", "local", "--", "sh", "-c", "stty size; exit 5") as terminal:
        assert terminal.ended() == 5
        assert "33 101" in terminal.seen
    with Terminal(console_home, "shell", "local") as terminal:
        terminal.type("echo shell $((20+3)); exit 6\n")
        terminal.until("shell 23")
        assert terminal.ended() == 6


def test_a_local_command_that_is_killed_leaves_the_terminal_as_it_was(console_home: Path) -> None:
    script = "stty raw -echo; kill -9 $$"
    with Terminal(console_home, "shell", "local", "--", "sh", "-c", script) as terminal:
        assert terminal.ended() == 128 + signal.SIGKILL


def test_the_system_ssh(sshd: SshServer, console_home: Path) -> None:
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {console_home}/.ssh/id_ed25519\n")
    config = console_home / "config.toml"
    config.write_text(f'[hosts.box]\naddress = "{sshd.address}"\ntransport = "ssh"\n')
    with Terminal(console_home, "shell", "box", "--config", str(config)) as terminal:
        terminal.type("echo size $(stty size)\n")
        terminal.until("size 33 101")
        terminal.type("exit 21\n")
        assert terminal.ended() == 21


def test_the_embedded_host(console_home: Path) -> None:
    with Terminal(console_home, "shell", "demo") as terminal:
        terminal.type("echo size $(stty size) in $EAGLE_CONSOLE_DEMO\n")
        terminal.until("size 33 101 in 1")
        terminal.resize(44, 122)
        terminal.type("sleep 0.2; echo now $(stty size)\n")
        terminal.until("now 44 122")
        terminal.type("sh -c 'echo begun; exec sleep 60'\n")
        terminal.until("begun\r")
        terminal.type("\x03")
        terminal.until("^C")
        terminal.type("exit 11\n")
        assert terminal.ended() == 11
    with Terminal(console_home, "shell", "demo", "--", "sh", "-c", "kill -9 $$") as terminal:
        assert terminal.ended() == 128 + signal.SIGKILL


def test_a_lost_link_ends_the_shell_of_the_embedded_host(console_home: Path) -> None:
    with Terminal(console_home, "shell", "demo") as terminal:
        terminal.type("trap '' HUP; echo 'pi'd $$.\n")
        terminal.until("pid ")
        pid = int(terminal.until(".\r"))
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM
        assert not Path(f"/proc/{pid}").exists()
