"""vLLM servers: one that a process becomes (the stage ``serve``), and one that a stage starts, uses and ends."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Optional

from pipeline import cpu
from pipeline.plan.commands import READY_TIMEOUT_SECONDS, Command
from pipeline.plan.environment import Environment
from pipeline.plan.events import SERVER_DIED
from pipeline.processes import Tree
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun

_STAGE_VARIABLES = ("PYTHONPATH", "PYTHONSAFEPATH")
"""Set for the stage so that it finds our packages; vLLM must not see them."""

POLL_SECONDS = 0.5
GRACE_SECONDS = 15.0
TAIL_BYTES = 128 * 1024
TAIL_LINES = 400
"""Of a dead server's log: the engine's reason stands well before the API server's own end."""

_SHARDS = re.compile(r"Loading safetensors checkpoint shards: +\d+% Completed \| (\d+)/(\d+)")


def server_environment(
    command: Command, environment: Environment, directory: str, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the server: what was inherited, without our packages, with the command's own variables.

    :param directory: where a CPU build's metadata is written, below the job's directory.
    :raises OSError: when that cannot be written.
    """
    variables = {name: value for name, value in inherited.items() if name not in _STAGE_VARIABLES}
    if environment.cpu_only:
        variables["PYTHONPATH"] = cpu.write_stub(environment, directory)
    return {**variables, **command.env}


def become(command: Command, variables: Mapping[str, str]) -> NoReturn:
    """Replaces this process by the server, so that the job's main process is vLLM's API server.

    :raises OSError: when the command is not there or cannot be run.
    """
    os.execve(command.argv[0], command.argv, dict(variables))


def free_port() -> int:
    """A port of loopback that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server that a stage has for its own, as a context: ready inside, gone outside.

    Its log is ``server-KIND.log`` in the job's directory. A stop of the stage ends it too.

    :param kind: names the log and the phase, such as ``plain`` or ``render``.
    :raises StageError: on entering, when it dies before it is ready, with the end of its log copied into the stage's.
    """

    def __init__(self, stage: StageRun, command: Command, kind: str) -> None:
        self._stage, self._command, self._kind = stage, command, kind
        self.log = Path(stage.directory) / f"{stage.label.replace(': ', '-')}server-{kind}.log"
        self._base = (command.health_url or "").rpartition("/health")[0]
        self._tree: Optional[Tree] = None
        self._read = 0

    @property
    def base(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self._base

    @property
    def endpoint(self) -> str:
        """The OpenAI-compatible API: ``http://127.0.0.1:PORT/v1``."""
        return f"{self._base}/v1"

    def model(self) -> str:
        """The name under which the model is served.

        :raises StageError: when the server does not say.
        """
        return served_model(self._base)

    def check(self) -> None:
        """To be called while it is used.

        :raises StageError: when the server has died.
        """
        if self._tree is not None and (code := self._tree.code()) is not None:
            self._died(f"The {self._kind} server died in the middle of the work ({_how(code)}).")

    def __enter__(self) -> Server:
        self._stage.phase(f"server {self._kind}", "starts")
        sys.stdout.write(f"{self._command.line}\n")
        sys.stdout.flush()
        variables = server_environment(self._command, self._stage.environment, self._stage.directory, os.environ)
        self.log.unlink(missing_ok=True)
        try:
            self._tree = Tree(self._command.argv, variables, self.log)
        except OSError as error:
            raise StageError(
                f"vLLM could not be started: {error.strerror}.",
                file=self._command.argv[0],
                remedy="Check that the ML environment holds vLLM (stage check).",
            ) from None
        try:
            self._wait()
        except BaseException:
            self._tree.end(GRACE_SECONDS)
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        if self._tree is not None:
            self._tree.end(GRACE_SECONDS)

    def _wait(self) -> None:
        begin = time.monotonic()
        while not answers(self._base):
            self._stage.wait(POLL_SECONDS)
            assert self._tree is not None
            if (code := self._tree.code()) is not None:
                self._died(f"The {self._kind} server ended before it was ready ({_how(code)}).")
            if time.monotonic() - begin > READY_TIMEOUT_SECONDS:
                self._died(f"The {self._kind} server was not ready after {READY_TIMEOUT_SECONDS} s.")
            self._count_shards()
        self._stage.message(f"The {self._kind} server is ready after {time.monotonic() - begin:.0f} s.")

    def _count_shards(self) -> None:
        """The loading of the weights is most of a start; its bar is in the log."""
        with open(self.log, "rb") as file:
            file.seek(self._read)
            text = file.read().decode("utf-8", "replace")
            self._read = file.tell()
        for done, total in _SHARDS.findall(text)[-1:]:
            self._stage.count(int(done), int(total), "shards")

    def _died(self, cause: str) -> NoReturn:
        sys.stdout.write("".join(f"{line}\n" for line in tail(self.log)))
        sys.stdout.flush()
        raise StageError(
            cause,
            file=str(self.log),
            remedy="Its last lines are in this job's log; what is finished is kept, run the stage again.",
            klass=SERVER_DIED,
        )


def answers(base: str) -> bool:
    """Whether the server's health check answers 200."""
    try:
        with urllib.request.urlopen(f"{base}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def served_model(base: str) -> str:
    """The name under which a server serves its model.

    :raises StageError: when it does not say.
    """
    try:
        with urllib.request.urlopen(f"{base}/v1/models", timeout=30) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StageError(
            f"The server does not name its model: {error}.",
            file=f"{base}/v1/models",
            remedy="Check the endpoint: it must be an OpenAI-compatible server that is ready.",
            klass=SERVER_DIED,
        ) from None


def tail(path: Path) -> list[str]:
    """The last lines of a log; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(TAIL_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
