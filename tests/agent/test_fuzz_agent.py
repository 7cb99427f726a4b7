"""A hostile console against the real agent: it ends cleanly or answers faults, stays small, and changes nothing."""

from __future__ import annotations

import hashlib
import os
import select
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agent.agent_process import AgentProcess
from fixtures import hostile_frames as hostile
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.system

OPERATIONS = (
    "gpus", "host", "disk", "jobs", "job", "stages", "plan", "launch", "stop", "read_log", "adopted", "adopt",
    "stop_adopted", "list_files", "read_file", "hash_file", "triage", "prune", "purge", "undo", "pin", "exec", "eval",
    "__class__", "",
)  # fmt: skip
TOPICS = ("gpus", "host", "disk", "jobs", "events", "log", "adopted", "x")
FIELDS = (
    "job", "stage", "context", "parameters", "force", "requested_by", "offset", "tail", "after", "path", "paths",
    "length", "log", "pid", "name_typed", "workspace", "python", "verifier", "key",
)  # fmt: skip
ENOUGH = 5000
LIMIT_BYTES = 100_000_000

names = st.one_of(st.sampled_from(OPERATIONS), hostile.words)
arguments = st.one_of(
    st.dictionaries(st.sampled_from(FIELDS), st.one_of(hostile.values, hostile.objects), max_size=5), hostile.objects
)
typed = st.one_of(
    st.builds(lambda n: {"t": "ping", "n": n}, hostile.whole),
    st.builds(
        lambda number, op, args, key: {"t": "req", "id": number, "op": op, "args": args, "key": key},
        hostile.small, names, arguments, st.one_of(st.none(), hostile.words),
    ),
    st.builds(
        lambda number, op, args: {"t": "req", "id": number, "op": op, "args": args},
        hostile.whole, st.sampled_from(OPERATIONS[:16]), arguments,
    ),
    st.builds(
        lambda sub, topic, interval, args: {"t": "sub", "sub": sub, "topic": topic, "interval": interval, "args": args},
        hostile.small, st.one_of(st.sampled_from(TOPICS), hostile.words), hostile.numbers, arguments,
    ),
    st.builds(lambda sub: {"t": "unsub", "sub": sub}, hostile.small),
    st.builds(lambda tag, fields: {**fields, "t": tag}, st.sampled_from(["", "x", "exec", "é"]), hostile.objects),
)  # fmt: skip
conversations = st.tuples(st.lists(hostile.lines(typed), min_size=160, max_size=300), hostile.broken(typed))


def snapshot(*folders: Path) -> dict[str, tuple[int, int, str]]:
    """Every name below the folders with mode, time of change and content."""
    seen = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            status = path.lstat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            seen[str(path)] = (status.st_mode, status.st_mtime_ns, digest)
    return seen


@pytest.fixture
def host(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace with artifacts and a home, both with files that could be lost."""
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    for folder in (workspace / "output_1k" / "0", workspace / "data_1k", home / ".cache"):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 1000)
    return workspace, home


def peak(agent: AgentProcess) -> int:
    """The most memory that the agent has had, in bytes."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


class Reader:
    """Reads what the agent says and keeps nothing but counts of it: how often which kind of frame came."""

    def __init__(self, agent: AgentProcess) -> None:
        assert agent.process.stdout
        self._descriptor = agent.process.stdout.fileno()
        self.kinds: Counter[bytes] = Counter()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive(), "the agent keeps its output open"

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._descriptor, 65536):
            *whole, rest = (rest + data).split(b"\n")
            self.kinds.update(line[:12] for line in whole)


def send(agent: AgentProcess, data: bytes) -> None:
    """All of it, or as much as the agent takes before it ends."""
    assert agent.process.stdin
    descriptor = agent.process.stdin.fileno()
    os.set_blocking(descriptor, False)
    view = memoryview(data)
    while view:
        if not select.select([], [descriptor], [], 20)[1]:
            raise AssertionError("the agent does not read any more")
        try:
            view = view[os.write(descriptor, view) :]
        except BrokenPipeError:
            return


def test_whatever_a_console_says_the_agent_answers_or_ends_and_changes_nothing(
    host: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, home = host
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    before = snapshot(workspace, home)
    said: Counter[str] = Counter()

    @settings(hostile.ONE_PASS, max_examples=32 * hostile.EFFORT)
    @given(conversations)
    def talk(conversation: tuple[list[bytes], bytes]) -> None:
        typed_lines, last = conversation
        with AgentProcess(HOME=str(home)) as agent:
            assert agent.hello(workspace)["t"] == "agent"
            reader = Reader(agent)
            send(agent, b"".join(typed_lines))
            agent_peak = peak(agent)
            send(agent, last)
            agent.end_input()
            assert agent.wait() in (0, 1)
            reader.join()
            stderr = agent.stderr()
        assert "Traceback" not in stderr, stderr[-2000:]
        assert "agent ends:" in stderr
        assert agent_peak < LIMIT_BYTES
        assert reader.kinds[b'{"t":"bye","'] == 1
        said["frames"] += len(typed_lines) + 1
        said["peak"] = max(said["peak"], agent_peak)
        said["answers"] += reader.kinds[b'{"t":"res","']
        assert snapshot(workspace, home) == before

    talk()
    sys.stdout.write(
        f"\n{said['frames']} frames, {said['answers']} answers, at most {said['peak'] / 1e6:.1f} MB" + "\n"
    )
    assert said["frames"] >= ENOUGH
    assert said["answers"] >= ENOUGH / 10, "the requests were not reached"


def test_a_console_that_asks_for_everything_and_reads_nothing_costs_little(host: tuple[Path, Path]) -> None:
    workspace, home = host
    wide = {"wide": hostile.WIDE}
    with AgentProcess(HOME=str(home)) as agent:
        agent.hello(workspace)
        frames: list[dict[str, Any]] = []
        for number in range(200):
            frames.append({"t": "sub", "sub": number, "topic": "gpus", "interval": 0.0, "args": wide})
            frames.append({"t": "req", "id": number, "op": "jobs", "args": wide})
        for frame in frames:
            agent.send(**frame)
        assert peak(agent) < LIMIT_BYTES, f"{peak(agent) / 1e6:.0f} MB"
