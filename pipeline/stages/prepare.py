"""The stage ``prepare``: tokens and loss masks as speculators' data set, from the answers."""

from __future__ import annotations

import importlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline import rows, tools
from pipeline.plan import data_commands
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun, execute
from pipeline.verifier_server import RENDER, verifier_server

TOKEN_FREQUENCIES = "token_freq.pt"
_TOKENIZED = ("input_ids", "loss_mask")


def run(spec_path: str) -> int:
    """Writes the folder ``prepared``, which appears only when it is complete."""
    return execute(spec_path, _work)


def _work(stage: StageRun) -> None:
    paths = stage.run
    with stage.lock(paths.data):
        inputs = {**stage.input_of(paths.responses, "synthesize"), "tokenizer": _tokenizer(stage)}
        if stage.fresh(inputs):
            return
        verifying.check_code(stage)
        stage.phase("select")
        chosen, dropped, tokenized = _select(stage)
        partial = paths.data / ".prepared.new"
        shutil.rmtree(partial, ignore_errors=True)
        stage.phase("prepare", f"{chosen} rows")
        try:
            if tokenized:
                arguments = data_commands.prepare(stage.parameters, _training_rows(stage), partial)
                tools.speculators(stage, arguments, lambda: None)
            else:
                with verifier_server(stage, RENDER) as served:
                    stage.phase("render", f"{chosen} conversations")
                    arguments = data_commands.prepare(stage.parameters, _training_rows(stage), partial, served.base)
                    tools.speculators(stage, arguments, served.check)
            stage.phase("check")
            facts = _check(stage, partial, chosen if tokenized else None)
            _put_in_place(stage, partial)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            _training_rows(stage).unlink(missing_ok=True)
        stage.evidence("dropped as truncated", dropped, "rows")
        files = [*data_set(paths.prepared), paths.prepared / TOKEN_FREQUENCIES]
        stage.commit(inputs, {path: facts if path.suffix == ".arrow" else {} for path in files})


def data_set(prepared: Path) -> list[Path]:
    """The files of the data set itself; later stages put theirs beside them."""
    return [*sorted(prepared.glob("*.arrow")), prepared / "dataset_info.json", prepared / "state.json"]


def _tokenizer(stage: StageRun) -> str:
    """The fingerprint of the verifier's small files: its weights do not matter here."""
    folder = Path(verifying.folder(stage))
    small = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".jinja", ".model", ".txt", ".py")]
    found: dict[str, str] = {}
    for path in small:
        found.update(stage.input_of(path, maker=""))
    return "-".join(value[:8] for value in found.values())


def _select(stage: StageRun) -> tuple[int, int, bool]:
    """Writes the rows to train on: how many, how many truncated ones were dropped, and whether they are tokenized."""
    keep = stage.parameters["truncated"] == "keep"
    dropped = 0
    kinds: set[bool] = set()

    def chosen() -> Iterator[dict[str, Any]]:
        nonlocal dropped
        for number, row in enumerate(rows.read(stage.run.responses), 1):
            tokenized = all(isinstance(row.get(name), list) for name in _TOKENIZED)
            if not tokenized and not isinstance(row.get("conversations"), list):
                raise StageError(
                    "It has neither input_ids with loss_mask nor conversations.",
                    file=str(stage.run.responses),
                    field=f"row {number}",
                    remedy="Run synthesize, or give rows in one of the two forms.",
                )
            if tokenized and len(row["input_ids"]) != len(row["loss_mask"]):
                raise StageError(
                    f"input_ids has {len(row['input_ids'])} entries and loss_mask {len(row['loss_mask'])}.",
                    file=str(stage.run.responses),
                    field=f"row {number}",
                    remedy="Remove the row; synthesize asks for it again.",
                )
            if not keep and (row.get("metadata") or {}).get("finish_reason") == "length":
                dropped += 1
                continue
            kinds.add(tokenized)
            yield {name: row[name] for name in (_TOKENIZED if tokenized else ("conversations",))}

    count = rows.write(_training_rows(stage), chosen())
    if not count:
        raise StageError(
            f"No row is left: {dropped} answers were truncated and dropped.",
            file=str(stage.run.responses),
            remedy="Raise max_tokens in synthesize, or set truncated=keep.",
            klass="no_rows",
        )
    if len(kinds) > 1:
        raise StageError(
            "It mixes tokenized rows with conversations.",
            file=str(stage.run.responses),
            remedy="Keep them in two runs.",
        )
    return count, dropped, kinds == {True}


def _training_rows(stage: StageRun) -> Path:
    return stage.run.data / ".training_rows.jsonl"


def _check(stage: StageRun, folder: Path, expected: int | None) -> dict[str, Any]:
    """Facts of the data set as evidence: rows, tokens, tokens to learn, and that the frequencies are of this set."""
    datasets = importlib.import_module("datasets")
    torch = importlib.import_module("torch")
    found = datasets.load_from_disk(str(folder)).with_format("numpy")
    longest = int(stage.parameters["seq_length"])
    tokens = learned = uneven = 0
    for row in found:
        tokens += len(row["input_ids"])
        learned += int(row["loss_mask"].sum())
        uneven += not 0 < len(row["input_ids"]) == len(row["loss_mask"]) <= longest
    frequencies = torch.load(folder / TOKEN_FREQUENCIES, weights_only=True)
    counted = sum(int(count) for count in frequencies.values())
    stage.evidence("rows", len(found), "rows", len(found) > 0 and (expected is None or len(found) <= expected))
    stage.evidence("tokens", tokens, "tokens", uneven == 0 and tokens > 0)
    stage.evidence("tokens to learn", learned, "tokens", learned > 0)
    stage.evidence("token frequencies", counted, "tokens", counted == learned)
    if expected is not None and len(found) < expected:
        stage.message(f"{expected - len(found)} rows have no token to learn within {longest} tokens and are left out.")
    return {"rows": len(found), "tokens": tokens}


def _put_in_place(stage: StageRun, partial: Path) -> None:
    """The new data set takes its name. An older one keeps what it has, under another name: its states do not fit."""
    target = stage.run.prepared
    if target.exists():
        aside = target.with_name(f"stale_{time.strftime('%Y%m%d-%H%M%S')}_{target.name}")
        target.rename(aside)
        stage.message(f"The older data set is set aside as {aside.name}, with its hidden states.", "warning")
    partial.rename(target)
