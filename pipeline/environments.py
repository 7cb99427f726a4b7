"""Makes ML environments: ``python -m pipeline.environments SET FOLDER``, and the parts that the stage ``setup`` uses.

Runs in any Python from 3.9 on, since it runs before there is an environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from pipeline.plan import sets
from pipeline.plan.sets import MODULES, PinnedSet

_DRIVER = Path("/proc/driver/nvidia/version")
_QUERY = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")

PROBE = """
import importlib, json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        found[name] = ""
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
torch = sys.modules.get("torch")
devices = torch.cuda.device_count() if torch is not None and torch.cuda.is_available() else 0
versions = {item.metadata["Name"].lower().replace("_", "-"): item.version for item in metadata.distributions()}
answer = {"imports": found, "devices": devices, "versions": versions, "python": sys.version.split()[0]}
print("\\n" + json.dumps(answer))
"""


@dataclass(frozen=True)
class Proof:
    """What an environment's own interpreter says of itself.

    :param problems: why a module cannot be imported, by its name; empty for an environment that is of use.
    :param devices: GPUs that its torch can use.
    """

    problems: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)
    devices: int = 0
    python: str = ""

    def missing(self, pinned: PinnedSet) -> list[str]:
        """The pins that are not installed as they must be: ``torch 2.13.0``. A local part (``+cpu``) does not count."""
        return [
            f"{name} {version}"
            for name, version in pinned.pins.items()
            if self.versions.get(name, "").partition("+")[0] != version.partition("+")[0]
        ]


def driver() -> Optional[str]:
    """The NVIDIA driver's version; None where none is loaded."""
    with contextlib.suppress(OSError):
        return sets.parse_driver(_DRIVER.read_text())
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=20, check=True)
        return answer.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def probe_argv(python: str) -> tuple[str, ...]:
    """The command whose last line ``proof`` reads."""
    return (python, "-c", PROBE, *MODULES)


def proof(output: str) -> Proof:
    """What the probe has found, from its output; an environment that says nothing has a problem."""
    try:
        data: Mapping[str, Any] = json.loads(output.rstrip().rpartition("\n")[2])
        problems = {name: str(why) for name, why in data["imports"].items() if why}
        return Proof(problems, dict(data["versions"]), int(data["devices"]), str(data["python"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        last = output.strip().rpartition("\n")[2][:300]
        return Proof({"python": f"its interpreter does not run: {last or 'no output'}"})


def variables(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of pip and of the probe: without our own packages on the path."""
    ours = ("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {
        **{name: value for name, value in inherited.items() if name not in ours},
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NO_COLOR": "1",
    }


def main(arguments: list[str]) -> int:
    """Makes the set in the folder with this interpreter; 1 when a step or the proof fails."""
    name, folder = arguments
    env = variables(os.environ)
    for command in sets.commands(sets.SETS[name], sys.executable, os.path.abspath(folder)):
        sys.stdout.write(f"{shlex.join(command.argv)}\n")
        sys.stdout.flush()
        quiet = ("-q",) if "pip" in command.argv else ()
        if subprocess.run([*command.argv, *quiet], env=env).returncode:
            return 1
    found = proof(subprocess.run(probe_argv(f"{folder}/bin/python"), env=env, stdout=subprocess.PIPE, text=True).stdout)
    wrong = [*(f"{module}: {why}" for module, why in found.problems.items()), *found.missing(sets.SETS[name])]
    sys.stdout.write("".join(f"not as it must be: {word}\n" for word in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
