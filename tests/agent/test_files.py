"""The agent's file operations: listing, reading, hashing, and what they refuse. A real agent at the other end."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent.agent_process import AgentProcess

from remote.files import Files
from remote.policy import Policy
from remote.protocol.errors import BAD_ARGUMENT, FAILED, NOT_FOUND, REFUSED, RequestError
from remote.protocol.files import CHUNK_BYTES, FileEntry


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(Policy(True, "a test", (str(tmp_path),), str(tmp_path)))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess() as process:
        process.hello(tmp_path)
        yield process


def code(call: Any, *args: Any) -> str:
    with pytest.raises(RequestError) as error:
        call(*args)
    return error.value.code


def listed(files: Files, path: str) -> list[FileEntry]:
    entries: list[FileEntry] = []
    page = files.list(path)
    entries += page.entries
    while page.next is not None:
        page = files.list(page.root, page.next)
        entries += page.entries
    return entries


def test_over_the_wire(agent: AgentProcess, tmp_path: Path) -> None:
    data = os.urandom(300_000) + bytes(CHUNK_BYTES)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "model.safetensors").write_bytes(data)
    page = agent.request("list_files", path="export", after=None)["ok"]
    assert page["root"] == str(tmp_path / "export") and page["directory"] is True
    [entry] = page["entries"]
    status = (tmp_path / "export" / "model.safetensors").stat()
    assert entry["path"] == "model.safetensors"
    assert entry["identity"] == {"size": len(data), "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
    path = f"{page['root']}/model.safetensors"
    chunk = agent.request("read_file", path=path, offset=7, length=CHUNK_BYTES)["ok"]
    assert base64.b64decode(chunk["data"]) == data[7 : 7 + CHUNK_BYTES] and chunk["identity"] == entry["identity"]
    zeros = agent.request("read_file", path=path, offset=300_000, length=CHUNK_BYTES)["ok"]
    assert (zeros["zeros"], zeros["data"], zeros["length"]) == (CHUNK_BYTES, "", CHUNK_BYTES)
    rest = agent.request("read_file", path=path, offset=len(data) - 5, length=100)["ok"]
    assert (rest["zeros"], rest["length"]) == (5, 5)
    answer = agent.request("hash_file", path=path, length=1000)["ok"]
    assert answer["sha256"] == hashlib.sha256(data[:1000]).hexdigest()
    for op, args in (
        ("read_file", {"path": path, "offset": -1, "length": 1}),
        ("read_file", {"path": path, "offset": 0, "length": CHUNK_BYTES + 1}),
        ("read_file", {"path": "model.safetensors", "offset": 0, "length": 1}),
        ("read_file", {"path": path, "offset": True, "length": 1}),
        ("hash_file", {"path": path, "length": 1 << 70}),
        ("list_files", {"path": 7}),
        ("list_files", {"path": "a\0b"}),
        ("list_files", {"path": path, "after": 7}),
    ):
        assert agent.request(op, **args)["error"]["code"] == BAD_ARGUMENT, (op, args)


def test_pages_lose_and_repeat_nothing(files: Files, tmp_path: Path) -> None:
    names = [f"{folder}/{number:04d}" for folder in ("a", "a.b", "a/c", "z") for number in range(400)]
    for name in names:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(b"x")
    found = [entry.path for entry in listed(files, "tree")]
    assert sorted(found) == sorted(names) and len(found) == len(set(found)) == 1600
    assert files.list("tree").next is not None


def test_long_and_strange_names_fit_a_page(files: Files, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    names = {f"{number:03d}" + "ü" * 120 for number in range(600)} | {"new\nline", "\x1b[2J", "\udcff"}
    for name in names:
        (tmp_path / "tree" / name).write_bytes(b"")
    assert {entry.path for entry in listed(files, "tree")} == names
    with AgentProcess() as agent:
        agent.hello(tmp_path)
        assert agent.request("list_files", path="tree")["ok"]["entries"]


def test_links_are_resolved_for_the_named_path_and_not_followed_below(files: Files, tmp_path: Path) -> None:
    (tmp_path / "run" / "7").mkdir(parents=True)
    (tmp_path / "run" / "7" / "model").write_bytes(b"m")
    (tmp_path / "run" / "best").symlink_to("7")
    (tmp_path / "run" / "secret").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "run" / "pipe")
    best = files.list("run/best")
    assert best.root == str(tmp_path / "run" / "7") and [entry.path for entry in best.entries] == ["model"]
    whole = files.list("run")
    assert [entry.path for entry in whole.entries] == ["7/model"] and whole.left_out == 3
    assert code(files.read, str(tmp_path / "run" / "best" / "model"), 0, 1) == FAILED
    assert code(files.read, str(tmp_path / "run" / "secret"), 0, 1) == FAILED
    assert code(files.read, str(tmp_path / "run" / "pipe"), 0, 1) == FAILED
    assert code(files.read, str(tmp_path / "run"), 0, 1) == FAILED
    assert code(files.list, "run/none") == NOT_FOUND
    assert code(files.list, "run/pipe") == BAD_ARGUMENT


def test_an_agent_toml_confines_reading_to_its_roots(tmp_path: Path) -> None:
    inside, outside = tmp_path / "data", tmp_path / "other"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
    (inside / "way_out").symlink_to(outside)
    files = Files(Policy(False, "", (str(inside),), str(inside), confined=True))
    assert files.list("file").entries
    assert files.read(str(inside / "file"), 0, 1).data == b"x"
    for call, args in (
        (files.list, (str(outside),)),
        (files.list, ("way_out",)),
        (files.list, ("../other",)),
        (files.read, (str(outside / "file"), 0, 1)),
        (files.hash, (str(outside / "file"), 1)),
        (files.read, (str(inside / ".." / "other" / "file"), 0, 1)),
    ):
        assert code(call, *args) in (REFUSED, FAILED), args
    free = Files(Policy(False, "", (str(inside),), str(inside)))
    assert free.list(str(outside / "file")).entries  # without an agent.toml: what the user may read


def test_a_relative_path_needs_a_workspace() -> None:
    assert code(Files(Policy(False, "", (), None)).list, "output") == BAD_ARGUMENT
    assert Files(Policy(False, "", (), None)).list("~/").root == os.path.realpath(os.path.expanduser("~"))


def test_a_long_hash_comes_in_parts_and_a_lost_answer_again(tmp_path: Path) -> None:
    path = tmp_path / "big"
    data = os.urandom(5 * 1024 * 1024 + 17)
    path.write_bytes(data)
    ticks = iter(range(0, 1_000_000, 3))  # every look at the clock is three seconds later
    files = Files(Policy(False, "", (), None), clock=lambda: next(ticks))
    reached = []
    while not reached or reached[-1] < len(data):
        answer = files.hash(str(path), len(data))
        assert answer.sha256 == hashlib.sha256(data[: answer.length]).hexdigest()
        reached.append(answer.length)
    assert reached == sorted(set(reached)) and len(reached) == 6
    assert files.hash(str(path), len(data)).sha256 == hashlib.sha256(data).hexdigest()
    assert files.hash(str(path), 1024 * 1024).length == 1024 * 1024  # an earlier answer, once more
    assert files.hash(str(path), 5).sha256 == hashlib.sha256(data[:5]).hexdigest()  # one that was never given


def test_a_changed_file_has_another_identity_and_another_hash(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 1000)
    before = files.hash(str(path), 1000)
    path.write_bytes(b"b" * 1001)
    after = files.hash(str(path), 1000)
    assert after.identity != before.identity and after.sha256 == hashlib.sha256(b"b" * 1000).hexdigest()
    path.write_bytes(b"b" * 10)
    short = files.hash(str(path), 1000)
    assert (short.length, short.identity.size) == (10, 10)
    assert files.read(str(path), 0, 100).length == 10
