"""What waits to be written to the console: ordered frames that all arrive, and samples of which the newest counts.

One thread writes with plain blocking calls, so a console that stops reading stops that thread and nothing else. What
waits for it is bounded: producers of ordered frames wait in ``put`` until the backlog is small again, a sample takes
the place of its predecessor that was not yet sent.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from dataclasses import replace
from typing import Optional, Union

from remote.protocol.codec import MAX_FRAME_BYTES, Json, encode_line
from remote.protocol.errors import FAILED, ProtocolError
from remote.protocol.frames import Event, Fault, Frame, Response, frame_to_wire

BACKLOG_BYTES = 512 * 1024
"""Above this many waiting bytes ``put`` waits: two frames of the largest size."""

FRAME_ROOM_BYTES = 4096
"""Kept free in a shortened record's frame for its other fields."""

BACKLOG_LIMIT_BYTES = 8 * 1024 * 1024
"""Above this many waiting bytes the console counts as gone: only a peer that asks and never reads gets here."""


class OutboxClosed(Exception):
    """The console's end of the stream is closed, or nobody reads it."""


class Outbox:
    """The frames on their way to the file descriptor ``fd``. All methods may be called from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._changed = threading.Condition()
        self._waiting: deque[Union[bytes, str, int]] = deque()  # lines, and the keys of samples in their place
        self._samples: dict[Union[str, int], Frame] = {}
        self._bytes = 0
        self._closed = False
        self._idle = True
        self._thread = threading.Thread(target=self._write_all, name="outbox", daemon=True)
        self._thread.start()

    def put(self, frame: Frame, wait: bool = True) -> None:
        """Adds a frame that must arrive, after all earlier ones.

        :param wait: waits for a small backlog first. Without it the frame is added at once, which only the reader of
            the console's frames may do: it must never stand still.
        :raises OutboxClosed: when the frame can never arrive.
        """
        line = _encode(frame)
        with self._changed:
            while wait and self._bytes > BACKLOG_BYTES and not self._closed:
                self._changed.wait()
            if self._bytes > BACKLOG_LIMIT_BYTES:
                self._closed = True
            if self._closed:
                raise OutboxClosed("the console does not read any more")
            self._waiting.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    def offer(self, key: Union[str, int], frame: Frame) -> None:
        """Adds the newest sample under ``key``; one that still waits is replaced, and counted where it is an event.

        :raises OutboxClosed: as ``put``.
        """
        with self._changed:
            if self._closed:
                raise OutboxClosed("the console does not read any more")
            older = self._samples.get(key)
            if older is None:
                self._waiting.append(key)
            elif isinstance(older, Event) and isinstance(frame, Event):
                frame = replace(frame, dropped=older.dropped + 1)
            self._samples[key] = frame
            self._changed.notify_all()

    def forget(self, key: Union[str, int]) -> None:
        """Takes back a sample that still waits."""
        with self._changed:
            self._samples.pop(key, None)

    def flush(self, timeout: float) -> bool:
        """Waits until everything is written, at most ``timeout`` seconds; whether it is."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._waiting or not self._idle:
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                self._changed.wait(left)
        return True

    @property
    def closed(self) -> bool:
        return self._closed

    def _write_all(self) -> None:
        try:
            while True:
                view = memoryview(self._next_line())
                while view:
                    view = view[os.write(self._fd, view) :]
        except OSError:
            with self._changed:
                self._closed = True
                self._waiting.clear()
                self._samples.clear()
                self._changed.notify_all()

    def _next_line(self) -> bytes:
        with self._changed:
            self._idle = True
            while True:
                self._changed.notify_all()
                while not self._waiting:
                    self._changed.wait()
                item = self._waiting.popleft()
                if isinstance(item, bytes):
                    self._bytes -= len(item)
                    line: bytes = item
                else:
                    sample = self._samples.pop(item, None)
                    if sample is None:
                        continue
                    line = _encode(sample)
                self._idle = False
                self._changed.notify_all()
                return line


def _encode(frame: Frame) -> bytes:
    """The line of a frame. What cannot be sent as it is (too long, not a number) is shortened or becomes an error."""
    try:
        return encode_line(frame_to_wire(frame))
    except (ProtocolError, ValueError, TypeError) as error:
        fault = Fault(FAILED, f"the answer cannot be sent: {error}")
    if isinstance(frame, Event):
        shorter: Frame = replace(frame, data=_shortened(frame.data))
        substitute: Frame = Event(frame.sub, frame.topic, frame.mono, frame.wall, error=fault)
    elif isinstance(frame, Response):
        shorter = replace(frame, ok=_shortened(frame.ok))
        substitute = Response(frame.id, error=fault)
    else:
        raise AssertionError(f"{type(frame).__name__} cannot be encoded: {fault.message}")
    try:
        return encode_line(frame_to_wire(shorter))
    except (ProtocolError, ValueError, TypeError):
        return encode_line(frame_to_wire(substitute))


def _shortened(data: Optional[Json]) -> Optional[Json]:
    """A record with a field ``problem`` cut to its leading items (the newest jobs, the largest folders); it says so."""
    if data is None or "problem" not in data:
        return data
    name, items = max(data.items(), key=lambda item: len(item[1]) if isinstance(item[1], list) else -1)
    if not isinstance(items, list):
        return data
    sizes = [len(json.dumps(item, separators=(",", ":"))) + 1 for item in items]
    room, count = MAX_FRAME_BYTES - FRAME_ROOM_BYTES, 0
    while count < len(items) and sizes[count] <= room:
        room -= sizes[count]
        count += 1
    return {**data, name: items[:count], "problem": f"only the first {count} of {len(items)} {name} are shown"}
