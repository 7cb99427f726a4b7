"""Who still needs a thing on the disk: processes, symbolic links, the settings of runs, manifests, locks.

A server that has loaded a checkpoint and closed its files holds nothing that the kernel knows of, and yet its restart
would fail. So what names a path counts: command lines, environments and working directories of processes, links from
anywhere in the workspace, ``run.yaml`` and ``config.json``, and what the pipeline's manifests say was made from what.
Formats: proc_pid_cmdline(5), proc_pid_environ(5), proc_locks(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from pipeline.plan.layout import Run as Layout
from pipeline.plan.manifest import read as read_manifest
from remote import procfs
from remote.disk.completeness import read_json, read_text
from remote.disk.settings import Setting, Settings, from_words

PROCESS, LOCK, LINK, SETTING, MANIFEST = "process", "lock", "link", "setting", "manifest"

_OWN_NAMES = re.compile(r"epoch\d+_(?:end|step\d+)|checkpoint_best")
"""Links that a trainer makes in a run: other names of its checkpoints, and the best one, which is a guard itself."""

_UNTOLD = frozenset({"PWD", "OLDPWD", "_"})
"""Variables of a shell that tell where it has been, not what it needs."""

_PIECES = re.compile(r"[=,:;\s]+")
_PATH_LIMIT = 4096


@dataclass(frozen=True)
class Reference:
    """Something names a path.

    :param target: the path, with its symbolic links resolved.
    :param kind: one of the words above.
    :param by: who names it, for a sentence: ``process 4711 (python3)``, ``output_2k``.
    :param role: how, such as the setting's name or ``working directory``.
    :param source: where that was read.
    :param owner: resolved path of what the naming file belongs to; empty for processes and locks.
    """

    target: str
    kind: str
    by: str
    role: str = ""
    source: str = ""
    owner: str = ""

    @property
    def alive(self) -> bool:
        """It is somebody who runs now, and not a file."""
        return self.kind in (PROCESS, LOCK)


class Below:
    """Resolves the paths that lie in one folder; everything else is None.

    :param folder: with its symbolic links resolved.
    """

    def __init__(self, folder: str) -> None:
        self._prefix = folder.rstrip("/") + "/"
        self._known: dict[str, Optional[str]] = {}

    def name(self, path: str) -> str:
        """What a path below the folder is called in it."""
        return path[len(self._prefix) :] if path.startswith(self._prefix) else path

    def resolve(self, word: str, base: str) -> Optional[str]:
        """The resolved path that a word means for somebody in the directory ``base``; None where it lies elsewhere."""
        if not word or len(word) > _PATH_LIMIT or "\0" in word:
            return None
        path = os.path.normpath(os.path.join(base, os.path.expanduser(word) if word.startswith("~") else word))
        if path not in self._known:
            try:
                real = os.path.realpath(path)
            except (OSError, ValueError):
                real = path
            self._known[path] = real if real.startswith(self._prefix) and os.path.lexists(real) else None
        return self._known[path]


def of_processes(below: Below, without: Iterable[int]) -> Iterator[Reference]:
    """What processes name, as far as this user may look at them.

    :param without: pids that do not count, such as the agent's own.
    """
    left_out = set(without)
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid in left_out:
            continue
        try:
            working = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            working = "/"
        words = _words(f"/proc/{pid}/cmdline")
        if not words:
            continue  # a kernel thread, or gone
        record = procfs.stat(pid)
        by = f"process {pid} ({record.comm if record else os.path.basename(words[0])})"
        found = [
            *_named(below, from_words(words, "command line"), working),
            *_named(below, _variables(pid), working),
            *_named(below, [Setting("", working, "working directory")], "/"),
        ]
        for target, (role, source) in {target: (role, source) for target, role, source in reversed(found)}.items():
            yield Reference(target, PROCESS, by, role, source)


def of_settings(below: Below, settings: Settings, owner: str, bases: Iterable[str]) -> Iterator[Reference]:
    """What a run's own files name.

    :param bases: directories that a relative path may be meant from.
    """
    for item in settings.items:
        for base in bases:
            target = below.resolve(item.value, base)
            if target and not inside(target, owner):
                yield Reference(target, SETTING, below.name(owner), item.name, item.source, owner)
                break


def of_config(below: Below, folder: str, owner: str) -> Iterator[Reference]:
    """The verifier that a draft or a checkpoint needs: its weights leave out what it shares with it."""
    source = os.path.join(folder, "config.json")
    named = verifier(source)
    target = below.resolve(named, folder) if named else None
    if target and not inside(target, owner):
        yield Reference(target, SETTING, below.name(owner), "verifier", source, owner)


def verifier(config_file: str) -> str:
    """The verifier that a draft's ``config.json`` names: a path or a name on the hub; empty where it names none."""
    try:
        config: Any = read_json(config_file)
        named = config["speculators_config"]["verifier"]["name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return named if isinstance(named, str) else ""


def of_links(below: Below, links: Iterable[str]) -> Iterator[Reference]:
    """What symbolic links in the workspace point to, resolved. The trainer's own names of checkpoints do not count."""
    for link in links:
        if _OWN_NAMES.fullmatch(os.path.basename(link)):
            continue
        target = below.resolve(link, "/")
        if target:
            yield Reference(target, LINK, link, "symbolic link", link)


def of_manifests(below: Below, workspace: str) -> Iterator[Reference]:
    """What finished stages were made from: the owner is what they have made."""
    root = Path(Layout(workspace, "x").manifest("x")).parent.parent
    for path in sorted(root.glob("*/*.json")):
        manifest = read_manifest(path)
        if manifest is None:
            continue
        outputs = [target for name in manifest.outputs if (target := below.resolve(name, workspace))]
        for name in manifest.inputs:
            target = below.resolve(name, workspace)
            if target and outputs and not any(inside(target, output) for output in outputs):
                by = below.name(outputs[0]).partition("/")[0]
                yield Reference(target, MANIFEST, by, manifest.stage, str(path), outputs[0])


def of_locks(workspace: str) -> Iterator[Reference]:
    """Artifacts that a living stage of ours writes: their lock files are held."""
    held = _held_locks()
    folder = Layout(workspace, "x").locks
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = folder / name
        try:
            inode = os.stat(path).st_ino
        except OSError:
            continue
        if inode in held and name.endswith(".lock"):
            target = os.path.join(os.path.realpath(workspace), name[: -len(".lock")])
            holder = read_text(str(path)).strip().splitlines()
            yield Reference(target, LOCK, holder[0][:200] if holder else "a running stage", "lock", str(path))


def inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it; both resolved."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def below_name(path: str, workspace: str) -> str:
    """A path as it is called in its workspace."""
    return os.path.relpath(path, os.path.realpath(workspace)) if os.path.isabs(path) else path


def _named(below: Below, settings: Iterable[Setting], working: str) -> Iterator[tuple[str, str, str]]:
    for item in settings:
        words = [item.value, *(_PIECES.split(item.value) if _PIECES.search(item.value) else ())]
        for word in words:
            target = below.resolve(word, working) if word not in (".", "..") else None
            if target:
                yield target, item.name.replace("argument", ""), item.source


def _words(path: str) -> list[str]:
    try:
        return [os.fsdecode(word) for word in Path(path).read_bytes().split(b"\0") if word]
    except OSError:
        return []


def _variables(pid: int) -> Iterator[Setting]:
    for word in _words(f"/proc/{pid}/environ"):
        name, equals, value = word.partition("=")
        if equals and "/" in value and name not in _UNTOLD:
            yield Setting(name, value, "environment")


def _held_locks() -> set[int]:
    """The inodes of files that somebody holds a lock on."""
    found = set()
    for line in read_text("/proc/locks", 2**22).splitlines():
        match = re.search(r"\b(?:FLOCK|POSIX|OFDLCK)\b.*\s[0-9a-f]+:[0-9a-f]+:(\d+)\s", line)
        if match and "->" not in line:
            found.add(int(match[1]))
    return found
