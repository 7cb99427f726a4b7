"""The transfer: chunks of files over an agent's session, several on the way at once, each prefix proven by its hash.

A transfer goes on where an earlier one was interrupted: the bytes that are already here are hashed on both sides before
anything is added to them. Its client must be one that survives lost links.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eagle_console.client import HostClient
from eagle_console.transfer.localfile import LocalFile
from eagle_console.transfer.manifest import Manifest
from eagle_console.transfer.progress import Progress
from eagle_console.transfer.window import Window
from remote.protocol.errors import CONFLICT, FAILED, RequestError
from remote.protocol.files import CHUNK_BYTES, FileChunk, FileEntry, FileIdentity

SEGMENT_BYTES = 64 * 1024 * 1024
"""After each of these, and at the end of a file, both sides compare their hashes of all bytes so far."""

FILES_AT_ONCE = 8
CHUNKS_AHEAD = 16
"""Chunks of one file that are asked for before the first of them has come."""


class Download:
    """The files of a manifest on their way into an unfinished copy.

    :param part: the unfinished copy, a file or a directory.
    :param kept: paths of the entries whose bytes in ``part`` are of an earlier try and may be used.
    """

    def __init__(self, manifest: Manifest, part: Path, kept: frozenset[str], progress: Progress) -> None:
        self._manifest = manifest
        self._part = part
        self._kept = kept
        self._progress = progress
        self._open: dict[str, LocalFile] = {}
        self.digests: dict[str, str] = {}
        """SHA-256 of every finished file, by its entry's path."""
        self.refetched = 0
        """Bytes of an earlier try that were not the host's."""

    async def run(self, client: HostClient) -> None:
        """Fetches what is missing.

        :raises LinkError: when the link is lost for good.
        :raises RequestError: when the host refuses, a file changes meanwhile, or this machine's disk cannot take it.
        """
        window = Window()
        waiting = iter(self._manifest.entries)

        async def work() -> None:
            for entry in waiting:
                await self._fetch(client, entry, window)

        workers = [asyncio.create_task(work()) for _ in range(min(FILES_AT_ONCE, len(self._manifest.entries)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def close(self) -> None:
        """Closes the files that are not finished."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    async def _fetch(self, client: HostClient, entry: FileEntry, window: Window) -> None:
        path = self._manifest.remote_path(entry)
        local = self._manifest.local_path(self._part, entry)
        source = _Source(client, path, entry.identity, window)
        with _local_errors(local):
            local.parent.mkdir(parents=True, exist_ok=True)
            file = self._open[entry.path] = LocalFile(local, fresh=entry.path not in self._kept)
            await self._keep_what_is_right(file, source)
            await self._fetch_rest(file, source)
            self.digests[entry.path] = file.digest()
            await asyncio.to_thread(file.finish, entry.identity.mtime_ns)
            file.close()
            del self._open[entry.path]

    async def _keep_what_is_right(self, file: LocalFile, source: _Source) -> None:
        present = min(file.size, source.identity.size)
        while file.position < present:
            count = min(SEGMENT_BYTES, present - file.position)
            (digest, state), expected = await asyncio.gather(
                asyncio.to_thread(file.digest_with, count), source.digest(file.position + count)
            )
            if digest != expected:
                self.refetched += present - file.position
                break
            file.keep(count, state)
            self._progress.kept += count
        file.cut()

    async def _fetch_rest(self, file: LocalFile, source: _Source) -> None:
        size = source.identity.size
        asked = file.position
        waiting: deque[asyncio.Task[FileChunk]] = deque()
        proof: asyncio.Task[None] | None = None
        try:
            if size == 0:
                await source.digest(0)  # proves that it may be read
            while file.position < size:
                while asked < size and len(waiting) < CHUNKS_AHEAD:
                    length = min(CHUNK_BYTES, size - asked, SEGMENT_BYTES - asked % SEGMENT_BYTES)
                    waiting.append(asyncio.create_task(source.chunk(asked, length)))
                    asked += length
                chunk = await waiting[0]
                waiting.popleft()
                await asyncio.to_thread(_store, file, chunk)
                self._progress.fetched += chunk.length
                if file.position % SEGMENT_BYTES == 0 or file.position == size:
                    if proof is not None:
                        await proof
                    proof = asyncio.create_task(source.prove(file.position, file.digest()))
            if proof is not None:
                await proof
        finally:
            tasks = [*waiting, *([proof] if proof else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Source:
    """A file on the host, which must stay what it was."""

    def __init__(self, client: HostClient, path: str, identity: FileIdentity, window: Window) -> None:
        self.identity = identity
        self._client = client
        self._path = path
        self._window = window

    async def chunk(self, offset: int, length: int) -> FileChunk:
        async with self._window:
            chunk = await self._client.read_file(self._path, offset, length)
        self._check(chunk.identity)
        if (chunk.offset, chunk.length) != (offset, length) or length not in (len(chunk.data), chunk.zeros):
            raise RequestError(FAILED, f"the host did not give the {length} bytes from {offset} on of {self._path}")
        return chunk

    async def digest(self, length: int) -> str:
        """The host's hash of the first bytes."""
        while True:
            answer = await self._client.hash_file(self._path, length)
            self._check(answer.identity)
            if answer.length == length:
                return answer.sha256

    async def prove(self, length: int, digest: str) -> None:
        """Compares the hashes of the first bytes on both sides."""
        if await self.digest(length) != digest:
            raise RequestError(
                FAILED,
                f"the first {length} bytes of {self._path} are not the same here and on the host",
                "run the same command again: what is right is kept, the rest is fetched again",
            )

    def _check(self, now: FileIdentity) -> None:
        if now == self.identity:
            return
        changes = []
        if now.size != self.identity.size:
            changes.append(f"from {self.identity.size} to {now.size} bytes")
        if now.inode != self.identity.inode:
            changes.append("it was replaced by another file")
        what = "; ".join(changes) or "it was written to"
        raise RequestError(
            CONFLICT,
            f"{self._path} changed while it was fetched ({what})",
            "run the same command again when its writer has finished; eagle-console logs -f follows a log",
        )


def _store(file: LocalFile, chunk: FileChunk) -> None:
    if chunk.zeros:
        file.append_hole(chunk.length)
    else:
        file.append(chunk.data)


@contextmanager
def _local_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise RequestError(FAILED, f"two of the host's names are one here: {path}") from None
    except OSError as error:
        remedy = "make room and run the same command again: it goes on where it stopped"
        raise RequestError(FAILED, f"{path} cannot be written: {error.strerror or error}", remedy) from None
