"""``shell``: a login shell, or a command, on the host with this terminal."""

from __future__ import annotations

from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.link.connect import reach


async def shell(call: Invocation) -> int:
    """Its exit status is that of the shell. Nothing of the agent is needed on the host."""
    if call.out.json:
        raise UsageError("a shell has no JSON form; run one command by ssh, or use the other commands' --json")
    async with reach(call.target) as endpoint, endpoint.transport() as transport:
        return await transport.shell(call.arguments.words)
