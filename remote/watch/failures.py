"""Why a start or a server failed, from its log: a pure function of lines, then a verdict once it has ended.

The first real cause counts: when a worker fails, engine, API server and the other ranks report their own ends after it.
The memory is bounded: one line is kept for each of a few kinds.
"""

from __future__ import annotations

import math
import re
import signal as signals
from dataclasses import dataclass, field, replace
from typing import Optional

from remote.protocol.progress import Failure
from remote.watch import failure_classes as classes
from remote.watch import lines, vllm_load, vllm_wording

MAX_LINE = 500
_SHORTEST_WRAPPED = 60
_LONGEST_WRAPPED = 1000  # of a message over several lines; what goes on for longer is a flood of other text
_SEARCHED = 4096  # of a line: causes stand at its beginning, and some patterns are slow on long nonsense

_QUIET = ("DEBUG", "INFO", "WARNING")  # a failure is an error line, or text that no logger wrote
_EXCEPTION = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout)(?:\(\w+\))?(?:: .*|$)")
_FRAME = re.compile(r'    |  File "')  # a traceback quotes source text, which may hold any message
_SOURCE = re.compile(r"[^\s^~]")  # but not the line of ^^^^ below it
_UNPROVEN = ("host_oom_killed", "process_died")  # classes that the kernel's own word makes certain
_WANTED_END = re.compile(r"KeyboardInterrupt|SystemExit: 0$")


@dataclass(frozen=True)
class Scan:
    """What has been found so far: the first of each kind.

    ``load`` tells how far the start was, ``frame`` is the last source line of a traceback that has not ended yet,
    ``open_text`` a message that may go on in the next line. ``in_request``: a request's traceback is being printed,
    which ends no server. ``died``: a process of the server has reported an end. ``stopping``: it was told to stop, and
    what goes wrong in its end is no failure.
    """

    cause: Optional[Failure] = None
    weak: Optional[Failure] = None
    engine_exception: str = ""
    exception: str = ""
    engine_spoke: bool = False
    frame: str = ""
    open_text: str = ""
    in_request: bool = False
    died: bool = False
    stopping: bool = False
    load: vllm_load.LoadState = field(default_factory=vllm_load.initial)


def initial() -> Scan:
    """The scan before the first line."""
    return Scan()


def read_line(scan: Scan, line: str) -> Scan:
    """The scan after one more line of the log."""
    record = lines.parse(line)
    complete = scan.load.startup_complete
    load = vllm_load.read_line(scan.load, line, math.inf)  # only its phases are of use here
    inside = record.role in (lines.ENGINE, lines.WORKER)
    if load is not scan.load or (inside and not scan.engine_spoke):
        scan = replace(scan, load=load, engine_spoke=scan.engine_spoke or inside)
    if load.startup_complete and not complete:
        scan = Scan(engine_spoke=True, load=load)  # what went wrong before did not keep it from serving
    message = record.message[:_SEARCHED].rstrip()
    if scan.cause or scan.stopping or not message or classes.HARMLESS.search(message):
        return scan
    if record.level in _QUIET:
        return _read_quiet(scan, message)
    if _FRAME.match(message):
        return replace(scan, frame=message[:MAX_LINE]) if _SOURCE.search(message) else scan
    if record.level or record.role:
        scan = replace(scan, in_request=classes.IN_REQUEST.search(message) is not None, open_text="")
    elif classes.IN_REQUEST.search(message):
        scan = replace(scan, in_request=True)
    if classes.CONSEQUENCES.search(message):
        scan = replace(scan, died=True, in_request=False)
    elif scan.in_request or (scan.load.startup_complete and record.role == lines.API):
        return scan
    return _read_error(scan, message, inside, len(line) >= _SHORTEST_WRAPPED, bool(record.level or record.role))


def _read_quiet(scan: Scan, message: str) -> Scan:
    told = not scan.died and not scan.engine_exception and classes.STOPPED.search(message) is not None
    if not told and not scan.open_text and not scan.in_request:
        return scan
    return replace(scan, stopping=told, open_text="", in_request=False)


def _read_error(scan: Scan, message: str, inside: bool, may_go_on: bool, begins: bool) -> Scan:
    whole = (
        [message]
        if begins or not scan.open_text or len(scan.open_text) > _LONGEST_WRAPPED
        else [message, scan.open_text + message, f"{scan.open_text} {message}"]
    )
    found = next((found for found in (_classify(scan, text, inside) for text in whole) if found), None)
    open_text = whole[-1 if len(whole) == 1 else 1] if may_go_on and found is None else ""
    if scan.frame or scan.open_text != open_text:
        scan = replace(scan, frame="", open_text=open_text[:_SEARCHED])
    if found is not None:
        klass, failure = found
        if not klass.weak:
            return replace(scan, cause=failure)
        return scan if scan.weak else replace(scan, weak=failure)
    if classes.CONSEQUENCES.search(message) or not _EXCEPTION.match(message) or _WANTED_END.match(message):
        return scan
    if inside:
        return scan if scan.engine_exception else replace(scan, engine_exception=message[:MAX_LINE])
    return scan if scan.exception else replace(scan, exception=message[:MAX_LINE])


def verdict(scan: Scan, code: Optional[int], signal: Optional[int], kernel: Optional[str] = None) -> Optional[Failure]:
    """Why it failed, once it has ended with an exit code or by a signal.

    :param kernel: what the kernel says about killing one of its processes for memory (``kernel``); empty where it has
        killed none, None where nobody could ask it.

    :return: None only while it runs (``code`` and ``signal`` are None) and its log names no known cause.
    """
    if scan.cause and not (kernel and scan.cause.klass in _UNPROVEN):
        return scan.cause
    if code is None and signal is None:
        return scan.cause
    if kernel:
        return classes.killed_by_kernel(kernel[:MAX_LINE], _how(code, signal))
    exception = scan.engine_exception or scan.exception
    if exception:
        return Failure("exception", f"The first error in the log: {exception}", line=exception)
    return scan.weak or _gone(code, signal, kernel)


def _classify(scan: Scan, message: str, inside: bool) -> Optional[tuple[classes.FailureClass, Failure]]:
    if not any(word in message for word in classes.WORDS):
        return None
    for klass in classes.CLASSES:
        if klass.frame not in scan.frame or not _applies(klass.when, scan, inside):
            continue
        for pattern in klass.patterns:
            match = pattern.search(message)
            if match:
                words = {name: value or "?" for name, value in match.groupdict().items()}
                cause, remedy = klass.cause.format_map(words), klass.remedy.format_map(words)
                return klass, Failure(klass.name, cause, remedy, message.strip()[:MAX_LINE])
    return None


def _applies(when: str, scan: Scan, inside: bool) -> bool:
    reached = {phase.name for phase in scan.load.phases}
    if when == classes.ANY_TIME:
        return True
    if when == classes.BEFORE_ENGINE:
        return not inside and not scan.engine_spoke and vllm_wording.WEIGHTS not in reached
    if when == classes.WITH_DRAFT:
        return vllm_wording.DRAFT in reached
    loaded = bool(reached) and vllm_wording.PHASES.index(scan.load.phase) >= vllm_wording.PHASES.index(
        vllm_wording.POST_LOAD
    )
    return loaded == (when == classes.AFTER_MODEL_LOADED)


def _gone(code: Optional[int], signal: Optional[int], kernel: Optional[str]) -> Failure:
    cause = f"The process is gone, no reason in the log ({_how(code, signal)})."
    remedy = ""
    if signals.SIGKILL in (signal, None if code is None else code - 128):
        remedy = "If nobody killed it, see dmesg for 'Out of memory: Killed process'."
        if kernel is not None:
            remedy = "The kernel killed none of its processes for memory: somebody or a scheduler has."
    return Failure("gone", cause, remedy)


def _how(code: Optional[int], signal: Optional[int]) -> str:
    if signal is not None:
        return f"ended by {_signal_name(signal)}"
    if code is not None and 128 < code < 128 + signals.NSIG:
        return f"exit code {code}, as a shell reports {_signal_name(code - 128)}"
    return f"exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number}, {signals.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
