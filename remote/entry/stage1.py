"""Stage 1 of the bootstrap: unpacks the bundle on the host, once, and becomes the agent.

The console sends this file as text to the interpreter that its one constant command line found, so it imports nothing
of ours. Every number of bytes that it reads from stdin was announced before, and it reads no more: what follows is the
agent's.

The console says, as one length-prefixed JSON object::

    {"marker": random text, "bundles": {"linux-x86_64": sha256, "any": sha256}, "ahead": bytes}

Stage 1 answers with two lines on stdout, of which the first ends all noise of the login shell's rc files: the marker,
then ``{"python": ..., "variant": ..., "have": directory or null}``. Without a directory the bundle follows,
length-prefixed and compressed, behind as many bytes as ``ahead`` says: the console's first words to the agent, which it
sent in the hope that the bundle is there and sends again behind the bundle. The answer is a line
``{"have": directory}`` or ``{"error": reason}``. Then the agent starts in this process.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Mapping
from typing import Optional

LENGTH_DIGITS = 10
MANIFEST = "manifest.json"
SILENCE_SECONDS = 30
"""A console that sends nothing for this long went away without a word: the lease of the agent that is to be."""

KEEP_NEWEST = 3
KEEP_SECONDS = 30 * 86400
"""A bundle that was used in this time stays: a job may have been started from it, on another host of a shared home."""


class Unusable(Exception):
    """A place that cannot hold bundles, and why."""


def read_exactly(count: int) -> bytes:
    """``count`` bytes of stdin, and not one more."""
    parts = []
    while count:
        signal.alarm(SILENCE_SECONDS)
        data = os.read(0, min(count, 1 << 20))
        signal.alarm(0)
        if not data:
            sys.exit("the console went away during the bootstrap")
        parts.append(data)
        count -= len(data)
    return b"".join(parts)


def read_message() -> bytes:
    return read_exactly(int(read_exactly(LENGTH_DIGITS)))


def say(message: dict[str, Optional[str]]) -> None:
    data = (json.dumps(message) + "\n").encode("ascii")
    while data:
        data = data[os.write(1, data) :]


def places(environ: Mapping[str, str], uid: int) -> list[str]:
    """The folders to try, in order."""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME", "")
    if not cache.startswith("/"):
        cache = os.path.join(home, ".cache") if home.startswith("/") and os.path.isdir(home) else ""
    found = [os.path.join(cache, "eagle_console", "agents")] if cache else []
    return [*found, *(f"{folder}/eagle_console-{uid}" for folder in ("/dev/shm", "/tmp") if os.path.isdir(folder))]


def claim(place: str, uid: int) -> None:
    """Makes the folder ours, or refuses it: whoever can write there can run programs as this user."""
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        check(place, uid)
    except OSError as error:
        raise Unusable(f"{place}: {error.strerror}") from None


def check(place: str, uid: int) -> None:
    """Refuses a place that is not ours, or that somebody else could swap for one of theirs.

    The folders on the way belong to us, to root, or to whoever owns ``/`` (root, as some containers show it); everybody
    may write to one only where it is sticky. What a group may write is the business of the group.
    """
    check_owner(place, uid)
    folder = os.path.realpath(place)
    trusted = (uid, 0, os.stat("/").st_uid)
    while folder != "/":
        folder = os.path.dirname(folder)
        status = os.stat(folder)
        if status.st_uid not in trusted:
            raise Unusable(f"{place} lies in {folder}, which belongs to user {status.st_uid}")
        if status.st_mode & 0o002 and not status.st_mode & stat.S_ISVTX:
            raise Unusable(f"{place} lies in {folder}, which everybody can write")


def check_owner(path: str, uid: int) -> None:
    status = os.lstat(path)
    if not os.path.isdir(path) or os.path.islink(path):
        raise Unusable(f"{path} is not a folder")
    if status.st_uid != uid:
        raise Unusable(f"{path} belongs to user {status.st_uid}")
    if status.st_mode & 0o022:
        raise Unusable(f"{path} can be written by others")


def complete(directory: str) -> bool:
    """Whether an unpacked bundle is whole: cleaners of /tmp remove single files, a crash leaves empty ones."""
    try:
        with open(os.path.join(directory, MANIFEST)) as file:
            sizes = json.load(file)
        return all(os.path.getsize(os.path.join(directory, name)) == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def find(name: str, uid: int) -> Optional[str]:
    """The unpacked bundle of that name in a place that is ours, None when there is none."""
    for place in places(os.environ, uid):
        directory = os.path.join(place, name)
        try:
            if os.path.isdir(directory):
                check(place, uid)
                check_owner(directory, uid)
                if complete(directory):
                    return directory
        except (OSError, Unusable):
            continue
    return None


def install(data: bytes, sha: str, name: str, uid: int) -> str:
    """Unpacks the bundle in the first place that takes it.

    :raises Unusable: when none does, with the reason of each.
    """
    import hashlib
    import zlib

    try:
        archive = zlib.decompress(data)
    except zlib.error as error:
        raise Unusable(f"the bundle arrived damaged: {error}") from None
    if hashlib.sha256(archive).hexdigest() != sha:
        raise Unusable("the bundle arrived damaged: its hash is another")
    reasons = []
    for place in places(os.environ, uid):
        try:
            claim(place, uid)
            directory = unpack(archive, place, name)
            remove_old(place, name)
            return directory
        except Unusable as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
    raise Unusable("; ".join(reasons))


def unpack(archive: bytes, place: str, name: str) -> str:
    """The folder appears complete or not at all; of several consoles that unpack at once one wins, all are served."""
    import io
    import shutil
    import tempfile
    import zipfile

    final = os.path.join(place, name)
    partial = tempfile.mkdtemp(prefix=".new-", dir=place)
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as bundle:
            bundle.extractall(partial)
        if os.path.lexists(final) and not complete(final):
            os.rename(final, os.path.join(partial, ".broken"))
        try:
            os.rename(partial, final)
        except OSError:
            if not complete(final):
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(os.path.join(final, ".broken"), ignore_errors=True)
    return final


def remove_old(place: str, name: str) -> None:
    """Removes bundles that are neither among the newest, nor recently used, nor run from by a living process."""
    import shutil
    import time

    def used(entry: os.DirEntry[str]) -> float:
        return entry.stat(follow_symlinks=False).st_mtime

    entries = sorted((entry for entry in os.scandir(place) if entry.is_dir(follow_symlinks=False)), key=used)
    old = [entry for entry in entries[:-KEEP_NEWEST] if time.time() - used(entry) > KEEP_SECONDS and entry.name != name]
    if old:
        running = command_lines()
        for entry in old:
            if not any(entry.path.encode() in line for line in running):
                shutil.rmtree(entry.path, ignore_errors=True)


def command_lines() -> list[bytes]:
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines.append(file.read())
        except OSError:
            continue
    return lines


def main() -> None:
    os.set_blocking(1, True)  # what an rc file started may have left it otherwise
    order = json.loads(read_message())
    uid = os.getuid()
    umask = os.umask(0o077)
    system = f"{sys.platform}-{os.uname().machine}"
    variant = system if system in order["bundles"] else "any"
    sha = order["bundles"][variant]
    name = sha[:12]
    os.write(1, f"\n{order['marker']}\n".encode("ascii"))
    directory = find(name, uid)
    say({"python": sys.version.split()[0], "executable": sys.executable, "variant": variant, "have": directory})
    if directory is None:
        read_exactly(order.get("ahead", 0))
        try:
            directory = install(read_message(), sha, name, uid)
        except Unusable as error:
            say({"error": str(error)})
            sys.exit(1)
        say({"have": directory})
    try:
        os.utime(directory)
    except OSError:
        pass  # a file system that became read-only still runs the agent
    os.umask(umask)  # what stages write is the user's own business
    # File names are bytes, and the console means UTF-8 whatever the locale of this login says.
    os.execv(sys.executable, [sys.executable, "-I", "-X", "utf8", os.path.join(directory, "run_agent.py")])


if __name__ == "__main__":
    main()
