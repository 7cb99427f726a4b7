"""Starting a runner that outlives the agent, its connection and everything above it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remote.jobs import records

_OURS = "EAGLE_CONSOLE_"
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Bundle:
    """The code that a runner and a stage are started from.

    :param library: the folder that holds the packages ``remote`` and ``pipeline``.
    :param command: argv of the runner, before the job directory.
    """

    directory: str
    library: str
    command: tuple[str, ...]
    variables: Mapping[str, str]

    @classmethod
    def at(cls, directory: str) -> Bundle:
        """An unpacked bundle, or a checkout: the folder that holds the packages themselves."""
        script = os.path.join(directory, "run_job.py")
        if os.path.isfile(script):
            return cls(directory, os.path.join(directory, "lib"), (sys.executable, "-I", "-X", "utf8", script), {})
        command = (sys.executable, "-m", "remote.jobs.runner")
        return cls(directory, directory, command, {"PYTHONPATH": directory})


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment that jobs inherit: the agent's, without our own marks and its Python's settings.

    LD_LIBRARY_PATH stays (a GPU host may need it for its driver) and so does a token such as HF_TOKEN, which reaches a
    stage by inheritance only and is written nowhere.
    """
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(_OURS) and name not in ("PYTHONPATH", "PYTHONHOME")
    }


def start_runner(bundle: Bundle, directory: str, reported: Callable[[], Any], seconds: float) -> str:
    """Starts the runner of a job directory in a session of its own, with nothing of ours open.

    Its stdout goes nowhere; its stderr, which only an error of its own fills, into the job directory.

    :param reported: true once the runner has reported.
    :param seconds: how long to wait for that.
    :return: why it could not be started; empty when it reported, or still may.
    """
    environment = {**clean_environment(os.environ), **bundle.variables}
    try:
        log = os.open(
            os.path.join(directory, records.RUNNER_LOG),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
        )
        try:
            process = subprocess.Popen(
                [*bundle.command, directory],
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
    except OSError as error:
        return f"{bundle.command[0]}: {error.strerror}"
    deadline = time.monotonic() + seconds
    while not reported():
        code = process.poll()
        if code is not None and not reported():
            return f"it ended with code {code}: {_last_line(os.path.join(directory, records.RUNNER_LOG))}"
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_SECONDS)
    # Should it end while we live, it must not stay a zombie; should we end first, init reaps it.
    threading.Thread(target=process.wait, name="runner-reaper", daemon=True).start()
    return ""


def _last_line(path: str) -> str:
    try:
        lines = (records.read_file(path, records.MAX_RECORD_BYTES) or b"").decode("utf-8", "replace").splitlines()
    except records.RecordError:
        lines = []
    return lines[-1][:500] if lines else "it said nothing"
