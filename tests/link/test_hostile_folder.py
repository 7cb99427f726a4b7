"""The installed command, started in the folder of a hostile repository: nothing in there is read, run or believed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

COMMAND = Path(sys.executable).with_name("eagle-console")
PACKAGES = ("remote", "pipeline", "eagle_console", "textual", "rich", "asyncssh", "psutil", "link")
MODULES = ("pynvml", "json", "asyncio", "tomllib", "sitecustomize", "usercustomize", "conftest", "antigravity")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A working directory in which everything that a Python program might pick up leaves a mark when it is."""
    folder = tmp_path / "repository"
    folder.mkdir()
    mark = f"import pathlib; pathlib.Path({str(tmp_path / 'taken')!r}).touch()\n"
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(mark)
        (folder / name / "__main__.py").write_text(mark)
    for name in MODULES:
        (folder / f"{name}.py").write_text(mark)
    profile = '[hosts.box]\naddress = "evil.invalid"\n'
    for name in ("config.toml", "eagle-console.toml", ".eagle-console.toml", "pyproject.toml", "agent.toml"):
        (folder / name).write_text(profile)
    (folder / ".env").write_text(f"HOME={folder}\nXDG_CONFIG_HOME={folder}\nPYTHONPATH={folder}\n")
    for parent in (folder / ".config" / "eagle-console", folder / "eagle-console"):
        parent.mkdir(parents=True)
        (parent / "config.toml").write_text(profile)
    (folder / ".ssh").mkdir()
    command = f"ProxyCommand touch {tmp_path}/taken\n"
    for name in (".ssh/config", "config", "ssh_config", "included"):
        (folder / name).write_text(f"Host *\n  {command}")
    for name in ("python3", "sh", "ssh", "python3.11"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/taken\n")
        (folder / name).chmod(0o755)
    (folder / "libnvidia-ml.so.1").write_text("not a library")
    return folder


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status", "local", "--json"], 0),
        (["hosts", "--json"], 0),
        (["status", "box"], 3),  # no profile, no such host
        (["doctor", "127.0.0.1:1"], 3),
    ],
)
def test_nothing_comes_from_the_working_directory(hostile: Path, tmp_path: Path, words: list[str], code: int) -> None:
    if not COMMAND.exists():
        pytest.skip("eagle-console is not installed here")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Include included\n")  # relative to ~/.ssh, not to where we stand
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHON", "SSH_"))}
    before = sorted(hostile.rglob("*"))
    ended = subprocess.run(
        [str(COMMAND), *words, "--timeout", "20"],
        cwd=hostile,
        env={**kept, "HOME": str(home), "XDG_CONFIG_HOME": ".", "XDG_STATE_HOME": "."},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == code, ended.stderr
    assert not (tmp_path / "taken").exists()
    assert "evil" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted(hostile.rglob("*")) == before, "something was written into the working directory"
