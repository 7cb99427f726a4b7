"""What the things in a workspace are, by their names, their neighbours and their headers. Unknown stays unknown.

An artifact is what a person would name: a run, one of its checkpoints, a data set, its hidden states, an exported
draft, a verifier, logs. Nothing is recognised by a single name that anybody could use: a folder ``3`` is a checkpoint
in a run, and ``output_x`` is a run for what lies in it. Layouts: speculators 0.9.0, transformers' trainer, datasets,
our own ``pipeline.plan.layout``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from remote.disk.completeness import read_json
from remote.disk.runs import Run, Runs
from remote.disk.usage import OWN_DIRECTORIES
from remote.protocol.artifacts import Checkpoint

OWN, RUN, CHECKPOINT, DATA, PREPARED, HIDDEN_STATES, RESPONSES, PROMPTS, DRAFT, VERIFIER, LOG, REPORT = (
    "own", "run", "checkpoint", "data", "prepared", "hidden_states", "responses", "prompts", "draft", "verifier", "log",
    "report",
)  # fmt: skip
COMPILE_CACHE, HUB_CACHE, CORE_DUMP, SHARED_MEMORY, DELETED_OPEN, FOLDER, UNKNOWN = (
    "compile_cache", "hub_cache", "core_dump", "shm", "deleted_open", "folder", "unknown",
)  # fmt: skip

REGENERABLE = frozenset({DATA, PREPARED, HIDDEN_STATES})
"""Made by the pipeline from other things that may still be there."""

DEPTH = 3
"""Folders that are nothing themselves are looked into so deep below the workspace."""

_STATE_FILE = re.compile(r"hs_(\d+)\.safetensors")
_EVENTS = re.compile(r"events\.out\.tfevents\..*")
_CORE = re.compile(r"core(?:[.-].*)?|.*\.core")
_LOG_FOLDERS = frozenset({"logs", "log", "wandb", "tensorboard", "trackio", "mlruns", "runs"})
_LOG_FILE = re.compile(r".*\.(?:log|out|err|nohup)|nohup\.out|metrics\.jsonl")
_COMPILE = frozenset({"torch_compile_cache", "torch_aot_compile", "triton", "inductor", "flashinfer"})
_DRAFT_KEYS = frozenset({"speculators_config", "speculators_model_type", "draft_vocab_size", "eagle_config"})
_ELF = b"\x7fELF"
_HEAD_BYTES = 4096


@dataclass(frozen=True)
class Found:
    """One recognised thing.

    :param parent: path of the artifact that it is a part of; empty for one that stands alone.
    :param folder: it is a directory.
    :param run: of a run, its checkpoints and settings; of a checkpoint, the run that it belongs to.
    :param checkpoint: of a checkpoint, what is known about it.
    :param samples: of a data set, files of hidden states or lines of a small text.
    :param locks: ``.lock`` files that lie in it.
    """

    path: str
    kind: str
    parent: str = ""
    folder: bool = True
    detail: str = ""
    movable: bool = True
    run: Optional[Run] = None
    checkpoint: Optional[Checkpoint] = None
    samples: Optional[int] = None
    locks: int = 0


@dataclass(frozen=True)
class _Names:
    """The names in a folder, by what they are."""

    folders: tuple[str, ...]
    files: tuple[str, ...]

    def has(self, *names: str) -> bool:
        return all(name in self.files for name in names)


def recognise(workspace: str, runs: Runs) -> list[Found]:
    """Everything directly in a workspace, with the parts of it that have a name of their own.

    :raises OSError: when the workspace cannot be listed.
    """
    found: list[Found] = []
    names = _listed(workspace)
    for name in names.folders:
        path = os.path.join(workspace, name)
        if name in OWN_DIRECTORIES:
            what = "the trash" if name == ".eagle_trash" else "jobs, manifests and journal"
            found.append(Found(path, OWN, detail=what, movable=False))
        else:
            found.extend(_folder(path, runs, DEPTH))
    found.extend(_file(os.path.join(workspace, name), "") for name in names.files)
    return found


def _folder(path: str, runs: Runs, depth: int) -> Iterator[Found]:
    """The folder and the parts of it that count on their own."""
    try:
        names = _listed(path)
    except OSError as error:
        yield Found(path, UNKNOWN, detail=f"cannot be read: {error.strerror or error}")
        return
    run = runs.read(path)
    if run is not None:
        yield from _run(path, run, names)
        return
    kind, detail, samples = _kind(path, names)
    if kind == DATA or (kind == PREPARED and "hidden_states" in names.folders):
        yield from _data(path, kind, names)
        return
    if kind == UNKNOWN and depth > 1:
        inside = [item for name in names.folders for item in _folder(os.path.join(path, name), runs, depth - 1)]
        if any(item.kind not in (UNKNOWN, FOLDER) for item in inside):
            yield Found(path, FOLDER, detail="holds others")
            yield from inside
            return
    yield Found(path, kind, detail=detail, samples=samples, locks=_locks(names))


def _run(path: str, run: Run, names: _Names) -> Iterator[Found]:
    count = len(run.checkpoints)
    detail = f"{count} checkpoint{'s' if count != 1 else ''}"
    yield Found(path, RUN, detail=detail, run=run)
    for item in run.checkpoints:
        yield Found(item.artifact.path, CHECKPOINT, path, detail=item.artifact.detail, run=run, checkpoint=item)
    for name in names.folders:
        if name in _LOG_FOLDERS:
            yield Found(os.path.join(path, name), LOG, path, detail=_log_detail(os.path.join(path, name)))


def _data(path: str, kind: str, names: _Names) -> Iterator[Found]:
    parts: list[Found] = []
    for name in names.folders:
        child = os.path.join(path, name)
        try:
            below = _listed(child)
        except OSError:
            continue
        part, detail, samples = _kind(child, below)
        if part in (PREPARED, HIDDEN_STATES):
            parts.append(Found(child, part, path, detail=detail, samples=samples, locks=_locks(below)))
            if part == PREPARED and "hidden_states" in below.folders:
                inner = os.path.join(child, "hidden_states")
                states = _listed(inner)
                _, detail, samples = _kind(inner, states)
                parts.append(Found(inner, HIDDEN_STATES, path, detail=detail, samples=samples, locks=_locks(states)))
    parts.extend(_file(os.path.join(path, name), path) for name in names.files if name.endswith(".jsonl"))
    counts = [part.samples for part in parts if part.kind == HIDDEN_STATES and part.samples]
    yield Found(path, kind, detail=_samples(max(counts, default=None)), samples=max(counts, default=None))
    yield from parts


def _kind(path: str, names: _Names) -> tuple[str, str, Optional[int]]:
    """Kind, detail and samples of a folder that is no run."""
    states = sum(1 for name in names.files if _STATE_FILE.fullmatch(name))
    if states:
        return HIDDEN_STATES, _samples(states), states
    if names.has("state.json", "dataset_info.json") and any(name.endswith(".arrow") for name in names.files):
        return PREPARED, "", None
    if _is_data(path, names):
        return DATA, "", None
    if names.has("config.json"):
        return _model(path, names)
    if names.has("report.json") and set(names.files) <= {"report.json", "report.md"}:
        return REPORT, "", None
    if any(name.startswith(("models--", "datasets--")) for name in names.folders):
        return HUB_CACHE, "", None
    if _COMPILE & set(names.folders) or os.path.basename(path) in _COMPILE:
        return COMPILE_CACHE, "", None
    if any(_EVENTS.fullmatch(name) for name in names.files) or _is_wandb(path, names):
        return LOG, _log_detail(path), None
    if names.files and all(_LOG_FILE.fullmatch(name) for name in names.files) and not names.folders:
        return LOG, "", None
    return UNKNOWN, "", None


def _is_data(path: str, names: _Names) -> bool:
    inside = {"prepared", "hidden_states", "captured"} & set(names.folders)
    return bool(inside and any(_is_part(os.path.join(path, name)) for name in inside)) or (
        bool({"prompts.jsonl", "responses.jsonl"} & set(names.files))
    )


def _is_part(path: str) -> bool:
    try:
        names = _listed(path)
    except OSError:
        return False
    return names.has("state.json") or any(_STATE_FILE.fullmatch(name) for name in names.files)


def _model(path: str, names: _Names) -> tuple[str, str, Optional[int]]:
    weights = [name for name in names.files if name.endswith((".safetensors", ".bin", ".safetensors.index.json"))]
    try:
        config = read_json(os.path.join(path, "config.json"))
    except (OSError, ValueError):
        return UNKNOWN, "its config.json cannot be read", None
    if not isinstance(config, dict) or not weights:
        return UNKNOWN, "", None
    architectures = config.get("architectures")
    named = " ".join(map(str, architectures)) if isinstance(architectures, list) else ""
    if _DRAFT_KEYS & set(config) or "eagle" in named.lower() or "eagle" in str(config.get("model_type", "")).lower():
        return DRAFT, named, None
    return (VERIFIER, named, None) if named else (UNKNOWN, "", None)


def _file(path: str, parent: str) -> Found:
    name = os.path.basename(path)
    if _CORE.fullmatch(name) and _head(path).startswith(_ELF):
        return Found(path, CORE_DUMP, parent, folder=False)
    if _LOG_FILE.fullmatch(name):
        return Found(path, LOG, parent, folder=False)
    if name.endswith(".jsonl"):
        head = _head(path)
        if b'"conversations"' in head or b'"messages"' in head or b'"prompt' in head:
            return Found(path, PROMPTS if "prompt" in name or name == "held_out.jsonl" else RESPONSES, parent, False)
    return Found(path, UNKNOWN, parent, folder=False)


def _head(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _HEAD_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _is_wandb(path: str, names: _Names) -> bool:
    return os.path.basename(path) == "wandb" and any(
        name.startswith(("run-", "offline-run-")) for name in names.folders
    )


def _log_detail(path: str) -> str:
    """wandb keeps a file beside each run once it is on the server; what is not there cannot be made again."""
    try:
        names = _listed(path)
    except OSError:
        return ""
    offline = [name for name in names.folders if name.startswith("offline-run-")]
    unsynced = [name for name in offline if not _has_marker(os.path.join(path, name))]
    return f"{len(unsynced)} wandb runs are not synced" if unsynced else ""


def _has_marker(path: str) -> bool:
    try:
        return any(name.endswith(".synced") for name in os.listdir(path))
    except OSError:
        return False


def _samples(count: Optional[int]) -> str:
    return f"{count:,} samples" if count else ""


def _locks(names: _Names) -> int:
    return sum(1 for name in names.files if name.endswith(".lock"))


def _listed(path: str) -> _Names:
    folders: list[str] = []
    others: list[str] = []
    with os.scandir(path) as entries:
        for item in entries:
            if item.is_symlink():
                continue
            (folders if item.is_dir(follow_symlinks=False) else others).append(item.name)
    return _Names(tuple(sorted(folders)), tuple(sorted(others)))
