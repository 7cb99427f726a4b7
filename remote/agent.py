"""The agent: one process a connection, that speaks frames on its stdin and stdout and ends with the link.

The console speaks first. The main thread reads its frames and does nothing that can block, so that the lease always
counts; each request and each subscription has a thread of its own, since everything that an agent does (NVML, /proc,
disks, job directories) blocks, some of it for ever. The streams are used with plain blocking calls: over sshd both can
be one socket, whose flags are shared with processes that do not expect them to change.
"""

from __future__ import annotations

import os
import pwd
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Optional

from remote import policy as policies
from remote.allocator import use_one_heap
from remote.capabilities import WITHOUT_ARGUMENTS, Capabilities
from remote.disk import housekeeping
from remote.outbox import Outbox, OutboxClosed
from remote.procfs import boot_id, machine_id
from remote.protocol.codec import MAX_FRAME_BYTES, decode_line, to_wire
from remote.protocol.errors import CONFLICT, FAILED, UNSUPPORTED, ProtocolError, RequestError
from remote.protocol.frames import (
    LEASE_SECONDS,
    PROTOCOL_VERSION,
    AgentHello,
    Bye,
    Fault,
    Frame,
    Hello,
    Ping,
    Pong,
    Request,
    Response,
    Subscribe,
    Unsubscribe,
    frame_from_wire,
)
from remote.subscriptions import NO_THREAD, NO_THREAD_REMEDY, TOPICS, Subscriptions
from remote.telemetry.host import psutil_available

HELLO_SECONDS = 10.0
"""How long the console may take for its first frame."""

MAX_REQUESTS = 32
"""Requests of one console at work at once."""

FAREWELL_SECONDS = 1.0
"""How long the last frames may take to leave."""

LEASE_VARIABLE = "EAGLE_CONSOLE_LEASE_SECONDS"
"""Environment variable that shortens the lease, for tests."""


class EndOfInput(Exception):
    """The console closed its side."""


class LeaseExpired(Exception):
    """The console was silent for too long."""


class Inbox:
    """The console's frames from the file descriptor ``fd``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()

    def next(self, deadline: float) -> Optional[Frame]:
        """The next frame; None for one of a kind that this version does not know.

        :param deadline: monotonic time.
        :raises EndOfInput, LeaseExpired: when no further frame comes.
        :raises ProtocolError: for a frame that breaks the rules.
        """
        return frame_from_wire(decode_line(self._line(deadline)))

    def _line(self, deadline: float) -> bytes:
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[: end + 1])
                del self._buffer[: end + 1]
                return line
            searched = len(self._buffer)
            if searched >= MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame is over the limit of {MAX_FRAME_BYTES} bytes")
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                raise LeaseExpired
            data = os.read(self._fd, 65536)
            if not data:
                if self._buffer:
                    raise ProtocolError("the stream ended in the middle of a frame")
                raise EndOfInput
            self._buffer += data


class Agent:
    """The conversation with one console after the hellos."""

    def __init__(self, inbox: Inbox, outbox: Outbox, capabilities: Capabilities, lease: float) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._operations = capabilities.operations
        self._subscriptions = Subscriptions(capabilities, outbox)
        self._lease = lease
        self._expires = time.monotonic() + lease
        self._at_work = threading.BoundedSemaphore(MAX_REQUESTS)

    def converse(self) -> None:
        """Serves the console until it goes.

        :raises EndOfInput, LeaseExpired, ProtocolError, OutboxClosed: the reason of the end.
        """
        handlers: dict[type, Callable[[Any], None]] = {
            Ping: self._ping,
            Request: self._request,
            Subscribe: self._subscriptions.start,
            Unsubscribe: lambda frame: self._subscriptions.cancel(frame.sub),
        }
        while True:
            frame = self._inbox.next(self._expires)
            handler = handlers.get(type(frame))
            if handler is not None:
                handler(frame)
            elif frame is not None:
                raise ProtocolError(f"the frame {type(frame).__name__} does not belong here")

    def _ping(self, ping: Ping) -> None:
        self._expires = time.monotonic() + self._lease
        self._outbox.offer("pong", Pong(ping.n, time.monotonic()))

    def _request(self, request: Request) -> None:
        operation = self._operations.get(request.op)
        if request.op in WITHOUT_ARGUMENTS:
            request = replace(request, args={})
        if operation is None:
            fault = Fault(UNSUPPORTED, f"this agent has no operation {request.op!r}")
            self._outbox.put(Response(request.id, error=fault), wait=False)
        elif not self._at_work.acquire(blocking=False):
            fault = Fault(CONFLICT, f"{MAX_REQUESTS} requests are at work already", "try again in a moment")
            self._outbox.put(Response(request.id, error=fault), wait=False)
        else:
            thread = threading.Thread(target=self._answer, args=(request,), name=f"request {request.op}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._at_work.release()
                self._outbox.put(Response(request.id, error=Fault(FAILED, NO_THREAD, NO_THREAD_REMEDY)), wait=False)

    def _answer(self, request: Request) -> None:
        try:
            response = Response(request.id, ok=to_wire(self._operations[request.op](request.args, request.key)))
        except RequestError as error:
            response = Response(request.id, error=Fault(error.code, error.message, error.remedy))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            response = Response(request.id, error=Fault(FAILED, f"{type(error).__name__}: {error}"))
        try:
            self._outbox.put(response)
        except OutboxClosed:
            pass  # the main thread ends the agent
        finally:
            self._at_work.release()


def main(bundle_dir: Optional[str] = None) -> None:
    """Runs the agent on stdin and stdout; does not return.

    The exit status is 0 when the console went, 1 when it broke the protocol.

    :param bundle_dir: the unpacked bundle that it runs from; None in a checkout.
    """
    source, sink = _take_streams()
    use_one_heap()
    outbox = Outbox(sink)
    try:
        _serve(Inbox(source), outbox, bundle_dir)
    except EndOfInput:
        reason, status = "end of input", 0
    except LeaseExpired:
        reason, status = "the console was silent for too long", 0
    except OutboxClosed as error:
        reason, status = str(error), 0
    except (ProtocolError, OSError) as error:
        reason, status = f"protocol: {error}", 1
    sys.stderr.write(f"agent ends: {reason}\n")
    try:
        outbox.put(Bye(reason), wait=False)
        outbox.flush(FAREWELL_SECONDS)
    except OutboxClosed:
        pass
    os._exit(status)  # threads that hang in a driver or a dead mount must not hold the process


def _serve(inbox: Inbox, outbox: Outbox, bundle_dir: Optional[str]) -> None:
    hello = inbox.next(time.monotonic() + HELLO_SECONDS)
    if not isinstance(hello, Hello):
        raise ProtocolError("the first frame must be a hello")
    if PROTOCOL_VERSION not in hello.protocol:
        raise ProtocolError(f"this agent speaks version {PROTOCOL_VERSION}, the console {list(hello.protocol)}")
    policy = policies.load(hello.workspace, hello.readonly)
    capabilities = Capabilities(policy, bundle_dir)
    outbox.put(_introduction(policy, capabilities, bundle_dir))
    housekeeping.start(policy)
    Agent(inbox, outbox, capabilities, _lease()).converse()


def _take_streams() -> tuple[int, int]:
    """Moves stdin and stdout away to private descriptors, so that nothing that prints can break the frames."""
    source, sink = os.dup(0), os.dup(1)
    os.set_blocking(source, True)
    os.set_blocking(sink, True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


def _introduction(policy: policies.Policy, capabilities: Capabilities, bundle_dir: Optional[str]) -> AgentHello:
    return AgentHello(
        protocol=PROTOCOL_VERSION,
        agent=os.path.basename(bundle_dir) if bundle_dir else "checkout",
        host=socket.gethostname(),
        user=_user_name(),
        machine_id=machine_id(),
        boot_id=boot_id(),
        python=".".join(map(str, sys.version_info[:3])),
        pid=os.getpid(),
        wall=time.time(),
        readonly=policy.readonly,
        readonly_reason=policy.readonly_reason,
        workspace=policy.workspace,
        roots=policy.roots,
        operations=tuple(capabilities.operations),
        topics=TOPICS,
        psutil=psutil_available(),
        bundle_dir=bundle_dir or "",
    )


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())  # a container whose user has no entry


def _lease() -> float:
    try:
        return min(float(os.environ[LEASE_VARIABLE]), LEASE_SECONDS)
    except (KeyError, ValueError):
        return LEASE_SECONDS


if __name__ == "__main__":
    main()
