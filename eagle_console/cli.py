"""The command line: parses, dispatches, and turns every error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from eagle_console import __version__, completing, crash, documents
from eagle_console.arguments import Command, Describe, add_host, count, port, seconds
from eagle_console.commands import (
    compare,
    completion,
    doctor,
    explain_log,
    forward,
    get,
    gpus,
    hosts,
    hosts_add,
    jobs,
    run,
    screen,
    shell,
    stages,
    status,
    validate,
    watch,
)
from eagle_console.commands.invocation import DEFAULT_TIMEOUT, Invocation, Refused, UsageError
from eagle_console.config import TRANSPORTS, ConfigError
from eagle_console.disk_arguments import DISK_COMMANDS
from eagle_console.exit_codes import ExitCode
from eagle_console.link.errors import AddressError, LinkError, LinkTimeout
from eagle_console.output import Output
from pipeline.plan.draft_rules.facts import CONVENTIONS
from remote.protocol.errors import BAD_ARGUMENT, REFUSED, ProtocolError, RequestError

DESCRIPTION = """\
A terminal operations console for training EAGLE-3 draft models on a GPU host over SSH.

  eagle-console [HOST]      open the screen; HOST is a profile, an ssh alias, user@host:port, or local
  eagle-console demo        open it on the embedded host: no GPU and no account needed
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point: the exit code of one call."""
    words = list(sys.argv[1:] if argv is None else argv)
    out = Output(json="--json" in words)
    arguments = argparse.Namespace(command="eagle-console")
    try:
        if completing.asked():
            completing.answer(_parser(), hidden=(_SCREEN,))
        _parser().parse_args(_with_command_first(words), arguments)
        out = Output(json=arguments.json)
        return _run(arguments, out)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (for example head): not an error of ours. stdout must not be flushed again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except Exception as error:
        known = _explain(error)
        if known is None:
            crash.announce(error, crash.write_report(error, arguments.command))
            return ExitCode.CRASH
        code, klass, cause, remedy = known
        if out.json:
            out.document(documents.error(klass, cause, remedy))
        for line in f"eagle-console: {cause}".splitlines():
            out.say(line)
        for line in remedy.splitlines():
            out.say(f"  {line}")
        return code


def _run(arguments: argparse.Namespace, out: Output) -> int:
    call = Invocation(arguments, out)
    if arguments.command == _SCREEN:
        return _open_screen(call)
    command: Command = arguments.run
    return asyncio.run(_awaited(command, call))


async def _awaited(command: Command, call: Invocation) -> int:
    return await command(call)


def _open_screen(call: Invocation) -> ExitCode:
    # Textual is imported here only: the other commands start without it.
    from eagle_console.tui import app
    from eagle_console.tui.actions import DASHBOARD, HOSTS

    if not screen.has_terminal():
        raise UsageError("the screen needs a terminal; a script asks for example: eagle-console status HOST --json")
    chosen = True
    if call.arguments.host is None:
        call.arguments.host, chosen = screen.default_host(call.config)
    target = call.target
    if chosen:
        screen.remember_host(call.arguments.host)
    others = [call.narrowed(other) for other in screen.others(call.config, call.arguments.host)]
    return app.run(target, others=others, first=DASHBOARD if chosen else HOSTS, settings=call.config.screen)


def _explain(error: Exception) -> tuple[ExitCode, str, str, str] | None:
    """Exit code, class, cause and remedy of an error that we know; None for a defect of ours."""
    if isinstance(error, (UsageError, ConfigError, AddressError)):
        return (ExitCode.USAGE, "usage", str(error), getattr(error, "remedy", ""))
    if isinstance(error, Refused):
        return (ExitCode.REFUSED, "refused", str(error), "")
    if isinstance(error, RequestError):
        code = {REFUSED: ExitCode.REFUSED, BAD_ARGUMENT: ExitCode.USAGE}.get(error.code, ExitCode.FAILED)
        return (code, error.code, error.message, error.remedy)
    if isinstance(error, (LinkTimeout, TimeoutError)):
        remedy = getattr(error, "remedy", "") or "--timeout SECONDS allows more"
        return (ExitCode.TIMEOUT, "timeout", str(error) or "no answer in time", remedy)
    if isinstance(error, LinkError):
        return (ExitCode.CONNECTION, type(error).__name__, str(error), error.remedy)
    if isinstance(error, ProtocolError):
        return (ExitCode.CONNECTION, "protocol", f"the agent sent something that cannot be read: {error}", "")
    return None


class _Parser(argparse.ArgumentParser):
    """Its errors go the way of all others, so that ``--json`` answers them too.

    ``mixes``: options may stand between the words of a list, as in ``prune HOST --dry-run PATH PATH``; argparse itself
    ends the list at the first option.
    """

    mixes = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if not self.mixes:
            return super().parse_known_args(args, namespace)
        self.mixes = False
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.mixes = True

    def error(self, message: str) -> NoReturn:
        raise WrongWords(message, f"{self.prog} --help says what may be written")


class WrongWords(UsageError):
    """Words that the parser does not take, with where to read what it takes."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def _with_command_first(words: list[str]) -> list[str]:
    """The words with the command in front, so that the common options may stand before it too.

    ``eagle-console [HOST]`` and ``eagle-console demo`` become the hidden command ``screen``.

    :raises UsageError: when several words are there and the first of them is no command.
    """
    common = _Parser(prog="eagle-console", add_help=False)
    _add_common(common)
    _, rest = common.parse_known_args(words)
    names = [word for word in rest if not word.startswith("-")]
    if not names and any(word in ("-h", "--help", "--version") for word in words):
        return words
    if not names or (len(names) == 1 and names[0] not in _COMMANDS):
        return [_SCREEN, *words]
    command = names[0]
    if command not in _COMMANDS:
        nearest = difflib.get_close_matches(command, _COMMANDS, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"there are: {', '.join(_COMMANDS)}"
        raise UsageError(f"there is no command {command!r}; {hint}")
    before = words.index(command)
    return [command, *words[:before], *words[before + 1 :]]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="eagle-console", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"eagle-console {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    completing.complete_with(commands, completing.hosts)
    for name, (summary, describe) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        _add_common(command)
        describe(command)
        command.mixes = name not in _ORDERED
    opener = commands.add_parser(_SCREEN, prog="eagle-console", description="opens the screen of HOST, or of demo")
    opener.add_argument("host", nargs="?", metavar="HOST")
    _add_common(opener)
    return parser


_SCREEN = "screen"
"""The command that is meant where none is written."""

_COMMON = {"json": False, "readonly": False, "config": None, "timeout": DEFAULT_TIMEOUT, "yes": False}
_AS_BEFORE = dict.fromkeys(_COMMON, argparse.SUPPRESS)
"""For an action below a command: what is absent there leaves what stood before it."""


def _add_common(parser: argparse.ArgumentParser, absent: Mapping[str, Any] = _COMMON) -> None:
    group = parser.add_argument_group("everywhere")

    def flag(name: str, help: str) -> None:
        group.add_argument(f"--{name}", action="store_true", default=absent[name], help=help)

    flag("json", "data as JSON on stdout; docs/json.md describes it")
    flag("readonly", "refuse everything that changes the host")
    group.add_argument("--config", metavar="FILE", default=absent["config"], help="profiles from FILE")
    group.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=absent["timeout"],
        help=f"for connecting and for each answer ({DEFAULT_TIMEOUT:.0f})",
    )
    flag("yes", "answer the confirmation")


def _hosts(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=hosts.show)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    trust = actions.add_parser("trust", help="accept the key of a host that was never seen")
    add_host(trust, hosts.trust)
    trust.add_argument("--fingerprint", metavar="SHA256:…", help="trust it only if its fingerprint is this one")
    _add_common(trust, _AS_BEFORE)
    new = actions.add_parser("add", help="test the connection to a host and write its profile")
    new.set_defaults(run=hosts_add.add)
    new.add_argument("name", metavar="NAME")
    new.add_argument("address", metavar="ADDRESS", help="ssh alias, user@host:port, or local")
    new.add_argument("--workspace", metavar="DIR", help="where the artifact directories are; nothing else is deleted")
    new.add_argument("--verifier", metavar="DIR", help="the verifier's folder on the host")
    new.add_argument("--python", metavar="PATH", help="the interpreter of the ML environment on the host")
    new.add_argument("--tensor-parallel", metavar="N", type=count, help="GPUs that the verifier is spread over")
    new.add_argument("--transport", choices=TRANSPORTS, help="ssh: connect with the system's ssh")
    new.add_argument("--no-test", action="store_true", help="write the profile without connecting")
    new.add_argument("--fingerprint", metavar="SHA256:…", help="trust an unknown key only if it has this fingerprint")
    _add_common(new, _AS_BEFORE)


def _gpus(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=gpus.gpus)
    parser.add_argument("words", nargs="+", metavar="HOST", help="or: free HOST [PID...] ends what holds GPU memory")
    parser.add_argument("--dry-run", action="store_true", help="of free: show what would be ended, end nothing")
    parser.add_argument(
        "--force", action="append", default=[], metavar="NAME", help="of free: also what this job or user protects"
    )


def _status(parser: argparse.ArgumentParser) -> None:
    add_host(parser, status.status)
    parser.add_argument("--watch", action="store_true", help="again every two seconds")


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    add_host(parser, run.run)
    stage = parser.add_argument("stage", metavar="STAGE", help="eagle-console stages HOST lists them")
    completing.complete_with(stage, completing.stages)
    parameters = parser.add_argument("parameters", nargs="*", default=[], metavar="key=value")
    completing.complete_with(parameters, completing.parameters)
    parser.add_argument(
        "--follow", action="store_true", help="until a service is ready or a task ends; Ctrl-C leaves it"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the command line and the checks, start nothing")
    parser.add_argument(
        "--force", action="append", default=[], metavar="CHECK", help="launch although CHECK says no; may be repeated"
    )


def _job(parser: argparse.ArgumentParser, command: Command) -> None:
    add_host(parser, command)
    parser.add_argument("job", metavar="JOB", help="an id, the beginning of one, or a stage (its newest job)")


def _compare(parser: argparse.ArgumentParser) -> None:
    add_host(parser, compare.compare)
    parser.add_argument("left", metavar="JOB", help="an id, the beginning of one, a stage, or adopted-PID")
    parser.add_argument("right", metavar="JOB", help="the other one")


def _logs(parser: argparse.ArgumentParser) -> None:
    _job(parser, jobs.logs)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    parser.add_argument(
        "--tail", type=count, metavar="N", help=f"the last N lines ({jobs.DEFAULT_TAIL} without --since)"
    )
    parser.add_argument(
        "--since", metavar="T", help="written since T on the host's clock: 10m, 2h, 14:05, '2026-11-30 14:05', epoch"
    )
    parser.add_argument("--grep", metavar="P", help="of these lines, those that match the regular expression P")


def _shell(parser: argparse.ArgumentParser) -> None:
    add_host(parser, shell.shell)
    parser.add_argument("words", nargs="*", default=[], metavar="COMMAND", help="after --: instead of a login shell")


def _forward(parser: argparse.ArgumentParser) -> None:
    _job(parser, forward.forward)
    parser.add_argument("--port", type=port, metavar="LOCAL", help="here; by default the host's number if it is free")


def _get(parser: argparse.ArgumentParser) -> None:
    add_host(parser, get.get)
    parser.add_argument("path", metavar="PATH", help="absolute, below the workspace, or ~/...")
    parser.add_argument("destination", nargs="?", metavar="DEST", help="a file or a directory here")
    parser.add_argument("--force", action="store_true", help="replace what is at DEST")


def _stop(parser: argparse.ArgumentParser) -> None:
    _job(parser, jobs.stop)
    parser.add_argument("--force", action="store_true", help="without the stage's grace period")
    parser.add_argument("--name", metavar="NAME", help="of what is not ours: its name, typed, stops it")


def _watch(parser: argparse.ArgumentParser) -> None:
    add_host(parser, watch.watch)
    parser.add_argument("--log", metavar="FILE", help="the file that its output goes to, on the host")
    parser.add_argument("--pid", type=count, metavar="N", help="its main process: its end ends the watch")
    parser.add_argument("--until-ready", action="store_true", help="end when its server is ready")


_ORDERED = ("hosts", "shell")
"""Commands whose words have an order: an action with its own options, a command line after ``--``."""


def _validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("draft", metavar="[HOST:]DIR", help="the draft's folder, here or on a host")
    parser.add_argument("--verifier", metavar="[HOST:]DIR", help="the verifier's folder, on the same machine")
    parser.add_argument(
        "--layer-ids", choices=CONVENTIONS, help="how the draft's layer ids count; vLLM's are one more than SGLang's"
    )
    parser.add_argument(
        "--fix", nargs="?", const="", metavar="OUT", help="write a corrected copy, beside the draft where OUT is absent"
    )
    parser.set_defaults(run=validate.validate)


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=completion.completion)
    parser.add_argument("shell", choices=completing.SHELLS, help="docs/completion.md says where its output goes")


def _explain_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a log of vllm serve, plain or gzip; - reads standard input")
    parser.add_argument("--exit-code", type=int, metavar="N", help="how its process ended; -9 is signal 9")
    parser.add_argument("--dmesg", metavar="FILE", help="the kernel's log of that time, for what it killed")
    parser.set_defaults(run=explain_log.explain_log)


_COMMANDS: dict[str, tuple[str, Describe]] = {
    "hosts": ("the profiles; hosts add NAME ADDRESS writes one, hosts trust HOST accepts a new key", _hosts),
    "doctor": ("what holds and what does not on the way to a host", lambda parser: add_host(parser, doctor.doctor)),
    "status": ("one picture of everything: GPUs, disk, jobs, load", _status),
    "gpus": ("GPUs and who holds their memory; gpus free HOST [PID...] ends holders", _gpus),
    **DISK_COMMANDS,
    "stages": ("the catalogue with each stage's preflight verdict", lambda parser: add_host(parser, stages.stages)),
    "run": ("launch a stage; it survives this console", _run_arguments),
    "jobs": ("what runs and what ran", lambda parser: add_host(parser, jobs.jobs)),
    "compare": ("two jobs side by side: settings, results, differences", _compare),
    "logs": ("a job's log", _logs),
    "shell": ("a shell, or a command, on the host", _shell),
    "forward": ("the server of a job on a port of this machine", _forward),
    "get": ("a file or a directory of the host, with resume and proof", _get),
    "watch": ("follow a run that we did not start, read-only", _watch),
    "explain-log": ("read a vLLM log offline: phase, progress, root cause, remedy", _explain_log),
    "stop": ("end a job and every process of it", _stop),
    "completion": ("what bash, zsh or fish reads to complete the words of this program", _completion),
    "validate": ("what vLLM would make of a draft, and a corrected copy of it", _validate),
}


if __name__ == "__main__":
    sys.exit(main())
