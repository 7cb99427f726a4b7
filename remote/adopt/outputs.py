"""Where the output of a process goes: into a file that can be followed, or why there is none.

What fd 1 and 2 are is read from /proc: a file; a pipe, whose reader may be ``tee``; a terminal (tmux, screen); a socket
to the systemd journal. Formats: proc_pid_fd(5), cgroups(7).
"""

from __future__ import annotations

import os
import re
import stat as modes
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from remote import procfs

_UNIT = re.compile(r"/([^/\s]+\.service)(?:/|$)")
MAX_PIPES = 4
"""Pipes that are followed one after the other: ``vllm serve ... | ts | tee FILE`` has two."""


@dataclass(frozen=True)
class Output:
    """``path`` is the file that can be read here, None where there is none; ``note`` says how it is known, or why."""

    path: Optional[str]
    note: str


def output_of(pid: int) -> Output:
    """Where a process's output goes. Never raises."""
    first = _output(pid, 1, MAX_PIPES)
    if first.path is not None:
        second = _output(pid, 2, MAX_PIPES)
        if second.path is not None and second.path != first.path:
            return Output(first.path, f"{first.note}; its errors and progress bars go to {second.path}")
        return first
    errors = _output(pid, 2, MAX_PIPES)
    return errors if errors.path is not None else first


def _output(pid: int, descriptor: int, pipes: int) -> Output:
    link = f"/proc/{pid}/fd/{descriptor}"
    try:
        target = os.readlink(link)
        status = os.stat(link)
    except FileNotFoundError:
        return Output(None, "it has closed its output" if os.path.isdir(f"/proc/{pid}") else "it is gone")
    except OSError:
        return Output(None, "where its output goes cannot be seen: it belongs to another user")
    if modes.S_ISREG(status.st_mode):
        return _file(pid, target, status, "its standard output" if descriptor == 1 else "its standard error")
    if target.startswith("pipe:"):
        return _pipe(pid, target, pipes)
    if target.startswith("socket:"):
        unit = _unit(pid)
        if unit:
            return Output(None, f"its output goes to the systemd journal: journalctl -f -u {unit}")
        return Output(None, "its output goes into a socket, perhaps the systemd journal")
    if target == os.devnull:
        return Output(None, "its output is thrown away (/dev/null)")
    return Output(None, _terminal(pid, target))


def _file(pid: int, target: str, status: os.stat_result, what: str) -> Output:
    """The file under the name by which it can be opened here; a container's files lie below its root."""
    for path in (target, f"/proc/{pid}/root{target}"):
        try:
            here = os.stat(path)
        except OSError:
            continue
        if (here.st_dev, here.st_ino) == (status.st_dev, status.st_ino):
            return Output(path, what)
    return Output(None, "its output goes to a file that was deleted or lies where it cannot be reached")


def _pipe(pid: int, target: str, pipes: int) -> Output:
    """The reader of a pipe is in the writer's process group when a shell made both."""
    reader = _reader(pid, target)
    if reader is None:
        return Output(None, "its output goes into a pipe whose reader is not known (a container, a supervisor)")
    if reader.comm == "tee":
        for path, note in _tee_files(reader.pid):
            return Output(path, note)
        return Output(None, "its output goes into tee, which writes no file that can be read here")
    if pipes > 1:
        further = _output(reader.pid, 1, pipes - 1)
        if further.path is not None:
            return Output(further.path, f"through {reader.comm}: {further.note}")
    return Output(None, f"its output goes into a pipe to {reader.comm}")


def _reader(pid: int, target: str) -> Optional[procfs.Stat]:
    table = procfs.table()
    writer = table.get(pid)
    if writer is None:
        return None
    # The same group first, then the same session: another user's descriptors cannot be read anyway.
    near = sorted(
        (record for record in table.values() if record.pid != pid and record.session == writer.session),
        key=lambda record: record.group != writer.group,
    )
    for record in near:
        try:
            if os.readlink(f"/proc/{record.pid}/fd/0") == target:
                return record
        except OSError:
            continue
    return None


def _tee_files(pid: int) -> list[tuple[str, str]]:
    found = []
    try:
        names = sorted((name for name in os.listdir(f"/proc/{pid}/fd") if int(name) > 2), key=int)
    except OSError:
        return []
    for name in names:
        output = _output(pid, int(name), 0)
        if output.path is not None:
            found.append((output.path, "written by tee"))
    return found


def _terminal(pid: int, target: str) -> str:
    if not target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return f"its output goes to {target}"
    chain: list[str] = []
    current = procfs.stat(pid)
    while current is not None and current.pid > 1 and len(chain) < 32:
        chain.append(current.comm)
        current = procfs.stat(current.parent)
    if any(name.startswith("tmux") for name in chain):
        return f"its output goes to a terminal in tmux ({target}); tmux pipe-pane 'cat >> FILE' can keep it"
    if any(name.lower().startswith("screen") for name in chain):
        return f"its output goes to a terminal in screen ({target})"
    return f"its output goes to a terminal ({target})"


def _unit(pid: int) -> Optional[str]:
    try:
        match = _UNIT.search(Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return None
    return match[1] if match else None
