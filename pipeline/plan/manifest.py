"""Manifests: what a stage has proven about its finished work, and from what it was made.

``<workspace>/.eagle_console/manifests/RUN/STAGE.json`` is written once the work is complete and checked, atomically. A
stage with a manifest whose parameters, inputs and outputs are still the same is up to date and need not run again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from pipeline.plan.events import Evidence

SCHEMA = 1


@dataclass(frozen=True)
class Manifest:
    """The proof of one finished stage.

    :param parameters: those that shape the result.
    :param inputs: fingerprints by what was read: a path, or a word for what is no file.
    :param outputs: facts by path: counts, bytes, and the ``fingerprint`` by which a change shows.
    :param versions: of the distributions that did the work.
    :param wall: when it was finished, seconds since the epoch.
    :param job: the job's id.
    """

    stage: str
    run: str
    parameters: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    wall: float = 0.0
    job: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True)
class UpToDate:
    """Nothing has changed since the manifest was written."""

    wall: float


@dataclass(frozen=True)
class Changed:
    """The work must be done, or done again. ``why`` is a sentence without its point."""

    why: str


Freshness = Union[UpToDate, Changed]


def freshness(
    manifest: Optional[Manifest],
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    outputs: Optional[Mapping[str, Optional[str]]] = None,
) -> Freshness:
    """Whether finished work still stands.

    :param manifest: None where the stage has never finished.
    :param parameters: of the run that is asked for; those that do not shape the result are left out by the caller.
    :param inputs: present fingerprints of the inputs.
    :param outputs: present fingerprints of the outputs; None where they were not looked at.
    """
    if manifest is None:
        return Changed("it has not been finished yet")
    if manifest.schema != SCHEMA:
        return Changed("another version of the pipeline made it")
    for name in sorted({*manifest.parameters, *parameters}):
        before, now = manifest.parameters.get(name), parameters.get(name)
        if before != now:
            return Changed(f"{name} was {_word(before)} and is {_word(now)}")
    for name in sorted({*manifest.inputs, *inputs}):
        if manifest.inputs.get(name) != inputs.get(name):
            return Changed(f"its input {name} has changed")
    for name, facts in sorted(manifest.outputs.items()):
        if outputs is not None and facts.get("fingerprint") != outputs.get(name):
            return Changed(f"its output {name} is not as it was left")
    broken = next((item for item in manifest.evidence if not item.ok), None)
    if broken is not None:
        return Changed(f"its evidence is not good: {broken.name} is {_word(broken.value)}")
    return UpToDate(manifest.wall)


def read(path: Path) -> Optional[Manifest]:
    """The manifest in a file; None where there is none or it cannot be used, which is the same: nothing is proven."""
    try:
        data = json.loads(path.read_bytes())
        evidence = tuple(Evidence(**item) for item in data.pop("evidence"))
        return Manifest(**data, evidence=evidence)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def write(path: Path, manifest: Manifest) -> None:
    """Replaces the manifest atomically and for good.

    :raises OSError: when it cannot be written; the old one is then untouched.
    """
    write_json(path, dataclasses.asdict(manifest))


def write_json(path: Path, data: Any) -> None:
    """Replaces a JSON file atomically and for good.

    :raises OSError: when it cannot be written; the old one is then untouched.
    :raises ValueError: when the data holds a number that JSON cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, allow_nan=False).encode("ascii") + b"\n"
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _word(value: Any) -> str:
    return "not set" if value is None else str(value)
