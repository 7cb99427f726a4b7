"""What every stage with data runs in: its parameters and paths, its events, its lock, its stop, its proof.

A stage is ``execute(spec_path, work)``. ``work`` raises ``StageError`` when it cannot go on, and ends with
``StageRun.commit``: exit code 0 is given for proven work only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Optional

from pipeline.plan import events, manifest
from pipeline.plan.catalog import stage_named
from pipeline.plan.environment import Environment, inspect
from pipeline.plan.events import Count, EpochSaved, Event, Evidence, Failed, Message, Metrics, Phase
from pipeline.plan.fingerprint import ABSENT, fingerprint
from pipeline.plan.layout import Run
from pipeline.plan.manifest import Changed, Freshness, Manifest, freshness
from pipeline.stages.errors import StageError, Stopped, Told

EXIT_FAILED = 1
EXIT_STOPPED = 128 + signal.SIGTERM
OPEN_FILES = 65536
COUNT_SECONDS = 0.5
"""Counts that come faster are left out, but for the last of a phase."""

BALLAST_BYTES = 64 * 1024
"""Written by every stage into the job's directory and removed when it fails: so much room there is for the reason."""

Inputs = Mapping[str, str]


_SLICE_SECONDS = 0.05


class _StopFlag:
    """Set by a signal handler and waited for by the code that it interrupts.

    Not a ``threading.Event``: its ``set`` would wait for ever for the lock that an interrupted ``wait`` holds.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        """Whether it was set before so many seconds were over."""
        deadline = time.monotonic() + seconds
        while not self._set and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_SECONDS))
        return self._set


class StageRun:
    """One run of a stage.

    :ivar parameters: resolved, by name.
    :ivar run: the paths of the run that the parameter ``run`` names.
    :ivar directory: the job's directory.
    :ivar environment: the ML environment that this process runs in.
    """

    def __init__(self, spec_path: str) -> None:
        with open(spec_path) as file:
            spec = json.load(file)
        self.directory = os.path.dirname(os.path.abspath(spec_path))
        self.job: str = spec.get("id", "")
        self.stage = stage_named(spec["stage"])
        self.parameters: dict[str, Any] = spec["parameters"]
        self.run = Run(spec["cwd"], self.parameters.get("run") or "1k")
        self.environment: Environment = inspect(sys.executable)
        self.finished = False
        self.label = f"{self.stage.name}: " if spec.get("part_of") else ""  # a recipe's parts share one progress file
        self._evidence: list[Evidence] = []
        self._progress = Path(self.directory) / events.FILE
        self._ballast = Path(self.directory) / f".ballast-{self.stage.name}"
        self._stop = _StopFlag()
        self._callbacks: list[Callable[[], None]] = []
        self._counted = float("-inf")
        self._held_count: Optional[Count] = None
        self._write_lock = threading.Lock()
        self._write_failed = False

    # Events

    def phase(self, name: str, detail: str = "") -> None:
        """The next part of the work begins."""
        self._flush_count()
        self._counted = float("-inf")
        _say(f"{name}{': ' + detail if detail else ''}")
        self._append(Phase(self.label + name, detail))

    def count(self, done: float, total: Optional[float] = None, unit: str = "", rate: Optional[float] = None) -> None:
        """How far the phase is; may be called as often as one likes."""
        now = time.monotonic()
        self._held_count = Count(done, total, unit, rate)
        if now - self._counted >= COUNT_SECONDS or done == total:
            self._counted = now
            self._flush_count()

    def metrics(self, step: Optional[int], values: Mapping[str, Optional[float]]) -> None:
        """Figures of one step."""
        self._append(Metrics(step, dict(values)))

    def message(self, text: str, level: str = events.INFO) -> None:
        """A sentence for people, in the log and in the job's events."""
        _say(text)
        self._append(Message(level, text))

    def epoch_saved(self, saved: EpochSaved) -> None:
        """A checkpoint is complete: whoever looks after the disk may now act."""
        self._append(saved)

    def evidence(self, name: str, value: Any, unit: str = "", ok: bool = True) -> None:
        """A fact that was checked on the finished work; it goes into the manifest."""
        item = Evidence(name, value, unit, ok)
        self._evidence = [*(known for known in self._evidence if known.name != name), item]
        _say(f"{'proven' if ok else 'NOT AS IT MUST BE'}: {name} {value}{' ' + unit if unit else ''}")
        self._append(dataclasses.replace(item, name=self.label + name))

    # Stopping

    @property
    def stopping(self) -> bool:
        """SIGTERM has come: finish what is in hand, keep it, and call ``check_stop``."""
        return self._stop.is_set()

    def check_stop(self) -> None:
        """To be called between pieces of work.

        :raises Stopped: when the stage was asked to stop.
        """
        if self._stop.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Sleeps so long at most.

        :raises Stopped: at once when the stage is asked to stop.
        """
        if self._stop.wait(seconds):
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Sleeps so long at most; a stop ends it. For whoever looks after a child that saves its work."""
        if self._stop.is_set():
            time.sleep(seconds)
        else:
            self._stop.wait(seconds)

    @contextlib.contextmanager
    def on_stop(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within it a stop calls ``callback`` in the main thread: to pass the signal on to a child, for instance."""
        self._callbacks.append(callback)
        try:
            if self._stop.is_set():
                callback()
            yield
        finally:
            self._callbacks.remove(callback)

    # Locks

    @contextlib.contextmanager
    def lock(self, artifact: Path) -> Iterator[None]:
        """Keeps every other stage from writing the artifact (a folder of the run) while this one does.

        :raises StageError: naming the job that holds it.
        """
        self.run.locks.mkdir(parents=True, exist_ok=True)
        path = self.run.locks / f"{artifact.name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another stage"
                raise StageError(
                    f"{artifact.name} is being written by {holder}.",
                    file=str(artifact),
                    remedy="Wait until it has ended, or stop it.",
                    klass="locked",
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{self.job or 'process ' + str(os.getpid())}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    # Proof

    def fresh(self, inputs: Inputs) -> bool:
        """Whether an earlier run of the stage has done exactly this work; if so the stage is finished, and says why.

        :param inputs: fingerprints by name, see ``input_of``.
        """
        verdict = self.freshness(inputs)
        if isinstance(verdict, Changed):
            self.message(f"{self.stage.name} {self.run.name} runs: {verdict.why}.")
            return False
        known = manifest.read(self.run.manifest(self.stage.name))
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(verdict.wall))
        self.message(
            f"{self.stage.name} {self.run.name} is up to date since {when}: same parameters, inputs and outputs."
        )
        for item in known.evidence if known else ():
            self._append(dataclasses.replace(item, name=self.label + item.name))
        self.finished = True
        return True

    def freshness(self, inputs: Inputs) -> Freshness:
        """Whether what the manifest proves still stands."""
        known = manifest.read(self.run.manifest(self.stage.name))
        outputs = {name: _present(name, facts) for name, facts in known.outputs.items()} if known else {}
        return freshness(known, self.shaping_parameters(), inputs, outputs)

    def begin(self, settings: Mapping[str, Any], artifacts: Sequence[Path]) -> None:
        """To be called before work that goes on with what an earlier run has left.

        What was made with other settings is set aside, never deleted: it is renamed, beside where it was.

        :param settings: what every single piece of the work depends on.
        """
        record = self.run.manifest(f"{self.stage.name}.begun")
        known = manifest.read(record)
        verdict = freshness(known, settings, {})
        if isinstance(verdict, Changed):
            for path in artifacts:
                if path.exists():
                    aside = path.with_name(f"stale_{time.strftime('%Y%m%d-%H%M%S')}_{path.name}")
                    path.rename(aside)
                    why = verdict.why if known is not None else "it is not known what made it"
                    self.message(f"{path.name} is set aside as {aside.name}: {why}.", events.WARNING)
            manifest.write(
                record, Manifest(self.stage.name, self.run.name, dict(settings), wall=time.time(), job=self.job)
            )

    def shaping_parameters(self) -> dict[str, Any]:
        """The parameters that shape the result."""
        return {
            parameter.name: self.parameters.get(parameter.name)
            for parameter in self.stage.parameters
            if parameter.shapes_result and parameter.name != "run"
        }

    def commit(self, inputs: Inputs, outputs: Mapping[Path, Mapping[str, Any]], without: Sequence[str] = ()) -> None:
        """Writes the manifest: the work is complete.

        :param outputs: facts by path; the fingerprint is added here.
        :param without: names of folders in an output that are not this stage's.
        :raises StageError: when a piece of evidence is not as it must be, or there is none.
        """
        broken = [item.name for item in self._evidence if not item.ok]
        if broken or not self._evidence:
            raise StageError(
                f"The work is not proven: {', '.join(broken) or 'nothing was checked'}.",
                remedy="See the log; run the stage again after the cause is removed.",
                klass="unproven",
            )
        facts = {
            str(path): {**known, "without": list(without), "fingerprint": fingerprint(str(path), without)}
            for path, known in outputs.items()
        }
        manifest.write(
            self.run.manifest(self.stage.name),
            Manifest(
                stage=self.stage.name,
                run=self.run.name,
                parameters=self.shaping_parameters(),
                inputs=dict(inputs),
                outputs=facts,
                evidence=tuple(self._evidence),
                versions=dict(self.environment.versions),
                wall=time.time(),
                job=self.job,
            ),
        )
        self.finished = True

    def input_of(self, path: Path, maker: str, without: Sequence[str] = ()) -> dict[str, str]:
        """The fingerprint of an input that must be there, to be merged into the stage's inputs.

        :param maker: the stage that makes it, for the remedy.
        :raises StageError: when there is no such file or folder.
        """
        try:
            found = fingerprint(str(path), without)
        except OSError as error:
            raise StageError(
                f"It cannot be read: {error.strerror}.", file=str(path), remedy="Check its owner and mode."
            ) from None
        if found == ABSENT:
            raise StageError(
                "It is not there.", file=str(path), remedy=f"Run the stage {maker} first.", klass="missing_input"
            )
        return {str(path): found}

    # The inside

    def __enter__(self) -> StageRun:
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._terminate)
        _raise_open_files()
        with contextlib.suppress(OSError):
            self._ballast.write_bytes(bytes(BALLAST_BYTES))
        return self

    def __exit__(self, *unused: object) -> None:
        self._flush_count()
        self._drop_ballast()

    def _drop_ballast(self) -> None:
        with contextlib.suppress(OSError):
            self._ballast.unlink()

    def _terminate(self, number: int, frame: Optional[FrameType]) -> None:
        self._stop.set()
        for callback in list(self._callbacks):
            callback()

    def _flush_count(self) -> None:
        held, self._held_count = self._held_count, None
        if held is not None:
            self._append(held)

    def _append(self, event: Event) -> None:
        """Appends to the progress file; a full disk must not end a stage that can still work."""
        line = events.encode(event, time.time())
        with self._write_lock:
            try:
                with open(self._progress, "ab", buffering=0) as file:
                    file.write(b"\n" + line if self._write_failed else line)
                self._write_failed = False
            except OSError:
                self._write_failed = True

    def failed(self, error: StageError) -> None:
        """Says why the stage ends, also on a full disk."""
        self._drop_ballast()
        sys.stderr.write(f"{error.line}\n")
        sys.stderr.flush()
        self._append(Failed(error.cause, error.remedy, error.where, error.klass))


def execute(spec_path: str, work: Callable[[StageRun], None]) -> int:
    """Runs a stage; its exit code: 0 for proven work, 1 with the reason said, 143 for a stop that saved its work."""
    with StageRun(spec_path) as stage:
        try:
            work(stage)
        except Stopped:
            stage.message("Stopped; what is finished is kept.")
            return EXIT_STOPPED
        except Told:
            return EXIT_FAILED
        except StageError as error:
            stage.failed(error)
            return EXIT_FAILED
        except OSError as error:
            stage.failed(_from_os(error))
            return EXIT_FAILED
        except Exception as error:
            traceback.print_exc()
            stage.failed(
                StageError(f"{type(error).__name__}: {error}", klass="defect", remedy="See the traceback in the log.")
            )
            return EXIT_FAILED
        if not stage.finished:
            stage.failed(StageError("The stage ended without proof of its work.", klass="unproven"))
            return EXIT_FAILED
        return 0


def _from_os(error: OSError) -> StageError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return StageError(
        f"{error.strerror or error}.",
        file=str(error.filename or ""),
        remedy="Free space, then run the stage again: it goes on where it stopped."
        if full
        else "Check the path on the host.",
        klass="disk_full" if full else "file",
    )


def _raise_open_files() -> None:
    """As many open files as the hard limit allows, for us and our children: preflight looks at that one only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _present(path: str, facts: Mapping[str, Any]) -> Optional[str]:
    try:
        return fingerprint(path, facts.get("without") or ())
    except OSError:
        return None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
