"""The courses of training runs, read from their files as they grow: only what was appended since the last request."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from typing import Optional, Union

from pipeline.plan.layout import RUN_PATTERN, Run
from pipeline.plan.training_commands import RECORDS
from remote.jobs.records import open_regular
from remote.policy import Policy
from remote.protocol.adopted import Adopted
from remote.protocol.errors import RequestError
from remote.protocol.jobs import Job
from remote.protocol.series import TrainingSeries
from remote.watch.course import Course, LogReader, RecordReader
from remote.watch.follow import LineSplitter

READ_SECONDS = 1.5
"""A request reads for so long; a longer file goes on with the next request."""

PIECE_BYTES = 1024 * 1024
KEPT_FILES = 8
"""Files whose course is kept; the one that was asked for longest ago goes first."""


class Courses:
    """Courses by file. Its methods can be called from any thread; requests wait for each other.

    :param policy: its workspace is that of the jobs; a file that a process which is not ours names is read where it
        allows that.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._workspace = policy.workspace
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _File] = OrderedDict()

    def of_job(self, job: Job) -> TrainingSeries:
        """The course of the run that a job works on."""
        run = job.parameters.get("run")
        if self._workspace is None or not isinstance(run, str) or not re.fullmatch(RUN_PATTERN, run):
            return TrainingSeries(job.id, problem=f"{job.id} belongs to no training run")
        folder = str(Run(self._workspace, run).output)
        return self._read(job.id, folder, os.path.join(folder, RECORDS))

    def of_adopted(self, record: Adopted) -> TrainingSeries:
        """The course of a run that we did not start: of our trainer's records where its folder has some, else of its
        console output."""
        folder = record.output or (record.training.save_path if record.training is not None else None) or ""
        records = os.path.join(folder, RECORDS)
        if os.path.isabs(folder) and self._may_read(records) and os.path.isfile(records):
            return self._read(record.id, folder, records)
        if record.log is None:
            return TrainingSeries(record.id, folder, problem=f"no log: {record.log_note or 'nothing is known of it'}")
        return self._read(record.id, folder, record.log)

    def _may_read(self, path: str) -> bool:
        try:
            self._policy.require_readable(path)
        except RequestError:
            return False
        return True

    def _read(self, name: str, folder: str, path: str) -> TrainingSeries:
        with self._lock:
            file = self._files.pop(path, None) or _File(path)
            self._files[path] = file
            if len(self._files) > KEPT_FILES:
                self._files.popitem(last=False)
            problem = file.read()
            course = file.course
            found = course.series
            if not found and not problem:
                problem = "no step of it is recorded yet"
            return TrainingSeries(
                name, folder or file.folder, path, found, course.epochs, course.checkpoints, course.broken_since,
                file.complete, problem,
            )  # fmt: skip


class _File:
    """One file and the course that was read from it so far. One that was replaced or cut is read from its beginning."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._id: Optional[tuple[int, int]] = None
        self.complete = False
        self._begin()

    @property
    def folder(self) -> str:
        """Where the run saves, as far as the file says that itself."""
        return self._reader.folder if isinstance(self._reader, LogReader) else ""

    def read(self) -> str:
        """Reads on, for a bounded time; says why that cannot be done, empty when it can."""
        deadline = time.monotonic() + READ_SECONDS
        try:
            with open(open_regular(self._path), "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                if identity != self._id or status.st_size < self._offset:
                    self._id = identity
                    self._begin()
                self.complete = False
                while time.monotonic() < deadline:
                    data = os.pread(file.fileno(), PIECE_BYTES, self._offset)
                    if not data:
                        self.complete = True
                        break
                    self._offset += len(data)
                    for line in self._splitter.feed(data):
                        self._reader.read_line(line)
        except FileNotFoundError:
            return "the run has not recorded anything yet"
        except OSError as error:
            return f"its records cannot be read: {error.strerror or error}"
        return ""

    def _begin(self) -> None:
        self._offset = 0
        self._splitter = LineSplitter()
        self.course = Course()
        ours = os.path.basename(self._path) == RECORDS
        self._reader: Union[RecordReader, LogReader] = RecordReader(self.course) if ours else LogReader(self.course)
