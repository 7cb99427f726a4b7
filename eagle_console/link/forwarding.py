"""A port of the host's loopback on this machine's: the listener is ours, so that it outlives any one connection.

Each local connection is a stream over the connection of that moment. That makes a refusal of the server an error with
words; OpenSSH's own forwards look like an empty answer then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eagle_console.link.errors import LinkError, PortClosed
from eagle_console.link.transport import READ_BYTES, Reading, Transport, Writing

LOCALHOST = "127.0.0.1"


PROBE_SECONDS = 20.0
"""For the first byte of the server's answer."""

_PROBE = b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"


class PortForward:
    """A local port that leads to a port of the host's loopback.

    :param port: on the host.
    :param transport: gives the connection of the moment, or raises ``LinkError``.
    """

    def __init__(self, port: int, transport: Callable[[], Transport]) -> None:
        self.port = port
        self.local_port = 0
        self.trouble = ""
        """Why the last connection could not be passed on; empty after one that was."""
        self._transport = transport
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, local_port: int | None = None) -> int:
        """Listens, and gives the port: the named one; by default the host's number if it is free here, else any.

        :raises OSError: when the named port is taken or not allowed.
        """
        try:
            self._server = await self._listen(self.port if local_port is None else local_port)
        except OSError:
            if local_port is not None:
                raise
            self._server = await self._listen(0)
        self.local_port = self._server.sockets[0].getsockname()[1]
        return self.local_port

    async def probe(self) -> bool:
        """Whether a server answers there.

        :raises LinkError: when the SSH server passes nothing on, or the link is lost.
        """
        try:
            reader, writer = await self._transport().open_port(self.port)
            try:
                writer.write(_PROBE)  # some transports know only by an answer that there is somebody
                async with asyncio.timeout(PROBE_SECONDS):
                    return bool(await reader.read(1))
            finally:
                writer.close()
        except (PortClosed, TimeoutError, OSError):
            return False

    async def close(self) -> None:
        """Ends it with all its connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, LOCALHOST, port)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            far_reader, far_writer = await self._transport().open_port(self.port)
        except LinkError as error:
            self.trouble = error.message
            writer.transport.abort()
            return
        self.trouble = ""
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        except (OSError, LinkError):
            pass  # one side has gone
        finally:
            far_writer.close()
            writer.close()


async def _pump(source: Reading, sink: Writing) -> None:
    try:
        while data := await source.read(READ_BYTES):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    except OSError:
        sink.close()
        raise
