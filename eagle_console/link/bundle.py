"""The bundle: everything that the agent and the runner need on a host, as one archive known by its hash.

An archive holds ``lib/`` (the packages ``remote`` and ``pipeline``), ``vendor/`` (pynvml, and psutil where this machine
has a build of it for the host), the two entry scripts, and a manifest of the file sizes. Stages get ``lib`` on their
path and never ``vendor``. The same files make the same archive, so that a hash names the content for good.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import zipfile
import zlib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from eagle_console.link.errors import BundleError

MANIFEST = "manifest.json"
ENTRY_SCRIPTS = ("run_agent.py", "run_job.py")
ANY_PLATFORM = "any"

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can hold
_PSUTIL_FILES = ("__init__.py", "_common.py", "_ntuples.py", "_pslinux.py", "_psposix.py", "_psutil_linux.abi3.so")
"""What psutil needs on Linux. Its compiled part keeps to Python's stable interface: one file for every version."""


@dataclass(frozen=True)
class Bundle:
    """One archive, uncompressed, with its ``sha256``."""

    sha256: str
    content: bytes

    @cached_property
    def data(self) -> bytes:
        """The compressed bytes that travel. Made when a host needs them, which is seldom: that takes longer than all
        the rest here. The highest level would save one byte in a hundred for three times the time."""
        return zlib.compress(self.content, 6)


@cache
def bundles() -> dict[str, Bundle]:
    """The bundles by platform (``linux-x86_64``); ``any`` is the one without compiled parts.

    :raises BundleError: when the installation of the console is not complete.
    """
    common = {**_packages(), **_entry_scripts(), **_vendored("pynvml")}
    built = {ANY_PLATFORM: build(common)}
    psutil = _psutil()
    if psutil:
        built[f"linux-{os.uname().machine}"] = build({**common, **psutil})
    return built


def build(files: dict[str, bytes]) -> Bundle:
    """The archive of the given files, by their relative path, with a manifest added."""
    manifest = json.dumps({name: len(data) for name, data in sorted(files.items())}, indent=0).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as bundle:
        for name, data in [*sorted(files.items()), (MANIFEST, manifest)]:
            bundle.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    content = archive.getvalue()
    return Bundle(hashlib.sha256(content).hexdigest(), content)


def stage1_source() -> bytes:
    """The text of stage 1, which unpacks a bundle on the host.

    :raises BundleError: as ``bundles``.
    """
    return _read(_package_folder("remote") / "entry" / "stage1.py")


def _packages() -> dict[str, bytes]:
    files = {}
    for package in ("remote", "pipeline"):
        folder = _package_folder(package)
        for path in folder.rglob("*"):
            relative = path.relative_to(folder)
            if path.is_file() and "__pycache__" not in relative.parts and not path.name.startswith("."):
                files[f"lib/{package}/{relative.as_posix()}"] = _read(path)
    return files


def _entry_scripts() -> dict[str, bytes]:
    folder = _package_folder("remote") / "entry"
    return {name: _read(folder / name) for name in ENTRY_SCRIPTS}


def _vendored(module: str) -> dict[str, bytes]:
    """A module that is a single file."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise BundleError(f"the module {module} is missing here", "install eagle-console again with its dependencies")
    return {f"vendor/{module}.py": _read(Path(spec.origin))}


def _psutil() -> dict[str, bytes]:
    """psutil's files where this machine has a build of it that a host of the same architecture can load."""
    spec = find_spec("psutil")
    if not sys.platform.startswith("linux") or spec is None or spec.origin is None:
        return {}
    folder = Path(spec.origin).parent
    if not all((folder / name).is_file() for name in _PSUTIL_FILES):
        return {}
    return {f"vendor/psutil/{name}": _read(folder / name) for name in _PSUTIL_FILES}


def _package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BundleError(f"the package {name} is missing here", "install eagle-console again")
    return Path(next(iter(spec.submodule_search_locations)))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}", "install eagle-console again") from None
