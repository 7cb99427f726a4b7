"""``hosts``: the profiles, and trusting a host's key."""

from __future__ import annotations

from eagle_console import documents
from eagle_console.commands.invocation import Invocation, Refused
from eagle_console.config import default_path
from eagle_console.exit_codes import ExitCode
from eagle_console.format import UNKNOWN
from eagle_console.link import hostkeys
from eagle_console.link.errors import UnknownHostKey
from eagle_console.state import HostKeyQuestion

PROFILE_EXAMPLE = """\
[hosts.gpu-box]
address = "user@gpu-box"
workspace = "/data/eagle3-train"
verifier = "/data/models/Kimi-K2.5"
python = "/data/ml/bin/python"
tensor_parallel = 8"""


async def show(call: Invocation) -> ExitCode:
    """Lists the profiles of the configuration."""
    profiles = list(call.config.hosts.values())
    if call.out.json:
        source = str(call.config.source) if call.config.source else None
        call.out.document({"config": source, "hosts": [documents.profile(profile) for profile in profiles]})
        return ExitCode.DONE
    if not profiles:
        call.out.say(f"There is no profile yet. Write one to {call.config.source or default_path()}, for example:")
        call.out.say("")
        for line in PROFILE_EXAMPLE.splitlines():
            call.out.say(f"    {line}")
        call.out.say("")
        call.out.say("A host without a profile works too: eagle-console user@host")
        return ExitCode.DONE
    rows = [
        (profile.name, profile.address, profile.workspace or UNKNOWN, profile.verifier or UNKNOWN)
        for profile in profiles
    ]
    call.out.table(("NAME", "ADDRESS", "WORKSPACE", "VERIFIER"), rows)
    return ExitCode.DONE


async def trust(call: Invocation) -> ExitCode:
    """Accepts the key of a host that was never seen: by its fingerprint, or by a person who compares it."""
    try:
        async with call.host():
            pass
    except UnknownHostKey as unknown:
        question = unknown.question
    else:
        call.out.say(f"The key of {call.target.profile.name} is already trusted.")
        if call.out.json:
            call.out.document({"host": call.target.profile.name, "trusted": True, "added": False})
        return ExitCode.DONE
    accept_key(call, question)
    if call.out.json:
        call.out.document({"host": call.target.profile.name, "trusted": True, "added": True})
    return ExitCode.DONE


def accept_key(call: Invocation, question: HostKeyQuestion) -> None:
    """Trusts an unknown key that has the fingerprint that was given, or that a person accepts.

    :raises Refused: when it has another fingerprint, or the person does not accept it.
    """
    expected = call.arguments.fingerprint
    if expected is not None and expected != question.fingerprint:
        raise Refused(
            f"the host's {question.algorithm} key is {question.fingerprint}, not {expected}; it was not trusted"
        )
    if expected is None:
        call.confirm(
            f"{question.host} shows the {question.algorithm} key {question.fingerprint}. Trust it?",
            "trusting a host key",
        )
    path = hostkeys.trust(question)
    call.out.say(f"Trusted {question.fingerprint} for {question.host}, written to {path}.")
