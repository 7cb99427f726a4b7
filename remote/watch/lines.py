"""The grammar of a line in a vLLM log, releases 0.6 to 0.33: who says it, at what level, and the message itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Optional

from remote.watch.wrappers import unwrap

API = "api"
ENGINE = "engine"
WORKER = "worker"
UNKNOWN = ""

_PROCESS = re.compile(r"\r?\((?P<name>[A-Za-z][\w:.-]*)(?: (?:rank=|TP)\d+)? pid=\d+(?:, ip=[^)]*)?\) ?")
"""``(EngineCore_DP0 pid=7)``, ``(VllmWorker rank=1 pid=7)``, ``(RayWorkerWrapper pid=7, ip=10.0.0.2)``."""

_HEADER = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[^\]\s]{1,200}:\d+\] ?"
)
"""``INFO 07-08 13:53:31 [core.py:116] ``; up to 0.7.3 without the opening bracket."""

_UVICORN = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL): {1,8}")
_REPEATED = re.compile(r" \[repeated \d+x(?: across cluster)?\].*$")
_RANK = re.compile(r"\[rank\d+\]: ?")  # torch's, before every line of a traceback
_HEADER_WITHIN = 300  # VLLM_LOGGING_PREFIX may put any text before the header

_ROLES = (("EngineCore", ENGINE), ("VllmWorker", WORKER), ("Worker", WORKER), ("RayWorker", WORKER),
          ("APIServer", API), ("ApiServer", API), ("DPSupervisor", API), ("MainProcess", API))  # fmt: skip


@dataclass(frozen=True)
class LogLine:
    """A line without its prefixes. ``level`` is empty for text that no logger wrote: bars, tracebacks, prints.

    ``role`` is ``api``, ``engine``, ``worker``, or empty where the line does not name its process.
    """

    message: str
    level: str = ""
    role: str = UNKNOWN


def parse(line: str) -> LogLine:
    """The parts of a line; text of any other program is a message without level and role."""
    role, rest = UNKNOWN, unwrap(line).text
    if rest.startswith('{"') and '"message"' in rest:
        record = _json_record(rest)
        if record is not None:
            return record
    while True:
        process = _PROCESS.match(rest)
        if not process:
            break
        role, rest = _role(process["name"]) or role, rest[process.end() :]
    header = _HEADER.search(rest, 0, _HEADER_WITHIN) or _UVICORN.match(rest)
    level = header["level"] if header else ""
    message = rest[header.end() :] if header else rest
    if message.startswith("[rank"):
        message = _RANK.sub("", message, count=1)
    if "[repeated " in message:
        message = _REPEATED.sub("", message)
    return LogLine(message, level, role)


def _json_record(line: str) -> Optional[LogLine]:
    """A record of vLLM's JSON formatter (0.31 and later: keys levelname, processName, message)."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("message"), str):
        return None
    return LogLine(
        record["message"].split("\n", 1)[0], str(record.get("levelname", "")), _role(str(record.get("processName", "")))
    )


def _role(process: str) -> str:
    for beginning, role in _ROLES:
        if process.startswith(beginning):
            return role
    return UNKNOWN
