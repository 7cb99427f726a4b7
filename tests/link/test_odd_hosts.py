"""Odd logins through a real sshd: rc files that do things, shells other than bash, keys that may do little, Pythons."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.interpreters import interpreter
from link.odd_host import Asker, bundle_folder
from link.sshd import SshServer, introduce

from eagle_console.link import bootstrap
from eagle_console.link.bootstrap import EXEC_LINE

pytestmark = pytest.mark.system

StartSshd = Callable[..., SshServer]


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Asker:
    return Asker(capfd)


@pytest.fixture
def start(start_sshd: StartSshd, console_home: Path) -> StartSshd:
    """Starts a server that the console knows and has the key to."""

    def known(name: str = "host", **options: object) -> SshServer:
        server = start_sshd(name, **options)
        introduce(server, console_home)
        return server

    return known


@pytest.mark.parametrize(
    "rc",
    [
        pytest.param("head -c 300000 /dev/zero | tr '\\0' x", id="300 kB without a newline"),
        pytest.param("yes hello | head -c 300000", id="300 kB of lines"),
        pytest.param("head -c 300000 /dev/urandom", id="300 kB of bytes"),
        pytest.param("printf '\\033]0;title\\007\\033[2J\\r'", id="escape sequences"),
        pytest.param("cd /", id="cd"),
        pytest.param("cd /proc/self; rm -rf /proc/none 2>&1", id="cd to a folder that goes away"),
        pytest.param("set -e; set -u; set -o pipefail", id="set -eu"),
        pytest.param("set -x; set -v", id="set -x"),
        pytest.param("trap 'echo before every command' DEBUG", id="DEBUG trap"),
        pytest.param("trap 'echo bye' EXIT", id="EXIT trap"),
        pytest.param("python3() { echo no python here; }; export -f python3; alias exec=false", id="functions"),
        pytest.param("unset HOME XDG_CACHE_HOME", id="no HOME"),
        pytest.param("export HOME=/no/such/home; unset XDG_CACHE_HOME", id="HOME is missing"),
        pytest.param("export HOME= XDG_CACHE_HOME=relative", id="HOME is empty"),
        pytest.param("umask 000", id="umask 000"),
        pytest.param("ulimit -n 64", id="64 open files"),
        pytest.param("export PYTHONPATH=/tmp PYTHONHOME=/tmp PYTHONSTARTUP=/tmp/x PYTHONINSPECT=1", id="PYTHON*"),
        pytest.param("export LD_LIBRARY_PATH=:/nothing TZ=Nowhere/Land", id="odd variables"),
        pytest.param("python3 -c 'import os; [os.set_blocking(n, False) for n in (0, 1, 2)]'", id="non-blocking"),
        pytest.param("sleep 30 </dev/null >/dev/null 2>&1 & disown", id="background process"),
    ],
)
def test_rc_files_that_do_things_change_nothing(start: StartSshd, ask: Asker, rc: str) -> None:
    server = start()
    (server.home / ".bashrc").write_text(f"{rc}\n")
    folder = bundle_folder(server, ask(server))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    if not folder.is_relative_to(server.home):
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("rc", "sentence", "remedy"),
    [
        pytest.param("exit 7", "(exit status 7)", "forced command or a restricted shell", id="exit"),
        pytest.param("echo closed account; exit 1", "(exit status 1): closed account", "", id="says why"),
        pytest.param("export PATH=/nothing", "has no Python 3.9 or newer; tried python3", "install", id="PATH"),
        pytest.param("exec cat", "did not run our command in 1 s", "rc files run something else", id="cat"),
        pytest.param("read -r answer; exec true", "did not run our command in 1 s", "wait for input", id="read"),
        pytest.param("yes no newline | tr -d '\\n'", "printed more than 1024 KiB", "silent", id="endless line"),
        pytest.param("kill -9 $$", "(by a signal)", "", id="killed"),
    ],
)
def test_rc_files_that_stand_in_the_way_are_one_sentence(
    start: StartSshd, ask: Asker, monkeypatch: pytest.MonkeyPatch, rc: str, sentence: str, remedy: str
) -> None:
    monkeypatch.setattr(bootstrap, "READY_SECONDS", 1.0)
    server = start()
    (server.home / ".bashrc").write_text(f"{rc}\n")
    assert remedy in ask.refused(server, sentence)


@pytest.mark.parametrize("program", ["fish", "zsh", "tcsh", "bash --norc", "python3", "tee heard"])
def test_what_runs_in_place_of_our_command_is_told_nothing(
    start: StartSshd, ask: Asker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    """A shell that an rc file or a forced command starts would take the text of stage 1 for commands."""
    monkeypatch.setattr(bootstrap, "READY_SECONDS", 1.0)
    if shutil.which(program.split()[0]) is None:
        pytest.skip(f"no {program} on this machine")
    server = start(config=f"ForceCommand tee {tmp_path}/heard | {program}")
    ask.refused(server, "did not run our command in 1 s")
    assert (tmp_path / "heard").read_bytes() == b""


@pytest.mark.parametrize(
    ("shell", "rc_file", "rc"),
    [
        ("bash", ".bashrc", "echo noise; printf half"),
        ("zsh", ".zshenv", "echo noise; printf half; setopt no_nomatch sh_word_split"),
        ("fish", ".config/fish/config.fish", "echo noise; printf half; cd /"),
        ("tcsh", ".tcshrc", "echo noise; printf half; cd /; set noclobber"),
        ("dash", ".profile", "echo never read"),
    ],
)
def test_login_shells(start: StartSshd, ask: Asker, tmp_path: Path, shell: str, rc_file: str, rc: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    server = start(config=f'ForceCommand exec {path} -c "$SSH_ORIGINAL_COMMAND"')
    (server.home / rc_file).parent.mkdir(parents=True, exist_ok=True)
    (server.home / rc_file).write_text(f"{rc}\n")
    assert bundle_folder(server, ask(server)).parent == server.cache


def test_a_restricted_shell_is_one_sentence(start: StartSshd, ask: Asker) -> None:
    server = start(config='ForceCommand /bin/bash --restricted -c "$SSH_ORIGINAL_COMMAND"')
    ask.refused(server, "exec: restricted")


@pytest.mark.parametrize("command", ["/usr/sbin/nologin", "echo only git here >&2; exit 128", "internal-sftp"])
def test_an_account_without_commands_is_one_sentence(start: StartSshd, ask: Asker, command: str) -> None:
    remedy = ask.refused(start(config=f"ForceCommand {command}"), "ended the command that starts the agent")
    assert "docs/link.md" in remedy


def test_without_sftp_terminal_forwards_and_with_one_session(start: StartSshd, ask: Asker) -> None:
    """``restrict`` and ``MaxSessions 1``: the agent's channel is the only one, and nothing else is asked for."""
    server = start(
        config="MaxSessions 1\nAllowTcpForwarding no\nAllowStreamLocalForwarding no\nPermitTTY no\nX11Forwarding no",
        authorized_options="restrict",
    )
    assert ask(server).hello["psutil"]


def test_the_forced_command_of_the_documentation(start: StartSshd, ask: Asker, tmp_path: Path) -> None:
    """The script of docs/link.md as it stands there, on a key with ``restrict``."""
    text = (Path(__file__).parents[2] / "docs" / "link.md").read_text()
    script = text.split("```sh\n#!/bin/sh\n")[1].split("```")[0]
    assert "/etc/eagle_console/exec-line" in script
    allowed = tmp_path / "exec-line"
    allowed.write_text(EXEC_LINE + "\n")
    wrapper = tmp_path / "eagle-console-only"
    wrapper.write_text("#!/bin/sh\n" + script.replace("/etc/eagle_console/exec-line", str(allowed)))
    wrapper.chmod(0o755)
    server = start(authorized_options=f'restrict,command="{wrapper}"')
    assert ask(server).hello["psutil"]
    allowed.write_text(EXEC_LINE + " ; id\n")
    ask.refused(server, "(exit status 126): only eagle-console may run here")


class TestPython:
    """Which interpreter is taken, from a PATH of its own."""

    @pytest.fixture
    def bin_folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        return folder

    @pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
    def test_only_as_python3_x(self, start: StartSshd, ask: Asker, bin_folder: Path, version: str) -> None:
        (bin_folder / f"python{version}").symlink_to(interpreter(version))
        hello = ask(start(path=str(bin_folder))).hello
        assert hello["python"].startswith(f"{version}.")

    @pytest.mark.parametrize("old", ["3.6", "3.8"])
    def test_an_old_python3_beside_a_good_one(self, start: StartSshd, ask: Asker, bin_folder: Path, old: str) -> None:
        (bin_folder / "python3").symlink_to(interpreter(old))
        (bin_folder / "python3.11").symlink_to(Path(sys.executable).resolve())
        assert ask(start(path=str(bin_folder))).hello["python"].startswith("3.11.")

    def test_only_an_old_one(self, start: StartSshd, ask: Asker, bin_folder: Path) -> None:
        (bin_folder / "python3").symlink_to(interpreter("3.8"))
        ask.refused(start(path=str(bin_folder)), "has no Python 3.9 or newer; tried python3, python3.13")

    @pytest.mark.parametrize(
        "broken",
        [
            "#!/bin/sh\necho 'the module system is down'\n",
            "#!/bin/sh\necho 'no such version' >&2\nexit 127\n",
            "#!/no/such/interpreter\n",
            "#!/bin/sh\nkill -11 $$\n",
            "",
            "\x7fELF not really",
        ],
    )
    def test_a_broken_python3_is_passed_over(self, start: StartSshd, ask: Asker, bin_folder: Path, broken: str) -> None:
        (bin_folder / "python3").write_text(broken)
        (bin_folder / "python3").chmod(0o755)
        server = start(path=str(bin_folder))
        ask.refused(server, "has no Python 3.9 or newer")
        (bin_folder / "python3.11").symlink_to(Path(sys.executable).resolve())
        assert ask(server).hello["python"].startswith("3.11.")

    def test_one_without_its_library(self, start: StartSshd, ask: Asker, bin_folder: Path, tmp_path: Path) -> None:
        """Like Debian's python3-minimal: it runs, and json is missing."""
        script = bin_folder / "python3"
        script.write_text(f'#!/bin/sh\nPYTHONHOME= exec "{_minimal(tmp_path)}" "$@"\n')
        script.chmod(0o755)
        remedy = ask.refused(
            start(path=str(bin_folder)), "is not complete: ModuleNotFoundError: No module named 'json'"
        )
        assert "python3-minimal" in remedy


def _minimal(folder: Path) -> Path:
    """A Python with the part of its library that it starts with, and no more: links to this interpreter's."""
    python = Path(sys.executable).resolve()
    library = python.parents[1] / "lib" / f"python3.{sys.version_info[1]}"
    minimal = folder / "minimal"
    (minimal / "bin").mkdir(parents=True)
    (minimal / "lib" / library.name).mkdir(parents=True)
    shutil.copy(python, minimal / "bin" / "python3")
    for name in ("encodings", "collections", "re", "lib-dynload", *(path.name for path in library.glob("*.py"))):
        (minimal / "lib" / library.name / name).symlink_to(library / name)
    for shared in python.parents[1].glob("lib/libpython*"):
        (minimal / "lib" / shared.name).symlink_to(shared)
    return minimal / "bin" / "python3"
