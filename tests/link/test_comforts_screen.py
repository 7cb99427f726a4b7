"""The key ``!`` on a real terminal: the screen leaves, a shell has the terminal, and the screen comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from link.sshd import SshServer
from link.test_comforts_shell import Terminal

pytestmark = pytest.mark.system

ENTERS, LEAVES = "\x1b[?1049h", "\x1b[?1049l"


@pytest.mark.parametrize("transport", ["asyncssh", "local"])
def test_a_shell_from_the_screen(sshd: SshServer, console_home: Path, transport: str) -> None:
    address = "local" if transport == "local" else sshd.address
    with Terminal(console_home, address) as terminal:
        terminal.until(ENTERS)
        terminal.until("LIVE")
        terminal.type("!")
        terminal.until(LEAVES)
        terminal.until("A shell on")
        terminal.type("stty size; echo shell $((40+2))\n")
        between = terminal.until("shell 42")
        assert "33 101" in between and ENTERS not in between
        terminal.type("sleep 1.2; echo quiet $((1+1)).\n")  # the screen would have painted its ages in this time
        assert "LIVE" not in terminal.until("quiet 2.")
        terminal.type("exit\n")
        terminal.until(ENTERS)
        terminal.until("LIVE")
        terminal.type("q")
        assert terminal.ended() == 0
