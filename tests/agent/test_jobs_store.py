"""The job store over directories that anybody may have written into."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from jobkit import Bench

from remote import procfs
from remote.jobs import records
from remote.jobs.records import write_record
from remote.jobs.store import JobStore
from remote.protocol import jobs
from remote.protocol.codec import MAX_FRAME_BYTES, encode_line, to_wire
from remote.protocol.errors import BAD_ARGUMENT, NOT_FOUND, RequestError
from remote.protocol.jobs import JobExit, JobSpec, JobStarted, JobState, ProcessId, StopRequest
from remote.protocol.progress import Phase, Progress

NOBODY = ProcessId(999_999, 1, procfs.boot_id())


class Folder:
    """A workspace whose job directories are written by hand."""

    def __init__(self, workspace: Path) -> None:
        self.store = JobStore(str(workspace))
        self.path = Path(records.job_folder(str(workspace)))
        self.path.mkdir(parents=True)

    def add(self, job_id: str, *parts: tuple[str, Any], **spec: Any) -> Path:
        directory = self.path / job_id
        directory.mkdir()
        values: dict[str, Any] = {
            "id": job_id,
            "stage": job_id.partition("-")[0],
            "kind": "task",
            "argv": ("true",),
            "cwd": "/",
            "parameters": {},
            "created": time.time(),
            "machine_id": procfs.machine_id(),
            "host": "here",
            "user": "me",
            **spec,
        }
        for name, record in (("spec.json", JobSpec(**values)), *parts):
            write_record(str(directory / name), record, durable=False)
        return directory


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


GOOD = "check-20260101-000000-aaaa"
ODD = "check-20260102-000000-bbbb"


def break_with(text: bytes):
    return lambda path: path.write_bytes(text)


def link_to_passwd(path: Path) -> None:
    path.symlink_to("/etc/passwd")


HOSTILE = {
    "torn": break_with(b'{"state": "don'),
    "empty": break_with(b""),
    "list": break_with(b"[]"),
    "wrong types": break_with(b'{"state": 7, "wall": "x"}'),
    "missing fields": break_with(b"{}"),
    "deep": break_with(b"[" * 100_000),
    "huge": break_with(b'{"state": "' + b"x" * 1_000_000 + b'"}'),
    "infinite": break_with(b'{"state": "done", "wall": 1e999}'),
    "nan": break_with(b'{"state": "done", "wall": NaN}'),
    "binary": break_with(bytes(range(256))),
    "link": link_to_passwd,
    "fifo": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", ["spec.json", "state.json", "exit.json", "started.json", "stop.json"])
@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_record_shows_with_a_note_and_breaks_nothing(folder: Folder, attack: str, name: str) -> None:
    folder.add(GOOD, ("exit.json", JobExit(jobs.DONE, 1.0, 0)))
    victim = folder.add(ODD) / name
    victim.unlink(missing_ok=True)
    HOSTILE[attack](victim)
    listed = folder.store.list()
    assert {job.id: job.state == jobs.DONE for job in listed.jobs} == {GOOD: True, ODD: False}
    odd = folder.store.find(ODD)
    assert f"{name}: " in odd.note
    encode_line({"ok": to_wire(listed)})


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to("/etc"), lambda path: path.touch()], ids=["link", "file"]
)
def test_what_is_no_directory_of_its_own_is_named_and_not_read(folder: Folder, make: Any) -> None:
    make(folder.path / ODD)
    (job,) = folder.store.list().jobs
    assert job.id == ODD and job.state == jobs.GONE and "not a directory" in job.note
    with pytest.raises(RequestError):
        folder.store.directory(ODD)
    with pytest.raises(RequestError):
        folder.store.read_log(ODD, offset=0)


@pytest.mark.parametrize("name", ["../../etc", "check-20260101-000000-aaaa/../x", "", ".new-x", "a\nb"])
def test_no_name_leads_out_of_the_folder(folder: Folder, name: str) -> None:
    with pytest.raises(RequestError) as refused:
        folder.store.directory(name)
    assert refused.value.code == NOT_FOUND


def test_parameters_too_large_for_a_list_are_left_out(folder: Folder) -> None:
    folder.add(GOOD, parameters={"x": "\u00e9" * 20_000, "deep": {"a": [1]}}, command_line="y" * 60_000)
    (job,) = folder.store.list().jobs
    assert "too large" in job.note and job.parameters == {}
    assert len(encode_line({"ok": to_wire(job)})) < 4096


def test_a_list_of_many_jobs_fits_into_a_frame_and_is_cheap_to_poll(folder: Folder) -> None:
    progress = Progress("ready", tuple(Phase(f"phase {n}", n, n + 1.0, "x" * 60) for n in range(12)))
    for number in range(400):
        folder.add(
            f"serve-20260101-000000-{number:04x}",
            ("state.json", JobState(jobs.RUNNING, 1.0, progress)),
            ("started.json", JobStarted(NOBODY, NOBODY, 1, 1.0)),
            ("exit.json", JobExit(jobs.STOPPED, 2.0, 0)),
            created=float(number),
            command_line="vllm serve " + "x" * 400,
        )
    folder.add(GOOD, created=-1.0, machine_id="another")
    listed = folder.store.list()
    assert len(encode_line({"ok": to_wire(listed)})) < MAX_FRAME_BYTES
    assert listed.omitted == 401 - len(listed.jobs) and len(listed.jobs) > 150
    assert listed.jobs[0].id == "serve-20260101-000000-018f" and listed.jobs[0].progress.phases
    assert listed.jobs[-1].id == GOOD, "a job that has not ended comes first into the list, wherever it stands in it"
    assert folder.store.find("serve-20260101-000000-0000").progress.phases, "nothing is lost for who asks"
    begin = time.process_time()
    for _ in range(10):
        folder.store.list()
    assert (time.process_time() - begin) / 10 < 0.1


def test_finding_a_job(folder: Folder) -> None:
    for job_id, created in ((GOOD, 1.0), (ODD, 2.0), ("serve-20260101-000000-cccc", 3.0)):
        folder.add(job_id, created=created)
    assert folder.store.find(GOOD).id == GOOD
    assert folder.store.find("check").id == ODD, "the newest of the stage"
    assert folder.store.find("serve-2026").id == "serve-20260101-000000-cccc"
    for name, words in (("check-2026", "several"), ("train", "there is no job 'train'"), ("", "there is no job")):
        with pytest.raises(RequestError, match=words) as error:
            folder.store.find(name)
        assert error.value.code == NOT_FOUND and GOOD in error.value.message


def test_no_workspace_and_no_folder() -> None:
    assert JobStore(None).list().problem
    assert JobStore("/nonexistent").list().problem == "the workspace /nonexistent does not exist"
    assert JobStore("/nowhere/at/all").list().jobs == ()
    with pytest.raises(RequestError, match="there are: none"):
        JobStore("/nowhere/at/all").find("x")


def test_a_job_of_another_machine_is_elsewhere_and_never_judged_here(folder: Folder) -> None:
    here = procfs.identity(os.getpid())
    assert here is not None
    folder.add(
        ODD,
        ("started.json", JobStarted(NOBODY, here, here.pid, 1.0)),
        ("state.json", JobState(jobs.READY, 1.0, processes=(here,))),
        machine_id="another",
        host="other-box",
    )
    job = folder.store.find(ODD)
    assert (job.state, job.note) == (jobs.ELSEWHERE, "on other-box")
    write_record(str(folder.path / ODD / "exit.json"), JobExit(jobs.DONE, 9.0, 0), durable=False)
    assert folder.store.find(ODD).state == jobs.DONE, "its end is in the records, wherever it was"


def test_the_states_of_a_job(folder: Folder) -> None:
    me = procfs.identity(os.getpid())
    assert me is not None
    started = ("started.json", JobStarted(me, me, 1, 5.0))
    stage_gone = ("started.json", JobStarted(me, NOBODY, 1, 5.0))
    dead = ("started.json", JobStarted(NOBODY, NOBODY, 1, 5.0))
    before = ProcessId(me.pid, me.start_ticks, "another boot")
    cases = [
        (jobs.STARTING, (), {}),
        (jobs.GONE, (), {"created": time.time() - 60}),
        (jobs.GONE, (("lock", NOBODY),), {}),
        (jobs.STARTING, (("lock", me),), {"created": time.time() - 60}),
        (jobs.RUNNING, (started,), {}),
        (jobs.READY, (started, ("state.json", JobState(jobs.READY, time.time()))), {}),
        (jobs.STOPPING, (started, ("state.json", JobState(jobs.READY, 1.0)), ("stop.json", StopRequest(1.0))), {}),
        (jobs.STOPPING, (stage_gone, ("state.json", JobState(jobs.READY, time.time()))), {}),
        (jobs.GONE, (dead, ("state.json", JobState(jobs.READY, 9.0))), {}),
        (jobs.UNSUPERVISED, (dead, ("state.json", JobState(jobs.READY, 9.0, processes=(me,)))), {}),
        (jobs.UNSUPERVISED, (("started.json", JobStarted(NOBODY, me, 1, 5.0)),), {}),
        (jobs.GONE, (("started.json", JobStarted(before, before, 1, 5.0)),), {}),
    ]
    for number, (state, parts, spec) in enumerate(cases):
        job_id = f"check-20260101-000000-{number:04x}"
        folder.add(job_id, *parts, **spec)
        job = folder.store.find(job_id)
        assert job.state == state, (number, job)
        if state == jobs.GONE:
            assert job.note and job.pids == ()
    assert "restarted" in job.note


def test_events_pass_over_what_is_no_event(folder: Folder) -> None:
    directory = folder.add(GOOD)
    good = [{"seq": n, "wall": 1.0, "kind": "phase", "text": "x", "data": {"a": 1, "b": [1]}} for n in (1, 2, 3)]
    lines = [json.dumps(good[0]), "{torn", json.dumps(good[1]), "", '{"seq": "x"}', "z" * 100_000, json.dumps(good[2])]
    path = directory / "events.jsonl"
    path.write_text("\n".join(lines))
    assert [event.seq for event in folder.store.events(GOOD, 0)] == [1, 2], "the last line has no end yet"
    path.write_text("\n".join(lines) + "\n")
    events = folder.store.events(GOOD, 1)
    assert [event.seq for event in events] == [2, 3] and events[0].data == {"a": 1}


def read_all(store: JobStore, job_id: str, max_bytes: int) -> tuple[list[str], list[int]]:
    lines: list[str] = []
    offsets = [0]
    while True:
        chunk = store.read_log(job_id, offset=offsets[-1], max_bytes=max_bytes)
        assert len(encode_line({"ok": to_wire(chunk)})) < MAX_FRAME_BYTES
        lines += chunk.lines
        if chunk.next_offset == offsets[-1]:
            return lines, offsets
        offsets.append(chunk.next_offset)


@pytest.mark.parametrize("max_bytes", [7, 100, 4096, 32 * 1024, 128 * 1024])
def test_a_log_read_in_pieces_is_the_log(folder: Folder, max_bytes: int) -> None:
    directory = folder.add(GOOD, ("exit.json", JobExit(jobs.DONE, 1.0, 0)))
    text = "".join(f"zeile {n} äöü €\n" for n in range(300)) + "a\r\nb\rc\n\n\r\nlast"
    (directory / "stage.log").write_bytes(text.encode())
    lines, _ = read_all(folder.store, GOOD, max_bytes)
    expected = [*(f"zeile {n} äöü €" for n in range(300)), "a", "b", "c", "", "", "last"]
    if max_bytes > 30:
        assert lines == expected
    else:
        assert "".join(lines) == "".join(expected), "lines longer than a piece are cut between characters"


@pytest.mark.parametrize(
    "data",
    [b"\0" * 500_000, b"\xff" * 300_000, "😀".encode() * 100_000, b"\n" * 400_000],
    ids=["zeros", "invalid", "emoji", "empty lines"],
)
def test_a_worst_case_log_fits_into_frames(folder: Folder, data: bytes) -> None:
    directory = folder.add(GOOD, ("exit.json", JobExit(jobs.DONE, 1.0, 0)))
    (directory / "stage.log").write_bytes(data)
    lines, offsets = read_all(folder.store, GOOD, 1 << 20)
    assert offsets[-1] == len(data)
    if data[:1] == b"\n":
        assert len(lines) == len(data)
    else:
        assert "".join(lines) == data.decode("utf-8", "replace")


def test_a_last_line_without_its_end_is_held_back_while_it_may_grow(folder: Folder) -> None:
    me = procfs.identity(os.getpid())
    assert me is not None
    directory = folder.add(GOOD, ("started.json", JobStarted(me, me, 1, 1.0)))
    log = directory / "stage.log"
    log.write_bytes(b"one\ntw")
    chunk = folder.store.read_log(GOOD, offset=0)
    assert (chunk.lines, chunk.next_offset, chunk.size) == (("one",), 4, 6)
    log.write_bytes(b"one\ntwo\n")
    assert folder.store.read_log(GOOD, offset=4).lines == ("two",)
    write_record(str(directory / "exit.json"), JobExit(jobs.DONE, 1.0, 0), durable=False)
    log.write_bytes(b"one\ntwo\nthree")
    assert folder.store.read_log(GOOD, offset=8).lines == ("three",)
    assert folder.store.read_log(GOOD, offset=99).lines == (), "beyond the end there is nothing"


@pytest.mark.parametrize(("count", "first"), [(0, None), (1, "line 99999"), (3, "line 99997"), (200_000, "line 0")])
def test_the_last_lines(folder: Folder, count: int, first: str | None) -> None:
    directory = folder.add(GOOD, ("exit.json", JobExit(jobs.DONE, 1.0, 0)))
    assert folder.store.read_log(GOOD, tail=count).lines == (), "no log yet"
    (directory / "stage.log").write_text("".join(f"line {n}\n" for n in range(100_000)))
    chunk = folder.store.read_log(GOOD, tail=count)
    assert (chunk.lines[0] if chunk.lines else None) == first
    if 0 < count < 10:
        assert len(chunk.lines) == count and chunk.next_offset == chunk.size


def test_tail_of_a_huge_log_does_not_read_it_whole(folder: Folder) -> None:
    directory = folder.add(GOOD)
    with (directory / "stage.log").open("wb") as file:
        file.seek(50 * 1024**3)
        file.write(b"\nlast but one\nlast\n")
    begin = time.monotonic()
    assert folder.store.read_log(GOOD, tail=2).lines == ("last but one", "last")
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("place", [{"offset": -1}, {"tail": -1}, {"offset": 0, "tail": 1}])
def test_places_that_make_no_sense(folder: Folder, place: dict[str, int]) -> None:
    folder.add(GOOD)
    with pytest.raises(RequestError) as refused:
        folder.store.read_log(GOOD, **place)
    assert refused.value.code == BAD_ARGUMENT


def test_a_job_that_is_removed_is_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path).write("pass").start()
    bench.wait_for(jobs.DONE)
    for file in Path(bench.directory).iterdir():
        file.unlink()
    Path(bench.directory).rmdir()
    assert bench.store.list().jobs == ()
