"""Subscriptions: a thread each, that reads its topic and hands events to the outbox until it is cancelled.

The topics ``gpus``, ``host``, ``disk``, ``jobs``, ``adopted`` are samples: sent at once, then when they change, and at
least every ``HEARTBEAT_SECONDS``, so that the console knows them to be true. ``events`` and ``log`` are read on from
where they are, each piece once, and wait when the console is slow.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Optional

from remote.capabilities import Capabilities
from remote.outbox import Outbox, OutboxClosed
from remote.protocol import frames
from remote.protocol.codec import to_wire
from remote.protocol.errors import BAD_ARGUMENT, FAILED, UNSUPPORTED, RequestError
from remote.protocol.frames import Event, Fault, Subscribe

HEARTBEAT_SECONDS = 2.0
"""The longest silence of an unchanged sample; the console calls a value stale after 3 s."""

MIN_INTERVAL_SECONDS = 0.1
MAX_INTERVAL_SECONDS = 60.0
MIN_JOBS_INTERVAL_SECONDS = 0.5
MIN_ADOPTED_INTERVAL_SECONDS = 1.0

MAX_SUBSCRIPTIONS = 64
"""Of one console at once. It needs a handful; this only bounds the threads of a broken one."""

NO_THREAD = "this host lets the user start no further thread"
NO_THREAD_REMEDY = "raise ulimit -u there, or end something"

TOPICS = (
    frames.TOPIC_GPUS,
    frames.TOPIC_HOST,
    frames.TOPIC_DISK,
    frames.TOPIC_JOBS,
    frames.TOPIC_ADOPTED,
    frames.TOPIC_EVENTS,
    frames.TOPIC_LOG,
)

_WITH_ARGUMENTS = (frames.TOPIC_EVENTS, frames.TOPIC_LOG)


class Subscriptions:
    """The running subscriptions of one console, by the number it chose."""

    def __init__(self, capabilities: Capabilities, outbox: Outbox) -> None:
        self._capabilities = capabilities
        self._outbox = outbox
        self._running: dict[int, _Subscription] = {}
        self._lock = threading.Lock()

    def start(self, request: Subscribe) -> None:
        """Begins a subscription; an unknown topic or a number in use is answered by an event with an error."""
        if request.topic not in _WITH_ARGUMENTS:
            request = replace(request, args={})  # they would be kept as long as it lasts
        with self._lock:
            problem = self._refusal(request)
            if problem is None:
                subscription = _Subscription(request, self._capabilities, self._outbox, self._ended)
                try:
                    subscription.thread.start()
                except RuntimeError:
                    problem = RequestError(FAILED, NO_THREAD, NO_THREAD_REMEDY)
                else:
                    self._running[request.sub] = subscription
                    return
        self._outbox.put(_error_event(request, problem), wait=False)

    def cancel(self, sub: int) -> None:
        """Ends a subscription; an unknown number is one that has ended by itself."""
        with self._lock:
            subscription = self._running.pop(sub, None)
        if subscription is not None:
            subscription.cancelled.set()
            self._outbox.forget(sub)

    def _refusal(self, request: Subscribe) -> Optional[RequestError]:
        if request.topic not in TOPICS:
            return RequestError(UNSUPPORTED, f"this agent has no topic {request.topic!r}; it has {', '.join(TOPICS)}")
        if request.sub in self._running:
            return RequestError(BAD_ARGUMENT, f"subscription {request.sub} runs already")
        if len(self._running) >= MAX_SUBSCRIPTIONS:
            return RequestError(BAD_ARGUMENT, f"there are {MAX_SUBSCRIPTIONS} subscriptions already")
        return None

    def _ended(self, subscription: _Subscription) -> None:
        with self._lock:
            if self._running.get(subscription.request.sub) is subscription:
                del self._running[subscription.request.sub]


class _Subscription:
    """One subscription and its thread."""

    def __init__(
        self,
        request: Subscribe,
        capabilities: Capabilities,
        outbox: Outbox,
        ended: Callable[[_Subscription], None],
    ) -> None:
        self.request = request
        self.cancelled = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"topic {request.topic}", daemon=True)
        self._capabilities = capabilities
        self._outbox = outbox
        self._on_end = ended

    def _run(self) -> None:
        try:
            self._produce()
        except OutboxClosed:
            pass  # the conversation ends as a whole
        except RequestError as error:
            self._fail(error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._fail(RequestError(FAILED, f"{type(error).__name__}: {error}"))
        finally:
            self._on_end(self)

    def _produce(self) -> None:
        topic, args = self.request.topic, self.request.args
        interval = min(max(self.request.interval, MIN_INTERVAL_SECONDS), MAX_INTERVAL_SECONDS)
        if topic == frames.TOPIC_EVENTS:
            self._follow(self._job_events(args), interval)
        elif topic == frames.TOPIC_LOG:
            self._follow(self._log_chunks(args), interval)
        elif topic == frames.TOPIC_JOBS:
            self._sample(self._capabilities.jobs, max(interval, MIN_JOBS_INTERVAL_SECONDS))
        elif topic == frames.TOPIC_ADOPTED:
            self._sample(self._capabilities.adopted, max(interval, MIN_ADOPTED_INTERVAL_SECONDS))
        else:
            read = {
                frames.TOPIC_GPUS: self._capabilities.gpus,
                frames.TOPIC_HOST: self._capabilities.host,
                frames.TOPIC_DISK: self._capabilities.disk,
            }
            self._sample(read[topic], interval)

    def _sample(self, read: Callable[[], Any], interval: float) -> None:
        """Offers what ``read`` gives: at once, when it changed, and as a heartbeat."""
        last: Any = None
        sent = float("-inf")
        due = time.monotonic()
        while not self.cancelled.is_set():
            record = read()
            now = time.monotonic()
            if record != last or now - sent >= HEARTBEAT_SECONDS - interval / 2:
                last, sent = record, now
                self._outbox.offer(self.request.sub, self._event(record))
            due = max(due + interval, now)
            self.cancelled.wait(due - now)

    def _follow(self, pieces: Iterator[Optional[Any]], interval: float) -> None:
        """Sends every piece; None says that there is nothing new yet."""
        for piece in pieces:
            if self.cancelled.is_set():
                return
            if piece is None:
                self.cancelled.wait(interval)
            else:
                self._outbox.put(self._event(piece))

    def _job_events(self, args: dict[str, Any]) -> Iterator[Optional[Any]]:
        after = args.get("after", 0)
        if not isinstance(after, int):
            raise RequestError(BAD_ARGUMENT, "after must be a whole number")
        store = self._capabilities.store()
        job = self._capabilities.job(_job_name(args)).id
        while True:
            for event in store.events(job, after):
                after = event.seq
                yield event
            yield None

    def _log_chunks(self, args: dict[str, Any]) -> Iterator[Optional[Any]]:
        chunk = self._capabilities.read_log({**args, "job": _job_name(args)})
        yield chunk
        while True:
            start = chunk.next_offset
            chunk = self._capabilities.read_log({"job": chunk.job, "offset": start})
            yield chunk if chunk.next_offset > start else None

    def _event(self, record: Any) -> Event:
        request = self.request
        return Event(request.sub, request.topic, time.monotonic(), time.time(), data=to_wire(record))

    def _fail(self, error: RequestError) -> None:
        try:
            self._outbox.put(_error_event(self.request, error))
        except OutboxClosed:
            pass


def _job_name(args: dict[str, Any]) -> str:
    name = args.get("job")
    if not isinstance(name, str) or not name:
        raise RequestError(BAD_ARGUMENT, "job must be a text")
    return name


def _error_event(request: Subscribe, error: RequestError) -> Event:
    fault = Fault(error.code, error.message, error.remedy)
    return Event(request.sub, request.topic, time.monotonic(), time.time(), error=fault)
