"""Hosts on which the agent cannot be stored where it should: full, read-only, missing, somebody else's, interrupted.

Each server's sessions get a mount namespace of their own, in which home, /dev/shm and /tmp are what the case says.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from link.sshd import SshServer, introduce, target

from eagle_console.link.bootstrap import EXEC_LINE, READY, start_agent
from eagle_console.link.bundle import bundles, stage1_source
from eagle_console.link.connect import Connected, open_session, reach
from eagle_console.link.errors import BundleError

StartSshd = Callable[..., SshServer]

NOBODY = 65534
HOME = "/mnt/home"
ORDINARY = (
    "mount -t tmpfs -o mode=755 none /mnt",
    f"mkdir -m 700 {HOME}",
    "mount -t tmpfs -o mode=1777 none /dev/shm",
    "mount -t tmpfs -o mode=1777 none /tmp",
)
FULL_HOME = f"mount -t tmpfs -o size=64k none {HOME}"
FULL_SHM = "mount -t tmpfs -o size=64k,mode=1777 none /dev/shm"
FULL_TMP = "mount -t tmpfs -o size=64k,mode=1777 none /tmp"
NO_SHM = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9"
AGENTS = f"{HOME}/.cache/eagle_console/agents"
SHM = f"/dev/shm/eagle_console-{os.getuid()}"
TMP = f"/tmp/eagle_console-{os.getuid()}"


def _can_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not _can_mount(), reason="mount namespaces need root"),
]


@pytest.fixture
def host(start_sshd: StartSshd, console_home: Path, tmp_path: Path) -> Callable[..., SshServer]:
    """Starts a server whose sessions see the file systems that the given commands make."""

    def start(*commands: str) -> SshServer:
        wrapper = tmp_path / "session"
        lines = ["#!/bin/sh", "set -e", *ORDINARY, *commands, f"export HOME={HOME}", "unset XDG_CACHE_HOME"]
        wrapper.write_text("\n".join([*lines, 'exec /bin/bash -c "$SSH_ORIGINAL_COMMAND"']) + "\n")
        wrapper.chmod(0o755)
        server = start_sshd(config=f"ForceCommand exec unshare -m {wrapper}")
        introduce(server, console_home)
        return server

    return start


async def connected(server: SshServer, look: Callable[[Connected, Path], None]) -> None:
    """Connects, and looks at the host's files through the agent's own mount namespace."""
    async with reach(target(server)) as endpoint, open_session(endpoint) as link:
        look(link, Path(f"/proc/{link.session.hello.pid}/root"))


@pytest.mark.parametrize(
    ("commands", "place"),
    [
        pytest.param((), AGENTS, id="ordinary"),
        pytest.param((FULL_HOME,), SHM, id="home is full"),
        pytest.param((f"mount -t tmpfs -o size=600k none {HOME}",), SHM, id="home gets full in the middle"),
        pytest.param((f"mount -t tmpfs -o nr_inodes=9 none {HOME}",), SHM, id="home has no inodes left"),
        pytest.param((f"mount -t tmpfs -o ro none {HOME}",), SHM, id="home is read-only"),
        pytest.param((f"rmdir {HOME}",), SHM, id="home is missing"),
        pytest.param((f"rmdir {HOME}; touch {HOME}",), SHM, id="home is a file"),
        pytest.param((FULL_HOME, FULL_SHM), TMP, id="home and shm are full"),
        pytest.param((FULL_HOME, NO_SHM), TMP, id="home is full and there is no shm"),
        pytest.param((f"mkdir -p {AGENTS}; chown {NOBODY} {AGENTS}",), SHM, id="somebody else's agents"),
        pytest.param((f"mkdir -p {AGENTS}; chown {NOBODY} {HOME}/.cache",), SHM, id="in somebody else's folder"),
        pytest.param((f"mkdir -p {AGENTS}; chmod 777 {HOME}/.cache",), SHM, id="in a folder that all can write"),
        pytest.param((f"mkdir -p {AGENTS}; chmod 775 {HOME}/.cache",), AGENTS, id="in a folder of our group"),
        pytest.param((f"mkdir -p {AGENTS}; chmod 770 {AGENTS}",), SHM, id="a group can write"),
        pytest.param((f"mkdir -p {HOME}/.cache/eagle_console; ln -s /etc {AGENTS}",), SHM, id="a link in the way"),
        pytest.param((f"mkdir -p {HOME}/.cache/eagle_console; ln -s /no {AGENTS}",), SHM, id="a dangling link"),
        pytest.param((f"mkdir /mnt/big; ln -s ../big {HOME}/.cache",), AGENTS, id="the cache is a link of ours"),
        pytest.param((FULL_HOME, f"mkdir {SHM}; chown {NOBODY} {SHM}"), TMP, id="shm planted by another user"),
        pytest.param((FULL_HOME, f"ln -s /etc {SHM}"), TMP, id="shm planted as a link"),
        pytest.param((f"mkdir -p {AGENTS}/.new-x; touch {AGENTS}/.new-x/lib",), AGENTS, id="left by a crash"),
    ],
)
async def test_the_first_place_that_takes_it(
    host: Callable[..., SshServer], commands: tuple[str, ...], place: str
) -> None:
    def look(link: Connected, root: Path) -> None:
        assert str(Path(link.bootstrap.directory).parent) == place
        assert (root / link.bootstrap.directory[1:]).stat().st_mode & 0o777 == 0o700
        for unused in (AGENTS, SHM, TMP):
            folder = root / unused[1:]
            if unused != place and folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                assert not list(folder.iterdir()), "something was left behind"

    await connected(host(*commands), look)


async def test_nothing_is_made_where_home_is_missing(host: Callable[..., SshServer]) -> None:
    def look(link: Connected, root: Path) -> None:
        assert not (root / HOME[1:]).exists()

    await connected(host(f"rmdir {HOME}"), look)


@pytest.mark.parametrize("commands", [(FULL_HOME, FULL_SHM), (FULL_HOME, NO_SHM)])
async def test_mounts_that_forbid_programs_cost_psutil_only(
    host: Callable[..., SshServer], commands: tuple[str, ...]
) -> None:
    def look(link: Connected, root: Path) -> None:
        assert str(Path(link.bootstrap.directory).parent) == TMP
        assert not link.session.hello.psutil

    await connected(host(*commands, "mount -t tmpfs -o noexec,mode=1777 none /tmp"), look)


async def test_no_place_at_all_is_one_sentence_with_every_reason(host: Callable[..., SshServer]) -> None:
    server = host(FULL_HOME, f"mkdir {SHM}; chown {NOBODY} {SHM}", FULL_TMP)
    with pytest.raises(BundleError) as caught:
        await connected(server, lambda link, root: None)
    reasons = caught.value.message.partition("cannot store the agent: ")[2].split("; ")
    assert reasons == [
        f"{AGENTS}: No space left on device",
        f"{SHM} belongs to user {NOBODY}",
        f"{TMP}: No space left on device",
    ]


async def test_an_interrupted_upload_leaves_nothing_and_the_next_one_works(
    start_sshd: StartSshd, console_home: Path
) -> None:
    server = start_sshd()
    introduce(server, console_home)
    source, data = stage1_source(), bundles()[f"linux-{os.uname().machine}"].data
    order = b'{"marker": "m", "bundles": {"any": "%s"}}' % (b"0" * 64)
    async with reach(target(server)) as endpoint:
        async with endpoint.transport() as transport:
            channel = await transport.open(EXEC_LINE)
            while await channel.read_line(1000) != f"{READY}\n".encode():
                pass
            await channel.write(b"%06d" % len(source) + source + b"%010d" % len(order) + order)
            while b'"have": null' not in await channel.read_line(1000):
                pass
            await channel.write(b"%010d" % len(data) + data[: len(data) // 2])
            server.drop_connections()
        assert not server.cache.exists()
        async with endpoint.transport() as transport:
            channel = await transport.open(EXEC_LINE)
            assert (await start_agent(channel, "box")).uploaded_bytes == len(data)
            await channel.close()


async def test_a_bundle_is_not_swapped_under_consoles_that_upload_over_a_broken_one(
    start_sshd: StartSshd, console_home: Path
) -> None:
    server = start_sshd()
    introduce(server, console_home)

    async def start() -> str:
        async with reach(target(server)) as endpoint, open_session(endpoint) as link:
            return link.bootstrap.directory

    directory = Path(await start())
    (directory / "manifest.json").write_text("{")
    assert set(await asyncio.gather(start(), start(), start())) == {str(directory)}
    assert [entry.name for entry in server.cache.iterdir()] == [directory.name]
