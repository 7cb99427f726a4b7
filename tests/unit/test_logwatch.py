"""The runner's reading of a log at the end of a stage."""

from __future__ import annotations

from pathlib import Path

from remote.jobs.logwatch import LogWatch, Plain


def test_a_last_line_without_its_end_is_read_when_the_stage_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    log.write_bytes(b"one line\nValueError: No available memory for the cache blocks")
    watch = LogWatch(str(log), str(tmp_path / "stage.idx"), Plain())
    watch.turn(mono=1.0, at=1.0)
    assert (found := watch.failure(1, None)) is not None and found.klass != "kv_cache_zero"
    watch.drain(at=2.0)
    assert (found := watch.failure(1, None)) is not None and found.klass == "kv_cache_zero"
