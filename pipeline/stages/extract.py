"""The stage ``extract``: a file of the verifier's hidden states for every row of the data set."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import rows, states, tools
from pipeline.capture import path_of
from pipeline.plan import budget, commands, data_commands
from pipeline.plan.safetensors import HeaderError, read_header
from pipeline.plan.verifier_config import VerifierConfig
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.prepare import data_set
from pipeline.stages.runtime import StageRun, execute
from pipeline.states import Shape
from pipeline.verifier_server import Served, verifier_server

CHECK_SECONDS = 3.0
PREFILL_TOKENS_PER_SECOND = 50.0
"""The slowest prefill that is not taken for a dead server."""


@dataclass(frozen=True)
class Rows:
    """The token ids of the data set, by row."""

    tokens: tuple[tuple[int, ...], ...]

    @property
    def longest(self) -> int:
        return max(len(row) for row in self.tokens)


def run(spec_path: str) -> int:
    """Writes ``prepared/hidden_states/hs_N.safetensors``."""
    return execute(spec_path, _work)


def _work(stage: StageRun) -> None:
    paths = stage.run
    with stage.lock(paths.data):
        inputs = verifying.fingerprint(stage)
        for path in data_set(paths.prepared):
            inputs.update(stage.input_of(path, "prepare"))
        if stage.fresh(inputs):
            return
        config = verifying.config(stage)
        shape = states.shape_of(config)
        stage.begin({**inputs, "dtype": stage.parameters["dtype"]}, [paths.hidden_states])
        stage.phase("look")
        data = _rows(paths.prepared)
        missing, adopted = _left_over(stage, data, shape)
        kept = len(data.tokens) - len(missing) - adopted
        if missing:
            _extract(stage, data, missing, config)
        _prove(stage, data, shape, kept, adopted)
        files = [_file(stage, row) for row in range(len(data.tokens))]
        stage.commit(inputs, {paths.hidden_states: {"files": len(files), "bytes": states.total_bytes(files)}})


def _rows(prepared: Path) -> Rows:
    datasets = importlib.import_module("datasets")
    found = datasets.load_from_disk(str(prepared)).with_format("numpy", columns=["input_ids"])
    return Rows(tuple(tuple(row["input_ids"].tolist()) for row in found))


def _file(stage: StageRun, row: int) -> Path:
    return stage.run.hidden_states / f"hs_{row}.safetensors"


def _left_over(stage: StageRun, data: Rows, shape: Shape) -> tuple[list[int], int]:
    """Looks at what an earlier run has left: the rows without a whole file, and how many got a captured one."""
    folder = stage.run.hidden_states
    folder.mkdir(parents=True, exist_ok=True)
    locks = states.remove_locks(folder)
    missing, broken = [], 0
    for row, tokens in enumerate(data.tokens):
        path = _file(stage, row)
        if not states.problem(path, len(tokens), shape):
            continue
        if path.exists():
            path.unlink()
            broken += 1
        missing.append(row)
    if broken or locks:
        stage.message(
            f"Removed what a stopped run has left: {broken} half-written files, {locks} lock files.", "warning"
        )
    taken = _adopt(stage, data, missing, shape)
    return [row for row in missing if row not in taken], len(taken)


def _adopt(stage: StageRun, data: Rows, missing: list[int], shape: Shape) -> set[int]:
    """Gives the states that came with the answers to their rows: the same tokens, so the same states."""
    captured = stage.run.captured
    if not missing or not captured.is_dir():
        return set()
    longest = data.longest
    known = {_key(row["input_ids"][:longest]): row for row in rows.read(stage.run.responses)}
    taken: set[int] = set()
    for row in missing:
        answer = known.get(_key(data.tokens[row]))
        if answer is None:
            continue
        source, length = path_of(captured, answer), len(answer["input_ids"])
        if states.problem(source, length, shape):
            continue
        if length == len(data.tokens[row]):
            _link(source, _file(stage, row))
        else:
            _cut(source, _file(stage, row), len(data.tokens[row]))
        taken.add(row)
        stage.count(len(taken), len(missing), "files")
    return taken


def _key(tokens: Any) -> bytes:
    return hashlib.sha256(json.dumps([int(token) for token in tokens]).encode()).digest()


def _link(source: Path, target: Path) -> None:
    """A second name for the file where the file system has them, else a copy that appears when it is whole."""
    try:
        os.link(source, target)
    except OSError:
        partial = target.with_name(f".{target.name}.new")
        shutil.copyfile(source, partial)
        os.replace(partial, target)


def _cut(source: Path, target: Path, length: int) -> None:
    """The first states of a longer row, which the data set has cut."""
    tensors = importlib.import_module("safetensors.torch")
    partial = target.with_name(f".{target.name}.new")
    whole = tensors.load_file(str(source))
    tensors.save_file({name: tensor[:length].clone() for name, tensor in whole.items()}, str(partial))
    os.replace(partial, target)


def _extract(stage: StageRun, data: Rows, missing: list[int], config: VerifierConfig) -> None:
    tokens = sum(len(data.tokens[row]) for row in missing)
    states.check_room(stage, tokens, config, stage.run.hidden_states)
    length = max(int(stage.parameters["max_model_len"] or 0), data.longest + 1)
    length = min(length, config.max_positions or length)
    bounds = states.bounds(stage, config, length)
    with (
        states.room_first(stage.run.hidden_states),
        states.clean_storage(stage),
        verifier_server(stage, commands.EXTRACTION, **states.server_values(stage, config, bounds)) as served,
    ):
        _probe(stage, served, data.tokens[missing[0]], config)
        stage.phase("extract", f"{len(missing)} rows")
        arguments = data_commands.extract(
            stage.run, served.base, served.model, bounds.concurrency, round(_timeout(bounds))
        )
        tools.speculators(stage, arguments, _observer(stage, served, len(data.tokens)))


def _timeout(bounds: budget.Budget) -> float:
    """Every open request may have to wait for the prefill of all others."""
    return 120.0 + bounds.open_tokens / PREFILL_TOKENS_PER_SECOND


def _probe(stage: StageRun, served: Served, tokens: tuple[int, ...], config: VerifierConfig) -> None:
    """Asks the server for one row and compares what it saves with what training expects.

    :raises StageError: when it is another model, saves other layers or another width, or saves where we cannot read.
    """
    body = {"model": served.model, "prompt": list(tokens), "max_tokens": 1, "return_token_ids": True}
    request = urllib.request.Request(
        f"{served.endpoint}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    where, remedy = f"{served.base}/v1/completions", "Leave endpoint empty, or start serve with kind=extraction."
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            path = Path(json.load(answer)["kv_transfer_params"]["hidden_states_path"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StageError(f"It is no extraction server: {error}.", file=where, remedy=remedy) from None
    try:
        states.wait_until_written(path)
        header = read_header(str(path))
    except (OSError, HeaderError) as error:
        raise StageError(
            f"The server's file cannot be read here: {error}.",
            file=str(path),
            remedy="Server and stage must share the storage folder.",
        ) from None
    wrong = states.problem(path, len(tokens), states.shape_of(config))
    if not wrong and states.tokens_of(path) != list(tokens):
        wrong = "its tokens are not those that were asked for"
    if wrong:
        raise StageError(
            f"The server saves what training does not expect: {wrong}.",
            file=str(path),
            field=f"layers {', '.join(map(str, states.layer_ids(config)))} of width {config.hidden_size}",
            remedy=f"Serve {config.path} with these layers.",
        )
    if path.stat().st_dev != stage.run.hidden_states.stat().st_dev:
        stage.message(
            f"{path.parent} is on another file system than the data: every file is copied instead of renamed.",
            "warning",
        )
    stage.evidence("dtype", header.tensors[states.STATES].dtype)
    path.unlink()


def _observer(stage: StageRun, served: Served, total: int) -> Callable[[], None]:
    """Counts the files that come, and looks after the server and the disk."""
    folder = stage.run.hidden_states
    begin, first = time.monotonic(), _count(folder)
    checked = begin

    def each() -> None:
        nonlocal checked
        now, count = time.monotonic(), _count(folder)
        rate = (count - first) / (now - begin) if now > begin and count > first else None
        stage.count(min(count, total), total, "files", rate)
        if now - checked > CHECK_SECONDS:
            checked = now
            served.check()
            states.watch_room(folder)

    return each


def _count(folder: Path) -> int:
    return sum(
        1 for entry in os.scandir(folder) if entry.name.startswith("hs_") and entry.name.endswith(".safetensors")
    )


def _prove(stage: StageRun, data: Rows, shape: Shape, kept: int, adopted: int) -> None:
    """The evidence: a whole file for each row and none besides."""
    stage.phase("check")
    broken = {}
    for row, tokens in enumerate(data.tokens):
        wrong = states.problem(_file(stage, row), len(tokens), shape)
        if wrong:
            broken[row] = wrong
        stage.count(row + 1, len(data.tokens), "files")
    for path in stage.run.hidden_states.glob("hs_*.safetensors"):
        number = path.stem[3:]
        if number.isdigit() and int(number) >= len(data.tokens):
            path.unlink()
    states.remove_locks(stage.run.hidden_states)
    whole = len(data.tokens) - len(broken)
    stage.evidence("kept from before", kept, "files")
    stage.evidence("taken from the answers", adopted, "files")
    stage.evidence("extracted now", whole - kept - adopted, "files")
    stage.evidence("whole files", whole, "files", not broken)
    stage.evidence("layers", ", ".join(map(str, states.layer_ids(verifying.config(stage)))))
    if broken:
        row, wrong = next(iter(broken.items()))
        raise StageError(
            f"{len(broken)} of {len(data.tokens)} rows have no whole file; the first: {wrong}.",
            file=str(_file(stage, row)),
            remedy="Run the stage again: it asks only for these.",
            klass="incomplete",
        )
