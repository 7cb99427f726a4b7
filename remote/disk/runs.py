"""The checkpoints of a training run, from its files alone: speculators' save path, or a Hugging Face trainer's output.

speculators 0.9.0 writes a folder ``N`` for each epoch and continues from the highest number; ``checkpoint_best``,
``epochN_end`` and ``epochN_stepK`` are symbolic links to them; ``interrupted`` is passed over until it gets a number.
Our ``train`` stage renames what stands in the way to ``torn_*`` and ``superseded_*``. A Hugging Face trainer writes
``checkpoint-STEP`` folders and names the best in ``trainer_state.json``.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Optional

from pipeline.plan.training_commands import RECORDS
from remote.disk import settings, validations
from remote.disk.completeness import Entry, Probe, Probes, files, read_json
from remote.disk.retention import FULL, TORN, WRITING, complete, newest_first
from remote.disk.settings import Settings
from remote.disk.sized import sized
from remote.disk.trimming import is_training_state
from remote.disk.validations import Validation, Validations
from remote.protocol.artifacts import LEVEL_TRIM, LEVEL_WHOLE, REVIEW, Artifact, Checkpoint, Verdict

GRACE_SECONDS = 120.0
"""What changed this recently may still be being written."""

BEST_LINK, INTERRUPTED, TRIMMED = "checkpoint_best", "interrupted", "trimmed"

SPECULATORS, HUGGING_FACE = "speculators", "trainer"

_ASIDE = re.compile(r"(?:torn|superseded)_(?:epoch\d+|interrupted)(?:_\d+)?")
_STEP_FOLDER = re.compile(r"checkpoint-(\d+)")
_STATE = {
    SPECULATORS: ("optimizer_state_dict.pt", "scheduler_state_dict.pt", "training_state.json"),
    HUGGING_FACE: ("optimizer.pt", "scheduler.pt", "trainer_state.json"),
}
_WEIGHTS = ("model.safetensors", "adapter_model.safetensors", "pytorch_model.bin")
_INDEX = "model.safetensors.index.json"
_KNOWN = re.compile(
    r"config\.(?:json|py)|.*_config\.json|.*\.safetensors(?:\.index\.json)?|pytorch_model.*|training_.*|trainer_state\.json"
    r"|optimizer.*|scheduler.*|rng_state.*|scaler\.pt|val_metrics\.json|train_command\.txt|speculators\.patch"
    r"|global_step.*|tokenizer.*|special_tokens_map\.json|added_tokens\.json|vocab.*|merges\.txt|chat_template.*|README\.md|latest"
)
"""Names of files that trainers write into a checkpoint."""


@dataclass(frozen=True)
class Run:
    """A run as it lies there.

    :param kind: ``SPECULATORS`` or ``HUGGING_FACE``.
    :param checkpoints: the newest first; their verdicts are not made yet, only what each level would free.
    :param best: path of the checkpoint that the run's own pointer names; empty where it names none that is there.
    :param best_source: what names it.  :param best_problem: what is wrong with the pointer, a sentence.
    :param epochs: how many were asked for.
    """

    path: str
    kind: str
    checkpoints: tuple[Checkpoint, ...]
    settings: Settings
    best: str = ""
    best_source: str = ""
    best_problem: str = ""
    epochs: Optional[int] = None

    @property
    def finished(self) -> bool:
        """The last epoch that was asked for is there."""
        done = [item.epoch for item in self.checkpoints if item.epoch is not None and complete(item)]
        return self.epochs is not None and bool(done) and max(done) + 1 >= self.epochs


def checkpoint_names(names: list[str]) -> tuple[str, list[str]]:
    """The kind of run that folders of these names make, and which of them are checkpoints; an empty kind is none."""
    steps = [name for name in names if _STEP_FOLDER.fullmatch(name)]
    if steps:
        return HUGGING_FACE, steps
    found = [name for name in names if name.isdecimal() or name == INTERRUPTED or _ASIDE.fullmatch(name)]
    return (SPECULATORS if found else ""), found


class Runs:
    """Reads runs. What was found in a file is kept until the file changes.

    :param clock: wall seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._probes = Probes()
        self._validations = Validations()

    def read(self, folder: str) -> Optional[Run]:
        """The run in a directory, as it is now; None where it is none, or cannot be listed."""
        try:
            with os.scandir(folder) as entries:
                listed = [(item.name, item.is_dir(follow_symlinks=False)) for item in entries]
        except OSError:
            return None
        kind, names = checkpoint_names([name for name, is_folder in listed if is_folder])
        if (BEST_LINK, True) in listed:
            kind, names = kind or SPECULATORS, [*names, BEST_LINK]  # older releases copied the best one
        named = {name for name, _ in listed}
        marked = bool({settings.RUN_FILE, settings.COMMAND_FILE, RECORDS, BEST_LINK} & named)
        kind = kind or SPECULATORS
        found = [item for item in (self._checkpoint(folder, name, kind) for name in names) if item is not None]
        if not marked and not any(item.artifact.size.files for item in found):
            return None
        found_settings = settings.read(folder)
        validated = self._validations.of_run(folder) if kind == SPECULATORS else _evaluations(folder, found)
        best, source, problem = _best(folder, kind, found, validated)
        ranked = _ranked([_validated(item, validated) for item in found], best, validated)
        return Run(
            folder, kind, tuple(newest_first(ranked)), found_settings, best, source, problem,
            found_settings.whole("epochs") or found_settings.whole("num_epochs"),
        )  # fmt: skip

    def _checkpoint(self, run: str, name: str, kind: str) -> Optional[Checkpoint]:
        folder = os.path.join(run, name)
        try:
            inside, there = os.listdir(folder), files(folder)
            size = sized(folder)
        except OSError:
            return None
        strangers = sum(1 for inner in inside if not _KNOWN.fullmatch(inner))
        if inside and strangers == len(inside):
            return None  # a number for a name, and nothing of a checkpoint in it
        optimizer, scheduler, _ = _STATE[kind]
        weights = self._weights(folder, there)
        config = _config(folder, there)
        optimizer_probe = self._probes.archive(folder, there.get(optimizer), optimizer)
        sharded = _sharded_optimizer(folder) if optimizer_probe.missing else False
        scheduler_probe = self._probes.archive(folder, there.get(scheduler), scheduler)
        state = _read(os.path.join(folder, _STATE[kind][2]))
        servable = weights.whole and config.whole
        continues = (optimizer_probe.whole or sharded) and (scheduler_probe.whole or scheduler_probe.missing)
        wrong = [weights, config, *(probe for probe in (optimizer_probe, scheduler_probe) if not probe.missing)]
        problem = next((probe.problem for probe in wrong if probe.problem), "")
        modified = max((entry.modified for entry in there.values()), default=None)
        recent = modified is not None and self._clock() - modified < GRACE_SECONDS
        epoch, step = _place(name, kind, state)
        trims = sum(entry.allocated for entry in there.values() if is_training_state(entry.name))
        reclaim = {LEVEL_WHOLE: size.exclusive, **({LEVEL_TRIM: trims} if trims and servable else {})}
        made = max((there[file].modified for file in (*_WEIGHTS, _INDEX) if file in there), default=modified)
        return Checkpoint(
            name=name,
            artifact=Artifact(
                folder, "checkpoint", size, Verdict(REVIEW, reclaim=reclaim), run, made, detail=_detail(name)
            ),
            state=_state(name, problem, recent, optimizer_probe.missing and not sharded),
            epoch=epoch,
            step=step,
            resumable=servable and continues and _resumed(name, kind, there, state),
            servable=servable,
            holes=weights.holes,
            strangers=strangers,
            problem=problem,
        )  # fmt: skip

    def _weights(self, folder: str, there: dict[str, Entry]) -> Probe:
        if _INDEX in there:
            return self._probes.shards(folder, there, _INDEX)
        for name in _WEIGHTS:
            if name in there:
                look = self._probes.weights if name.endswith(".safetensors") else self._probes.archive
                return look(folder, there[name], name)
        return Probe("model.safetensors is missing", missing=True)


def _state(name: str, problem: str, recent: bool, trimmed: bool) -> str:
    if problem:
        return WRITING if recent else TORN
    if name == INTERRUPTED:
        return INTERRUPTED
    return TRIMMED if trimmed else FULL


def _detail(name: str) -> str:
    return "set aside by the train stage" if _ASIDE.fullmatch(name) else ""


def _resumed(name: str, kind: str, there: dict[str, Entry], state: Any) -> bool:
    """Whether a trainer would take it: what was set aside is not, and a cut place in the run stops it."""
    marker = _STATE[kind][2]
    return not _ASIDE.fullmatch(name) and name != BEST_LINK and (marker not in there or isinstance(state, dict))


def _place(name: str, kind: str, state: Any) -> tuple[Optional[int], Optional[int]]:
    """Epoch, counted from 0, and step."""
    if kind == HUGGING_FACE:
        match = _STEP_FOLDER.fullmatch(name)
        return None, int(match[1]) if match else None
    recorded = state if isinstance(state, dict) else {}
    epoch, step = _whole(recorded.get("epoch")), _whole(recorded.get("global_step"))
    return (int(name) if name.isdecimal() and len(name) < 10 else epoch), step


def _config(folder: str, there: dict[str, Entry]) -> Probe:
    name = "config.json" if "config.json" in there or "adapter_config.json" not in there else "adapter_config.json"
    if name not in there:
        return Probe(f"{name} is missing", missing=True)
    return Probe() if isinstance(_read(os.path.join(folder, name)), dict) else Probe(f"{name} cannot be read")


def _sharded_optimizer(folder: str) -> bool:
    """State that several ranks wrote: torch writes ``.metadata`` last; DeepSpeed has a folder."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith(("optimizer_", "global_step"))]
    except OSError:
        return False
    return any(
        name.startswith("global_step") or os.path.isfile(os.path.join(folder, name, ".metadata")) for name in names
    )


def _best(run: str, kind: str, found: list[Checkpoint], validated: dict[int, Validation]) -> tuple[str, str, str]:
    """Path of the best checkpoint by the run's own word, what says so, and what is wrong with that word."""
    pointer = os.path.join(run, BEST_LINK)
    if kind == HUGGING_FACE:
        return _trainers_best(found)
    if os.path.lexists(pointer):
        identity = _identity(pointer)
        for item in found:
            if identity is not None and _identity(item.artifact.path) == identity:
                return item.artifact.path, pointer, ""
        target = os.readlink(pointer) if os.path.islink(pointer) else ""
        return "", pointer, f"{BEST_LINK} points to {target}, which is not there: the best of the run is not known."
    predicted = {epoch: item.predicted for epoch, item in validated.items() if item.predicted is not None}
    ranked = [item for item in found if item.epoch in predicted and item.servable and item.name.isdecimal()]
    if not ranked:
        return "", "", ""
    top = max(ranked, key=lambda item: (predicted[item.epoch or 0], item.epoch or 0))
    return top.artifact.path, os.path.join(run, RECORDS), ""


def _trainers_best(found: list[Checkpoint]) -> tuple[str, str, str]:
    states = [(item, _read(os.path.join(item.artifact.path, "trainer_state.json"))) for item in newest_first(found)]
    item, state = next(((item, state) for item, state in states if isinstance(state, dict)), (None, None))
    named = state.get("best_model_checkpoint") if state else None
    if item is None or not isinstance(named, str):
        return "", "", ""
    source = os.path.join(item.artifact.path, "trainer_state.json")
    identity = _identity(named)
    by_inode = next((one for one in found if identity and _identity(one.artifact.path) == identity), None)
    if by_inode is not None:
        return by_inode.artifact.path, source, ""
    # The run was moved, or the path is relative to a directory that we do not know: the same name in this run is meant.
    by_name = next((one for one in found if one.name == os.path.basename(named.rstrip("/"))), None)
    problem = f"trainer_state.json names {named} as the best, which is not there"
    if by_name is None:
        return "", source, f"{problem}: the best of the run is not known."
    return by_name.artifact.path, source, f"{problem}; {by_name.name} of this run is taken for it."


def _validated(item: Checkpoint, validated: dict[int, Validation]) -> Checkpoint:
    own = validations.of_checkpoint(item.artifact.path)
    key = item.epoch if item.epoch is not None else item.step
    recorded = validated.get(key) if key is not None and item.name != INTERRUPTED else None
    sources = [source for source in (own, recorded) if source is not None]
    return replace(
        item,
        validation_loss=next((source.loss for source in sources if source.loss is not None), None),
        predicted_acceptance=next((source.predicted for source in sources if source.predicted is not None), None),
    )


def _ranked(found: list[Checkpoint], best: str, validated: dict[int, Validation]) -> list[Checkpoint]:
    """With the newest, the best, and what may be the best although nothing says so yet."""
    whole = [item for item in newest_first(found) if complete(item)]
    newest = whole[0].artifact.path if whole else ""
    predicted = [item for item in whole if item.predicted_acceptance is not None]
    top = max(predicted, key=lambda item: item.predicted_acceptance or 0.0).artifact.path if predicted else ""
    ranked = []
    for item in found:
        path = item.artifact.path
        possibly = ""
        if path == newest and path != best and item.validation_loss is None and item.epoch not in validated:
            possibly = "it is the newest, and no result of its validation is recorded"
        elif path == top and path != best:
            possibly = f"its predicted acceptance {item.predicted_acceptance:.2f} is the highest of the run"
        ranked.append(replace(item, best=path == best, newest=path == newest, possibly_best=possibly))
    return ranked


def _evaluations(run: str, found: list[Checkpoint]) -> dict[int, Validation]:
    """The evaluation loss by step, from the newest ``trainer_state.json``."""
    for item in newest_first(found):
        state = _read(os.path.join(item.artifact.path, "trainer_state.json"))
        if isinstance(state, dict) and isinstance(state.get("log_history"), list):
            records = [record for record in state["log_history"] if isinstance(record, dict)]
            return {
                step: Validation(validations.number(record["eval_loss"]))
                for record in records
                if (step := _whole(record.get("step"))) is not None and "eval_loss" in record
            }
    return {}


def _identity(path: str) -> Optional[tuple[int, int]]:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _read(path: str) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


def _whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
