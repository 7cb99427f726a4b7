"""How far a run has come, counted from its manifests and folders without opening a large file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Optional

from pipeline.plan import manifest
from pipeline.plan.layout import Run
from pipeline.plan.state import RunState

_SAMPLE = 200
"""Files whose sizes are looked at; those of the others are taken to be like them."""

_VOCABULARY = re.compile(r"d2t-(\d+)\.npy")


def read(run: Run) -> RunState:
    """The state of a run. Never raises: what cannot be read is not there."""
    states_files, states_bytes = _files(run.hidden_states, "hs_")
    names = _names(run.prepared)
    sizes = sorted(int(match[1]) for match in map(_VOCABULARY.fullmatch, names) if match)
    prepared = any(name.endswith(".arrow") for name in names)
    return RunState(
        prompts=_proven(run, "prompts", "prompts"),
        answers=_rows(run, "synthesize", run.responses),
        answer_tokens=_proven(run, "synthesize", "tokens"),
        rows=_proven(run, "prepare", "rows") if prepared else None,
        tokens=_proven(run, "prepare", "tokens") if prepared else None,
        states_files=states_files,
        states_bytes=states_bytes,
        captured_bytes=_files(run.captured, "")[1],
        vocabularies=tuple(sizes),
        checkpoints=sum(1 for name in _names(run.output) if name.isdigit()),
    )


def _proven(run: Run, stage: str, name: str) -> Optional[int]:
    known = manifest.read(run.manifest(stage))
    values = [item.value for item in known.evidence if item.name == name] if known else []
    return values[0] if values and isinstance(values[0], int) and not isinstance(values[0], bool) else None


def _rows(run: Run, stage: str, path: Path) -> Optional[int]:
    known = manifest.read(run.manifest(stage))
    rows = known.outputs.get(str(path), {}).get("rows") if known else None
    return rows if isinstance(rows, int) else None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _files(folder: Path, prefix: str) -> tuple[int, int]:
    """How many files of a prefix there are, and their bytes, as far as a sample tells."""
    count = sampled = size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(prefix) or not entry.name.endswith(".safetensors"):
                    continue
                count += 1
                if sampled < _SAMPLE:
                    size += entry.stat().st_size
                    sampled += 1
    except OSError:
        pass
    return count, size * count // sampled if sampled else 0
