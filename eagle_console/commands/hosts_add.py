"""``hosts add``: tests the way to a host, says what it found there, and writes the profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eagle_console import documents
from eagle_console.commands.doctor import host_checks, report_checks, ssh_checks
from eagle_console.commands.hosts import accept_key
from eagle_console.commands.invocation import Invocation, UsageError
from eagle_console.commands.terminal_prompter import TerminalPrompter
from eagle_console.config import default_path
from eagle_console.config_file import append_profile, read_profile
from eagle_console.exit_codes import ExitCode
from eagle_console.link.connect import Target, connect, resolve
from eagle_console.link.errors import UnknownHostKey
from remote.protocol.errors import RequestError
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, Check

_MAX_UNKNOWN = 9
"""Unknown keys to decide on: those of eight jump hosts and of the host itself."""


async def add(call: Invocation) -> ExitCode:
    """Adds a profile. What the host lacks is reported and does not keep the profile from being written."""
    arguments = call.arguments
    values: dict[str, str | int | bool] = {"address": arguments.address}
    for option in ("workspace", "verifier", "python", "tensor_parallel", "transport"):
        value = getattr(arguments, option)
        if value is not None:
            values[option] = value
    if arguments.readonly:
        values["readonly"] = True
    if arguments.name in call.config.hosts:
        raise UsageError(f"there is a profile {arguments.name!r} already in {call.config.source}; change it there")
    profile = read_profile(arguments.name, values)
    target = resolve(profile.name, replace(call.config, hosts={profile.name: profile}))
    checks = [] if arguments.no_test else await _tested(call, target)
    path = Path(arguments.config) if arguments.config else default_path()
    append_profile(path, profile.name, values)
    report_checks(call.out, checks)
    call.out.say(f"Wrote [hosts.{profile.name}] to {path}. Open it: eagle-console {profile.name}")
    if call.out.json:
        found = [documents.check(check) for check in checks]
        call.out.document({"host": documents.profile(profile), "config": str(path), "checks": found})
    return ExitCode.DONE


async def _tested(call: Invocation, target: Target) -> list[Check]:
    """What there is to say about the host after a connection to it.

    :raises LinkError: when there is none; nothing is written then.
    """
    checks = await ssh_checks(target.profile)
    for _ in range(_MAX_UNKNOWN):
        try:
            async with connect(target, call.timeout, TerminalPrompter()) as client:
                checks.append(Check("link", VERDICT_OK, f"connected to {target.profile.address}"))
                return checks + await host_checks(client, target.profile.context)
        except RequestError as error:
            return [*checks, Check("agent", VERDICT_BLOCKED, error.message, error.remedy)]
        except UnknownHostKey as unknown:
            accept_key(call, unknown.question)
    raise UsageError(f"more than {_MAX_UNKNOWN} unknown host keys on the way to {target.name}")
