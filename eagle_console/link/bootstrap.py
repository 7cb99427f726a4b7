"""From a shell on the host to a running agent: one constant command line, then everything over its stdin.

The command line is the same for every host, transport and version, so that a forced command in ``authorized_keys`` can
allow exactly it. It only finds a Python and lets it run the text that follows on stdin. That text is stage 1
(``remote/entry/stage1.py``), which stores the bundle if the host lacks it and becomes the agent.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass
from typing import Any

from eagle_console.link.bundle import bundles, stage1_source
from eagle_console.link.errors import AgentError, BootstrapError, BundleError, NoPython
from eagle_console.link.transport import Channel

PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9")
READY = "eagle-console-ready"
NO_PYTHON = "eagle-console-no-python"

EXEC_LINE = (
    "exec /bin/sh -c '"
    f"for p in {' '.join(PYTHONS)}; do "
    'q=$("$p" -ISc "import sys;sys.version_info<(3,9) or print(sys.executable)" 2>/dev/null </dev/null) && '
    f'[ -x "$q" ] && echo && echo {READY} && exec "$q" -Ic '
    '"import os,signal;signal.alarm(30);os.set_blocking(0,1);'
    'r=lambda n:bytes().join(os.read(0,1) for i in range(n));exec(r(int(r(6))))"; '
    f"done; echo; echo {NO_PYTHON}; exit 127'"
)
"""What runs on the host. It has no backslash, no exclamation mark, no inner single quote and no newline: sh, bash,
dash, zsh, fish and csh all read such a single-quoted word alike. Nothing is sent before the line has said that it is
ready: a shell or program that rc files or a forced command started in its place would take our text for commands. The
inner line reads six digits, then that many bytes of Python text, a byte at a time so that nothing that belongs to the
agent is read ahead; it waits for 30 s, as the agent does, should the console go away without a word. The interpreter
tells its own path first: a version manager's ``python3`` is a slow script, which is then run only once, and one that is
broken tells none."""

NOISE_BYTES = 1024 * 1024
"""Of what a login shell's rc files may print before the line runs."""

READY_SECONDS = 20.0
"""How long rc files may take. A console that gives a connection less time ends it first."""

LENGTH_DIGITS = 10  # as in stage 1
_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True)
class BootstrapResult:
    """How the agent was started: bytes of bundle sent (0: the host had it), the host's Python, the bundle's folder."""

    uploaded_bytes: int
    python: str
    directory: str


async def start_agent(channel: Channel, host: str, opening: bytes = b"") -> BootstrapResult:
    """Makes the command ``EXEC_LINE``, which runs in ``channel``, the agent. The next line to read is the agent's.

    :param host: the name to use in messages.
    :param opening: what the agent is to read first. It is sent ahead, which saves a round trip.
    :raises NoPython, BundleError, BootstrapError: when it cannot become one.
    :raises ConnectionLost: when the connection fails meanwhile.
    """
    await channel.begun()
    await _until_ready(channel, host)
    marker = secrets.token_hex(16)
    source, available = stage1_source(), bundles()
    hashes = {platform: bundle.sha256 for platform, bundle in available.items()}
    order = json.dumps({"marker": marker, "bundles": hashes, "ahead": len(opening)}).encode()
    await channel.write(b"%06d" % len(source) + source + _message(order) + opening)
    await _skip_noise(channel, marker, host)
    found = await _answer(channel, host)
    directory, uploaded = found.get("have"), 0
    if directory is None:
        variant = found.get("variant")
        if variant not in available:
            raise BootstrapError(f"{host} asks for a bundle that there is not: {variant!r}")
        data = available[variant].data
        await channel.write(_message(data) + opening)
        uploaded = len(data)
        directory = (await _answer(channel, host)).get("have")
    return BootstrapResult(uploaded, str(found.get("python")), str(directory))


async def _until_ready(channel: Channel, host: str) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            await _skip_noise(channel, READY, host)
    except TimeoutError:
        raise BootstrapError(
            f"{host} let us in and did not run our command in {READY_SECONDS:g} s",
            "a forced command or the login shell's rc files run something else, or wait for input; see docs/link.md",
        ) from None


async def _skip_noise(channel: Channel, awaited: str, host: str) -> None:
    """Reads up to the line ``awaited``; what comes before it was printed by the login shell."""
    noise, last = 0, b""
    while noise <= NOISE_BYTES:
        try:
            line = await channel.read_line(NOISE_BYTES)
        except AgentError:
            break
        if line.rstrip(b"\r\n") == awaited.encode():
            return
        if line.strip() == NO_PYTHON.encode():
            raise NoPython(
                f"{host} has no Python 3.9 or newer; tried {', '.join(PYTHONS)}",
                "install Python 3.9 or newer there, or put it on the PATH of non-interactive shells",
            )
        if not line:
            raise await _ended(channel, last, host)
        noise, last = noise + len(line), line if line.strip() else last
    raise BootstrapError(
        f"{host} printed more than {NOISE_BYTES // 1024} KiB before the agent started",
        "make the login shell's rc files silent for non-interactive shells",
    )


async def _answer(channel: Channel, host: str) -> dict[str, Any]:
    line = await channel.read_line(_ANSWER_BYTES)
    if not line:
        raise await _ended(channel, b"", host)
    try:
        answer = json.loads(line)
    except ValueError:
        raise BootstrapError(f"{host} answered the bootstrap with {line[:200]!r}") from None
    if not isinstance(answer, dict):
        raise BootstrapError(f"{host} answered the bootstrap with {line[:200]!r}")
    if "error" in answer:
        raise BundleError(
            f"{host} cannot store the agent: {answer['error']}",
            "free some space, or make one of these places a folder of your own",
        )
    return answer


async def _ended(channel: Channel, last: bytes, host: str) -> BootstrapError:
    """What the host said last, when it ended instead of starting the agent."""
    status = await channel.wait()
    how = "by a signal" if status is None or status < 0 else f"exit status {status}"
    words = (last.decode(errors="replace") + channel.stderr.text()).strip().splitlines()
    said = f": {words[-1][:300]}" if words else ""
    if said.startswith((": ModuleNotFoundError", ": ImportError")):
        return NoPython(
            f"the Python on {host} is not complete{said}",
            "install the full Python there (on Debian and Ubuntu python3, not only python3-minimal)",
        )
    return BootstrapError(
        f"{host} ended the command that starts the agent ({how}){said}",
        "a forced command or a restricted shell must allow the line that eagle-console runs; see docs/link.md",
    )


def _message(data: bytes) -> bytes:
    return b"%0*d" % (LENGTH_DIGITS, len(data)) + data
