"""What a crash leaves behind: one redacted report file under the console's state directory.

Tracebacks with locals, such as Textual's own, print tokens and addresses; a report must be safe to paste in an issue.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path

from eagle_console import __version__
from eagle_console.config import state_dir

_SECRET_NAMES = re.compile(r"(?i)(\b[\w-]*(?:token|secret|password|passphrase|api[_-]?key)[\w-]*\s*[=:]\s*)\S+")
_SECRET_VARIABLES = re.compile(r"(?i)token|secret|password|passphrase|api_?key|credential")
_MIN_SECRET = 8  # a shorter value would take ordinary words out of the text

_SECRET_VALUES = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_)[A-Za-z0-9_-]{8,}")
_USER_AT_HOST = re.compile(r"\b[\w.-]+@[\w.-]+")


def redact(text: str) -> str:
    """``text`` without tokens, passwords, the home directory's name and ``user@host`` addresses.

    What the environment holds under a secret's name is taken out wherever it stands.
    """
    for name, value in os.environ.items():
        if _SECRET_VARIABLES.search(name) and len(value) >= _MIN_SECRET:
            text = text.replace(value, "<redacted>")
    text = text.replace(str(Path.home()), "~")
    text = _SECRET_NAMES.sub(r"\1<redacted>", text)
    text = _SECRET_VALUES.sub("<redacted>", text)
    return _USER_AT_HOST.sub("<user@host>", text)


def write_report(error: BaseException, doing: str) -> Path | None:
    """Writes the report of an unexpected error; None when even that is not possible.

    :param doing: what the console was doing, for example the command's name.
    """
    lines = [
        f"eagle-console {__version__}, textual {version('textual')}, asyncssh {version('asyncssh')}",
        f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {platform.machine()}",
        f"doing: {doing}",
        "",
        "".join(traceback.format_exception(error)),
    ]
    folder = state_dir() / "crash"
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(redact("\n".join(lines)), encoding="utf-8")
        path.chmod(0o600)
    except OSError:
        return None
    return path


def announce(error: BaseException, report: Path | None) -> None:
    """One paragraph on stderr: what happened and where the report is."""
    where = f"A report without secrets is in {report}" if report else "No report could be written"
    print(f"eagle-console crashed: {type(error).__name__}: {redact(str(error))}\n{where}.", file=sys.stderr)  # noqa: T201 - the process ends here
