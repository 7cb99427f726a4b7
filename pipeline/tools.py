"""speculators' own commands as children of a stage: watched, stopped with it, read for the reason when they fail."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from pipeline.processes import Tree
from pipeline.stages.errors import StageError, Stopped
from pipeline.stages.runtime import StageRun
from pipeline.vllm_server import tail

POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0

_OURS = ("PYTHONPATH", "PYTHONSAFEPATH")
_REASON = re.compile(r"^(?:\S+ - .* - ERROR - )?[\w.]*(?:Error|Exception|Invalid\w*)\b.*$")
_FULL = re.compile(r"\b(?:No space left on device|Disk quota exceeded)\b")


def speculators(
    stage: StageRun, arguments: Sequence[str], each: Callable[[], None], program: Optional[Sequence[str]] = None
) -> None:
    """Runs ``speculators ARGUMENTS`` to its end.

    Its output goes into the stage's log as it comes; the data sets that it caches stay in the job's directory and go.

    :param each: called a few times a second while it runs: to count, to look after the server; what it raises ends the
        command.
    :param program: what runs the arguments; speculators' own script unless given.
    :raises StageError: when it ends with another code than 0, with the reason from its output.
    :raises Stopped: when the stage was asked to stop; the command was asked first.
    """
    name = arguments[0]
    argv = [*(program or (stage.environment.script("speculators"),)), *arguments]
    sys.stdout.write(f"{shlex.join(argv)}\n")
    sys.stdout.flush()
    cache = Path(stage.directory) / "datasets_cache"
    log = Path(stage.directory) / f"{name}.log"
    log.unlink(missing_ok=True)
    env = {key: value for key, value in os.environ.items() if key not in _OURS}
    env.update({"COLUMNS": "400", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "HF_DATASETS_CACHE": str(cache)})
    try:
        code = _run(stage, argv, env, log, each)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    stage.check_stop()
    if code != 0:
        said = [line.strip() for line in reversed(tail(log))]
        full = next((line for line in said if _FULL.search(line)), "")  # datasets raises an error of its own over it
        reason = full or next((line for line in said if _REASON.match(line)), "")
        raise StageError(
            f"speculators {name} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
            + (f": {reason[:300]}" if reason else "."),
            file=str(log),
            remedy="Free space, then run the stage again."
            if full
            else "See its output in the log; then run the stage again.",
            klass="disk_full" if full else "tool",
        )


def _run(stage: StageRun, argv: Sequence[str], env: dict[str, str], log: Path, each: Callable[[], None]) -> int:
    try:
        tree = Tree(argv, env, log, cwd=stage.directory)
    except OSError as error:
        raise StageError(
            f"It cannot be started: {error.strerror}.",
            file=argv[0],
            remedy="Install speculators==0.9.0 into the ML environment.",
            klass="tool",
        ) from None
    shown = _Forward(log)
    code: Optional[int] = None
    try:
        while (code := tree.code()) is None:
            stage.wait(POLL_SECONDS)
            shown.forward()
            each()
    except Stopped:
        pass
    finally:
        tree.end(GRACE_SECONDS)
        shown.forward()
    if code == 0:
        each()
    return -signal.SIGTERM if code is None else code


class _Forward:
    """Copies what a log gains into the stage's own output."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0

    def forward(self) -> None:
        with open(self._log, "rb") as file:
            file.seek(self._offset)
            piece = file.read()
        self._offset += len(piece)
        sys.stdout.write(piece.decode("utf-8", "replace"))
        sys.stdout.flush()
