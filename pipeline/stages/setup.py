"""The stage ``setup``: this host's pinned ML environment, made beside the one in use and put in its place once proven.

Runs in the agent's own Python, 3.9 or newer. The folder of an environment never moves, since its scripts hold its path;
what is renamed is the link ``ml``, in one step.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional, TextIO

from pipeline import environments
from pipeline.environments import Proof
from pipeline.plan import made, sets, versions
from pipeline.plan.manifest import write_json
from pipeline.plan.sets import Chosen, PinnedSet, SetError
from pipeline.plan.setup_stage import ENVIRONMENTS, LINK
from pipeline.plan.versions import BLOCKED, Situation
from pipeline.processes import Tree
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun, execute

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0
BASES = ("python3.11", "python3.12", "python3.13")
PROVEN = ".proven"
"""In an environment's folder, once everything in it was imported."""

_PACKAGE = re.compile(r"^(?:Collecting|Requirement already satisfied:|Processing) (\S+?)(?:[=<>!~;\[ (].*)?$")


def run(spec_path: str) -> int:
    """Makes or adopts the environment, and writes which one it is."""
    return execute(spec_path, _work)


def _work(stage: StageRun) -> None:
    workspace = Path(stage.run.workspace)
    with stage.lock(workspace / ENVIRONMENTS):
        given = stage.parameters.get("python")
        if given:
            _settle(stage, _adopted(stage, str(given)), str(given), "adopted")
            return
        chosen = _choose(stage)
        folder = workspace / ENVIRONMENTS / chosen.pinned.folder
        if (folder / PROVEN).exists() and _in_use(workspace, folder):
            stage.message(f"The environment {folder.name} is in use already: the same pins, proven.")
        elif not (folder / PROVEN).exists():
            _make(stage, chosen.pinned, folder)
        found = _prove(stage, str(folder / "bin" / "python"), chosen.pinned)
        (folder / PROVEN).touch()
        _put_in_place(workspace, folder)
        _settle(stage, found, str(workspace / LINK / "bin" / "python"), chosen.pinned.name)


def _choose(stage: StageRun) -> Chosen:
    driver = environments.driver()
    try:
        chosen = sets.choose(driver, stage.parameters["set"])
    except SetError as error:
        raise StageError(f"{error}.", field="parameter set", remedy=error.remedy, klass="driver") from None
    stage.message(f"The set is {chosen.pinned.name}: {chosen.why}. It is {chosen.pinned.note}.")
    return chosen


def _make(stage: StageRun, pinned: PinnedSet, folder: Path) -> None:
    base = stage.parameters.get("base") or next(filter(None, map(shutil.which, BASES)), None)
    if base is None and sys.version_info >= (3, 11):
        base = sys.executable
    if base is None:
        raise StageError(
            "No Python from 3.11 on is on this host's PATH.",
            field="parameter base",
            remedy="Install one, or base=PATH.",
        )
    try:
        steps = sets.commands(pinned, base, str(folder), stage.parameters.get("pip_options"))
    except ValueError as error:
        raise StageError(
            f"{error}.", field="parameter pip_options", remedy="Give options as on a command line."
        ) from None
    if folder.exists():
        stage.message(f"{folder.name} was begun before: what is installed is kept.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(steps):
        stage.phase("create" if number == 0 else f"install {number} of {len(steps) - 1}")
        counter = _Packages(stage, len(pinned.pins) if number == len(steps) - 1 else len(pinned.first))
        _run(stage, step.argv, f"setup-{number}.log", counter.line)


class _Packages:
    """Counts the packages that pip names."""

    def __init__(self, stage: StageRun, total: int) -> None:
        self._stage, self._total = stage, total
        self._seen: set[str] = set()

    def line(self, text: str) -> None:
        """Takes one line of pip's output."""
        match = _PACKAGE.match(text)
        if match and match[1] not in self._seen:
            self._seen.add(match[1])
            self._stage.count(len(self._seen), max(self._total, len(self._seen)), "packages")


def _run(stage: StageRun, argv: Sequence[str], name: str, each: Optional[Callable[[str], None]] = None) -> str:
    """Runs a command to its end, its output in the stage's log as it comes, and returns that.

    :raises StageError: when it cannot be started or fails, with its last words.
    """
    sys.stdout.write(f"{shlex.join(argv[:8])}{' ...' if len(argv) > 8 else ''}\n")
    sys.stdout.flush()
    log = Path(stage.directory) / name
    log.unlink(missing_ok=True)
    try:
        tree = Tree(argv, environments.variables(os.environ), log)
    except OSError as error:
        raise StageError(f"It cannot be started: {error.strerror}.", file=argv[0], klass="environment") from None
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            while (code := tree.code()) is None:
                _forward(file, each)
                stage.wait(POLL_SECONDS)
            _forward(file, each)
    finally:
        tree.end(GRACE_SECONDS)
    text = log.read_text(encoding="utf-8", errors="replace")
    if code != 0:
        raise _failed(argv, code, text, log)
    return text


def _forward(file: TextIO, each: Optional[Callable[[str], None]]) -> None:
    """Copies what a log has gained into the stage's own."""
    piece = file.read()
    sys.stdout.write(piece)
    sys.stdout.flush()
    if each is not None:
        for line in piece.splitlines():
            each(line.strip())


def _failed(argv: Sequence[str], code: int, text: str, log: Path) -> StageError:
    errors = [line.strip() for line in text.splitlines() if line.strip().startswith(("ERROR:", "Error:"))]
    reason = errors[-1] if errors else (text.strip().rpartition("\n")[2] or f"exit code {code}")
    remedy = "See its output; what is installed is kept, run the stage again."
    if "ensurepip" in text:
        remedy = f"Install the package python3-venv for {argv[0]}, or give another base=PATH."
    elif "No space left on device" in text:
        remedy = "Free space, then run the stage again: what is installed is kept."
    elif "No matching distribution" in text or "Temporary failure in name resolution" in text or "Max retries" in text:
        remedy = "Check which package index pip on this host uses (pip config list), or give pip_options."
    return StageError(f"{reason[:400]}.", file=str(log), remedy=remedy, klass="environment")


def _prove(stage: StageRun, python: str, pinned: Optional[PinnedSet]) -> Proof:
    """Imports everything with the environment's own interpreter.

    :raises StageError: when something cannot be imported, or is of another version than its pin.
    """
    stage.phase("prove", ", ".join(sets.MODULES))
    found = environments.proof(_run(stage, environments.probe_argv(python), "setup-proof.log"))
    for name in sets.MODULES:
        known = found.versions.get(name) or found.versions.get(f"{name}-cpu") or "not installed"
        stage.evidence(name, known, ok=name not in found.problems and "python" not in found.problems)
    if found.problems:
        name, why = next(iter(found.problems.items()))
        raise StageError(
            f"{name} cannot be imported: {why}.",
            file=python,
            remedy=f"Remove {Path(python).parents[1]}, run the stage again."
            if pinned
            else "Mend it, or leave python empty.",
            klass="environment",
        )
    stage.evidence("python", found.python)
    if pinned is not None:
        missing = found.missing(pinned)
        stage.evidence("pins", len(pinned.pins) - len(missing), "distributions", not missing)
        if missing:
            raise StageError(
                f"{len(missing)} packages are not as they are pinned: {', '.join(missing[:5])}.",
                file=str(pinned.requirements),
                remedy="Check that no constraints of this host's pip forbid them (pip config list).",
                klass="environment",
            )
        if pinned.cuda is not None:
            stage.evidence("GPUs that torch can use", found.devices, "GPUs", found.devices > 0)
            if not found.devices:
                raise StageError("torch can use no GPU.", file=python, remedy="Check the driver with nvidia-smi.")
    return found


def _adopted(stage: StageRun, python: str) -> Proof:
    if not os.access(python, os.X_OK):
        raise StageError(
            "It is no program that can be run.", file=python, field="parameter python", remedy="Check the path."
        )
    found = _prove(stage, python, None)
    for finding in versions.check(Situation(found.versions, environments.driver())):
        stage.message(f"{finding.reason} ({finding.reference}).", "warning")
        if finding.level == BLOCKED:
            raise StageError(
                f"{finding.reason} ({finding.reference}).", file=python, remedy=f"{finding.remedy}.", klass="versions"
            )
    return found


def _in_use(workspace: Path, folder: Path) -> bool:
    link = workspace / LINK
    return link.is_symlink() and link.resolve() == folder.resolve()


def _put_in_place(workspace: Path, folder: Path) -> None:
    """Points the link to the folder, in one step: who starts meanwhile gets the old environment or the new one.

    :raises StageError: when a folder of somebody else has the link's name.
    """
    link = workspace / LINK
    if link.exists() and not link.is_symlink():
        raise StageError(
            "It is there and is not ours.", file=str(link), remedy="Rename it, or adopt it with python=.../bin/python."
        )
    fresh = workspace / f".{LINK}.new"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(os.path.join(ENVIRONMENTS, folder.name))
    os.replace(fresh, link)


def _settle(stage: StageRun, found: Proof, python: str, kind: str) -> None:
    """Writes which environment the stages of this workspace use where the profile names none."""
    known = {name: found.versions[name] for name in sorted(found.versions)}
    write_json(
        Path(made.record(stage.run.workspace)),
        {"python": python, "set": kind, "versions": known, "wall": time.time(), "job": stage.job},
    )
    stage.evidence("environment", python)
    stage.message(f"The stages use {python} unless the profile says otherwise.")
    stage.finished = True
