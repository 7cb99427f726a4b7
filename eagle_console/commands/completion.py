"""``completion``: what a shell reads to complete the words of this program."""

from __future__ import annotations

from eagle_console import completing
from eagle_console.commands.invocation import Invocation
from eagle_console.exit_codes import ExitCode


async def completion(call: Invocation) -> ExitCode:
    """Prints the code for one shell."""
    code = completing.shell_code(call.arguments.shell)
    if call.out.json:
        call.out.document({"shell": call.arguments.shell, "code": code})
    for line in code.splitlines():
        call.out.line(line)
    return ExitCode.DONE
