"""The command ``explain-log``: files, gzip, standard input, exit codes, and logs that are long."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from eagle_console import cli
from eagle_console.commands import explain_log

FIXTURES = Path(__file__).parent.parent / "fixtures"
GOOD = FIXTURES / "broken_start_logs" / "good.log"
SHARD = FIXTURES / "broken_start_logs" / "truncated-shard.log"
SILENT = FIXTURES / "broken_start_logs" / "killed-server.log"
H200 = FIXTURES / "h200_start_cold.log"


def document(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["explain-log", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_good_start(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = document(capsys, str(H200))
    assert (code, told["phase"], told["ready"], told["error"]) == (0, "ready", True, None)
    assert (told["version"], told["model"]) == ("0.26.0", "/data/model")
    assert told["seconds"]["weights"] == pytest.approx(20.284)
    assert told["total_seconds"] == pytest.approx(120.4, abs=0.1)
    assert told["figures"]["model_gib"] == 28.0


def test_a_failed_start_for_scripts_and_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = document(capsys, str(SHARD))
    assert (code, told["state"], told["phase"]) == (1, "failed", "weights")
    assert (told["done"], told["total"], told["unit"], told["percent"]) == (1, 2, "shards", 50)
    assert told["error"]["class"] == "corrupt_shard"
    assert cli.main(["explain-log", str(SHARD)]) == 1
    words = capsys.readouterr().out
    for part in ("in phase weights, 1 of 2 shards (50%)", "corrupt_shard: ", "remedy: ", "SafetensorError"):
        assert part in words


def test_gzip_and_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(SHARD.read_bytes()))
    plain = document(capsys, str(SHARD))
    assert document(capsys, str(packed)) == plain
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SHARD.read_bytes())))
    assert document(capsys, "-") == plain


def test_a_silent_death_needs_its_exit_code_and_the_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = document(capsys, str(SILENT))
    assert (code, told["state"], told["error"]) == (0, "loading", None)
    assert "may still be running" in told["note"]
    code, told = document(capsys, str(SILENT), "--exit-code", "137")
    assert (code, told["error"]["class"]) == (1, "gone")
    assert "SIGKILL" in told["error"]["cause"]
    kernel = tmp_path / "dmesg"
    kernel.write_text("[1.0] boot\n[812.3] Out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB\n")
    code, told = document(capsys, str(SILENT), "--exit-code=-9", "--dmesg", str(kernel))
    assert (code, told["error"]["class"]) == (1, "host_oom_killed")
    assert "VLLM::EngineCor" in told["error"]["line"]


def test_what_cannot_be_read_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, str(tmp_path / "none"))[0] == 2
    assert document(capsys, str(tmp_path))[0] == 2
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"x" * 1000)[:20])
    assert document(capsys, str(broken))[0] == 2


def test_of_a_long_log_only_the_last_start_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_log, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(explain_log, "START_WITHIN", 5000)
    log = tmp_path / "log"
    requests = b'INFO:     127.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 2000
    log.write_bytes(GOOD.read_bytes() * 5 + requests + SHARD.read_bytes())
    found = explain_log.read(str(log)).explain()
    alone = explain_log.read(str(SHARD)).explain()
    assert found.error == alone.error
    assert found.seconds == alone.seconds
    with log.open("rb") as file:
        assert explain_log._begin_of_last_start(file) > len(GOOD.read_bytes()) * 5 + len(requests) - 100


def test_nothing_of_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("hello\nworld\n")
    code, told = document(capsys, str(log))
    assert (code, told["state"], told["phase"], told["seconds"]) == (0, "unknown", "", {})
