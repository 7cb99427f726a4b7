"""The stage ``prompts``: a prompt set from a preset or a local file."""

from __future__ import annotations

import importlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Union

from pipeline import rows
from pipeline.plan.fingerprint import of_values
from pipeline.plan.prompts import (
    PRESETS,
    SPLITS,
    BrokenLine,
    Prompt,
    RowError,
    parse_lines,
    parse_row,
    select,
    summary,
)
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun, execute

DRAWN_FROM = 4
"""Of a preset so many times the wanted prompts are read: some are duplicates, and a draw needs a choice."""

SHUFFLE_BUFFER = 10_000
HUB_VARIABLE = "HF_ENDPOINT"
_HUB_SECONDS = "20"

Found = Union[Prompt, BrokenLine]


def run(spec_path: str) -> int:
    """Writes ``prompts.jsonl`` and ``held_out.jsonl``."""
    return execute(spec_path, _work)


def _work(stage: StageRun) -> None:
    source = str(stage.parameters["source"])
    with stage.lock(stage.run.data):
        if source in PRESETS:
            inputs = {"preset": of_values(source, os.environ.get(HUB_VARIABLE))}
        elif source.startswith("/") and source.endswith((".json", ".jsonl")):
            inputs = stage.input_of(Path(source), maker="", without=())
        else:
            raise StageError(
                f"{source!r} is neither a preset nor the path of a .json or .jsonl file.",
                field="parameter source",
                remedy=f"Presets: {', '.join(PRESETS)}.",
            )
        if stage.fresh(inputs):
            return
        stage.phase("read", source)
        prompts = _sound(stage, source, _from_preset(stage, source) if source in PRESETS else _from_file(source))
        _choose(stage, source, prompts, inputs)


def _choose(stage: StageRun, source: str, prompts: list[Prompt], inputs: dict[str, str]) -> None:
    stage.phase("draw")
    wanted, aside = int(stage.parameters["samples"]), int(stage.parameters["held_out"])
    chosen = select(prompts, wanted, aside, int(stage.parameters["seed"]))
    if not chosen.prompts:
        raise StageError(
            f"It has {len(chosen.held_out)} prompts, and all of them are held out.",
            file=source,
            field="parameter held_out",
            remedy=f"Set held_out below {len(chosen.held_out)}.",
            klass="no_prompts",
        )
    if len(chosen.prompts) < wanted:
        stage.message(
            f"{source} has {len(chosen.prompts):,} prompts to train on, not {wanted:,}"
            f" ({len(chosen.held_out)} are held out).",
            "warning",
        )
    stage.phase("write")
    written = rows.write(stage.run.prompts, (prompt.row() for prompt in chosen.prompts))
    held = rows.write(stage.run.held_out, (prompt.row() for prompt in chosen.held_out))
    ids = {str(row["id"]) for path in (stage.run.prompts, stage.run.held_out) for row in rows.read(path)}
    stage.evidence("prompts", written, "prompts", 0 < written <= wanted)
    stage.evidence("held out", held, "prompts")
    stage.evidence("distinct", len(ids), "prompts", len(ids) == written + held)
    stage.evidence("duplicates left out", chosen.duplicates, "prompts")
    stage.commit(inputs, {stage.run.prompts: {"rows": written}, stage.run.held_out: {"rows": held}})


def _sound(stage: StageRun, source: str, found: Iterable[Found]) -> list[Prompt]:
    """The prompts, when broken lines may be passed over; else an error with their numbers."""
    prompts: list[Prompt] = []
    broken: list[BrokenLine] = []
    for item in found:
        if isinstance(item, Prompt):
            prompts.append(item)
            stage.count(len(prompts), unit="prompts")
        else:
            broken.append(item)
        stage.check_stop()
    if broken and stage.parameters["broken_lines"] == "refuse":
        raise StageError(
            f"{len(broken)} of its lines hold no prompt.",
            file=source,
            field=summary(broken),
            remedy="Mend them, or use the rest with broken_lines=skip.",
            klass="broken_lines",
        )
    if broken:
        stage.message(f"{source}: {len(broken)} lines hold no prompt and are left out: {summary(broken)}", "warning")
    if not prompts:
        raise StageError(
            "It holds no prompt.",
            file=source,
            remedy="Give a file with a prompt a line, or a preset.",
            klass="no_prompts",
        )
    return prompts


def _from_file(path: str) -> Iterator[Found]:
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.read(4096).lstrip()
        file.seek(0)
        if path.endswith(".jsonl") or not first.startswith("["):
            yield from parse_lines(file)
            return
        try:
            items = json.load(file)
        except (ValueError, RecursionError) as error:
            raise StageError(
                f"It is not JSON: {error}.", file=path, remedy="Mend it, or give one row a line (.jsonl)."
            ) from None
    for number, item in enumerate(items, 1):
        try:
            yield parse_row(item)
        except RowError as error:
            yield BrokenLine(number, str(error))


def _from_preset(stage: StageRun, preset: str) -> Iterator[Found]:
    """Rows of a data set on the hub, streamed; rows without a prompt are passed over, as presets have some."""
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", _HUB_SECONDS)
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", _HUB_SECONDS)
    name = PRESETS[preset]
    wanted = DRAWN_FROM * (int(stage.parameters["samples"]) + int(stage.parameters["held_out"]))
    try:
        datasets = importlib.import_module("datasets")
        stream = datasets.load_dataset(name, split=SPLITS.get(preset, "train"), streaming=True)
        stream = stream.shuffle(seed=int(stage.parameters["seed"]), buffer_size=SHUFFLE_BUFFER)
        for row in itertools.islice(stream, wanted):
            try:
                yield parse_row(row)
            except RowError:
                continue
    except ImportError as error:
        raise StageError(f"{error}.", remedy="Install datasets into the ML environment.", klass="environment") from None
    except StageError:
        raise
    except Exception as error:
        hub = os.environ.get(HUB_VARIABLE, "https://huggingface.co")
        raise StageError(
            f"The preset cannot be read from {hub}: {type(error).__name__}: {str(error)[:300]}",
            file=f"{hub}/datasets/{name}",
            field="parameter source",
            remedy=f"Check the host's way to the hub ({HUB_VARIABLE}), or give source=/path/to/prompts.jsonl.",
            klass="hub",
        ) from None
