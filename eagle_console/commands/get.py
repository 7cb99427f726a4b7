"""``get``: a file or a directory of the host, with resume and proof."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eagle_console.client import HostClient
from eagle_console.commands.invocation import Invocation
from eagle_console.documents import Document
from eagle_console.exit_codes import ExitCode
from eagle_console.format import duration_in_words, gb, plural
from eagle_console.transfer import manifest as manifests
from eagle_console.transfer.download import Download
from eagle_console.transfer.manifest import Manifest
from eagle_console.transfer.place import Place, destination
from eagle_console.transfer.progress import Progress
from remote.protocol.errors import CONFLICT, FAILED, RequestError

PAINT_SECONDS = 0.5


async def get(call: Invocation) -> ExitCode:
    place = Place(destination(call.arguments.path, call.arguments.destination), call.arguments.force)
    place.require_free()
    fetch = _Fetch(call, place)
    begin = time.monotonic()
    try:
        await call.follow(fetch.work)
        place.finish(fetch.manifest)
    except asyncio.CancelledError:
        call.out.say(f"stopped; what came is in {place.part}, and the same command goes on from there")
        raise
    except OSError as error:
        raise RequestError(FAILED, f"{error.filename or place.destination}: {error.strerror or error}") from None
    finally:
        fetch.close()
    _report(call, fetch, place, time.monotonic() - begin)
    return ExitCode.DONE


class _Fetch:
    """One ``get``."""

    def __init__(self, call: Invocation, place: Place) -> None:
        self._call = call
        self._place = place
        self._download: Download | None = None
        self.manifest: Manifest
        self.progress: Progress

    async def work(self, client: HostClient) -> None:
        self._download = await self._begin(client)
        try:
            async with self._painted():
                await self._download.run(client)
        except RequestError as error:
            if error.code == CONFLICT:
                self._download.close()
                self._place.discard(self.manifest)  # of a file that is no more
            raise

    @property
    def download(self) -> Download:
        assert self._download is not None
        return self._download

    def close(self) -> None:
        if self._download is not None:
            self._download.close()

    async def _begin(self, client: HostClient) -> Download:
        name = self._call.target.profile.name
        self.manifest = await manifests.make(client, name, self._call.arguments.path)
        kept = self._place.prepare(self.manifest)
        self.progress = Progress(self.manifest.size)
        if kept:
            self._call.out.say(f"going on with {self._place.part}; what is there is compared with the host first")
        if self.manifest.left_out:
            left_out = plural(
                self.manifest.left_out, "symbolic link or special file", "symbolic links and special files"
            )
            self._call.out.say(f"not fetched: {left_out}")
        return Download(self.manifest, self._place.part, kept, self.progress)

    @asynccontextmanager
    async def _painted(self) -> AsyncIterator[None]:
        """Shows the progress meanwhile: one line that changes on a terminal, else a line each ten percent."""
        painting = asyncio.create_task(self._paint_on())
        try:
            yield
        finally:
            painting.cancel()
            self._paint()
            self._call.out.end_moving_line()

    async def _paint_on(self) -> None:
        while True:
            self._paint()
            await asyncio.sleep(PAINT_SECONDS)

    def _paint(self) -> None:
        self.progress.mark(time.monotonic())
        if self._call.out.moves:
            self._call.out.moving_line(self.progress.words())
        elif self.progress.passed_step():
            self._call.out.say(self.progress.words())


def _report(call: Invocation, fetch: _Fetch, place: Place, seconds: float) -> None:
    manifest, progress = fetch.manifest, fetch.progress
    if call.out.json:
        call.out.document(_document(call, fetch, place, seconds))
        return
    rate = f", {gb(progress.fetched / seconds)}/s" if progress.fetched and seconds > 0 else ""
    kept = f"; {gb(progress.kept)} of it were here" if progress.kept else ""
    files = "" if not manifest.directory else f" in {plural(len(manifest.entries), 'file')}"
    call.out.line(f"{place.destination}: {gb(manifest.size)}{files} in {duration_in_words(seconds)}{rate}{kept}")
    if manifest.directory:
        call.out.line("SHA-256 of every file is the same on both sides")
    else:
        call.out.line(f"SHA-256 {fetch.download.digests['']}, the same on both sides")


def _document(call: Invocation, fetch: _Fetch, place: Place, seconds: float) -> Document:
    manifest, progress = fetch.manifest, fetch.progress
    return {
        "host": call.target.profile.name,
        "path": manifest.root,
        "destination": str(place.destination.absolute()),
        "directory": manifest.directory,
        "size": manifest.size,
        "fetched": progress.fetched,
        "kept": progress.kept,
        "seconds": seconds,
        "left_out": manifest.left_out,
        "files": [
            {"path": entry.path, "size": entry.identity.size, "sha256": fetch.download.digests[entry.path]}
            for entry in manifest.entries
        ],
    }
