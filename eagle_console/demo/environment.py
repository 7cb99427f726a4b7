"""Finds the pipeline environment on the user's machine, with which the embedded host's stages are real."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from eagle_console.config import HostProfile

VARIABLE = "EAGLE_CONSOLE_PIPELINE"
VERIFIER = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class PipelineEnvironment:
    """The ML environment's interpreter and the verifier's folder."""

    python: Path
    verifier: Path


def find_pipeline() -> PipelineEnvironment | None:
    """The first complete environment: named by ``EAGLE_CONSOLE_PIPELINE``, beside the sources, in the data directory.

    A variable that is set decides alone: pointing it at an empty folder gives a demo of replays.
    """
    chosen = os.environ.get(VARIABLE)
    folders = [Path(chosen)] if chosen else [_beside_sources(), _data_folder()]
    for folder in folders:
        found = _complete(folder.absolute())
        if found:
            return found
    return None


def demo_profile(home: Path) -> HostProfile:
    """The profile of the embedded host with that home; nothing is made or started."""
    pipeline = find_pipeline()
    return HostProfile(
        name="demo",
        address="demo",
        workspace=str(home / "workspace"),
        verifier=str(pipeline.verifier) if pipeline else None,
        python=str(pipeline.python) if pipeline else None,
    )


def _complete(folder: Path) -> PipelineEnvironment | None:
    python = folder / "ml" / "bin" / "python"
    verifier = folder / VERIFIER
    if os.access(python, os.X_OK) and (verifier / "config.json").is_file():
        return PipelineEnvironment(python, verifier)
    return None


def _beside_sources() -> Path:
    """``.pipeline`` in the checkout that an editable install runs from."""
    return Path(__file__).resolve().parents[2] / ".pipeline"


def _data_folder() -> Path:
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return base / "eagle_console" / "pipeline"
