"""The outlook of a start: a whole recorded one with its counters, attaching in the middle, and its record."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Optional

from remote.jobs.starts import StartsFile
from remote.protocol.progress import Phase, Progress, RankShard
from remote.watch import vllm_load
from remote.watch.counters import Checkpoint, Counters
from remote.watch.history import MAX_STARTS, PastStart, StartKey
from remote.watch.outlook import Outlook

LOG = Path(__file__).parents[1] / "fixtures" / "h200_start_cold.log"
KEY = StartKey(model="/data/model", filesystem="/data ext4", tensor_parallel=1)
WEIGHTS = Checkpoint("/data/model", tuple(f"s{n}" for n in range(9)), (3_340_000_000,) * 9, "/data ext4", "254:0")
READY = 120.4


def lines() -> list[tuple[float, str]]:
    """The recorded lines with their arrival times."""
    found = []
    for line in LOG.read_text().splitlines():
        match = re.match(r"\s*(\d+\.\d+) (.*)", line)
        if match:
            found.append((float(match[1]), match[2].replace("\\r", "\r").rpartition("\r")[2]))
    return found


def counted(at: float) -> Counters:
    """What the kernel counted in that start: 30 GB from 52.8 s to 72.1 s, always some work."""
    read = int(30.06e9 * min(max((at - 52.8) / 19.3, 0.0), 1.0))
    place = min(int(read / 3.34e9) + 1, 9)
    ranks = (RankShard(7, f"s{place}", place, 9),) if 52.8 < at < 72.1 else ()
    return Counters(at, read, 0, at, 0, ranks, memory_available=100 * 2**30)


def run(past: list[PastStart], begin: float = 0.0) -> tuple[Outlook, dict[int, Progress], Progress]:
    """The start watched from ``begin`` on, with the log's older lines read at once: shown once a second."""
    outlook = Outlook(KEY, WEIGHTS, past)
    state, pending, shown = vllm_load.initial(), lines(), {}
    for second in range(int(begin), int(READY)):
        while pending and pending[0][0] <= second:
            at, line = pending.pop(0)
            state = vllm_load.read_line(state, line, at)
        outlook.look(counted(float(second)), len(pending))
        told = vllm_load.progress(state, float(second), False)
        shown[second] = outlook.improve(told, state.version, float(second))
    for at, line in pending:
        state = vllm_load.read_line(state, line, at)
    return outlook, shown, vllm_load.progress(vllm_load.read_health(state, READY), READY, True)


def errors(shown: dict[int, Progress]) -> list[float]:
    etas = [(second, progress.eta) for second, progress in shown.items()]
    return [abs(second + eta.seconds - READY) / READY for second, eta in etas if eta is not None]


def test_a_recorded_start_teaches_the_next_one() -> None:
    outlook, first, ready = run([])
    assert first[60].eta is not None and first[60].eta.source == "first start on this host: from the read rate only"
    start = outlook.record(ready, 1e9)
    assert start is not None and start.key.version == "0.26.0" and start.warm is False and start.size == WEIGHTS.size
    assert abs(start.seconds["weights"] - 19.3) < 2 and len(start.marks) == 9
    assert abs(sum(start.seconds.values()) - READY) < 0.1

    _, second, _ = run([start])
    assert max(errors(second)) < 0.1, "the same start again is known to within a tenth at every moment"
    assert max(errors(first)) > max(errors(second))
    shares = [progress.eta.share for progress in second.values() if progress.eta is not None]
    assert shares == sorted(shares) and shares[-1] < 1.0
    assert all(progress.eta is not None and progress.eta.low <= progress.eta.seconds <= progress.eta.high
               for progress in second.values())  # fmt: skip
    assert second[60].ranks == (RankShard(7, "s4", 4, 9),) and second[100].ranks == ()
    rates = {second: progress.read_rate for second, progress in second.items() if progress.read_rate is not None}
    assert rates and all(0.8e9 < rate < 2.5e9 for rate in rates.values()) and 100 not in rates


def test_attaching_in_the_middle_gives_the_same_estimate_at_once() -> None:
    outlook, _, ready = run([])
    start = outlook.record(ready, 1e9)
    assert start is not None
    _, whole, _ = run([start])
    for second in (40, 65, 90):
        _, late, _ = run([start], begin=float(second))
        whole_eta, late_eta = whole[second].eta, late[second].eta
        assert whole_eta is not None and late_eta is not None
        assert abs(late_eta.seconds - whole_eta.seconds) < 0.1 * READY


def test_a_start_that_was_not_seen_whole_is_not_kept() -> None:
    outlook = Outlook(KEY, WEIGHTS, [])
    late = Progress("ready", (Phase("weights", 5.0, 9.0), Phase("ready", 9.0)), ready=True)
    assert outlook.record(late, 1.0) is None
    assert outlook.record(Progress("config", (Phase("config", 0.0),)), 1.0) is None
    whole = replace(late, phases=(Phase("config", 0.0, 5.0), *late.phases))
    assert outlook.record(whole, 1.0) is not None


def test_nothing_is_known_and_nothing_breaks() -> None:
    outlook = Outlook(StartKey(), Checkpoint(""), [])
    shown = outlook.improve(Progress(), "", 3.0)
    assert shown.eta is not None and "first start on this host" in shown.eta.source and shown.bottleneck == ""


def test_a_start_in_which_nothing_moves_is_called_stalled() -> None:
    outlook = Outlook(KEY, WEIGHTS, [])
    told = Progress("weights", (Phase("config", 0.0, 5.0), Phase("weights", 5.0)))
    said: Optional[str] = None
    for second in range(6, 130):
        outlook.look(Counters(float(second), 100, 100, 1.0, 0), 1)
        said = outlook.improve(told, "0.32.0", float(second)).bottleneck
        assert second > 60 or not said
    assert said and said.startswith("Stalled")


def test_the_file_of_starts(tmp_path: Path) -> None:
    file = StartsFile(str(tmp_path))
    assert file.read() == ()
    start = PastStart(KEY, {"weights": 10.0}, wall=100.0)
    file.append(start)
    path = tmp_path / ".eagle_console" / "starts.jsonl"
    path.write_text(path.read_text() + '{"schema": 1, "key"')  # a crash cut it off
    file.append(replace(start, wall=101.0))  # the same start, seen by another watcher
    file.append(replace(start, wall=200.0))
    assert [one.wall for one in file.read()] == [100.0, 200.0]
    StartsFile(str(tmp_path), readonly=True).append(replace(start, wall=300.0))
    assert len(file.read()) == 2


def test_a_long_file_of_starts_is_cut_to_the_newest(tmp_path: Path) -> None:
    file = StartsFile(str(tmp_path))
    start = PastStart(KEY, {"weights": 10.0})
    file.append(start)
    path = tmp_path / ".eagle_console" / "starts.jsonl"
    path.write_text("".join("x" * 1000 + "\n" for _ in range(1060)) + path.read_text() * 8)
    file.append(replace(start, wall=500.0))
    assert path.stat().st_size < 100_000 and file.read()[-1].wall == 500.0 and len(file.read()) <= MAX_STARTS


def test_a_link_in_the_place_of_the_file_is_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / ".eagle_console").mkdir()
    other = tmp_path / "other"
    other.write_text("")
    (tmp_path / ".eagle_console" / "starts.jsonl").symlink_to(other)
    file = StartsFile(str(tmp_path))
    assert file.read() == ()
    try:
        file.append(PastStart(KEY, {"weights": 10.0}))
    except OSError:
        pass
    assert other.read_text() == ""
