"""The pure rules of deletion: what may be named, file systems, expiry, pins."""

from __future__ import annotations

import pytest

from remote.disk.filesystems import KERNEL, LOCAL, NAMESPACE, parse, proof_of
from remote.disk.pins import protecting
from remote.disk.receipts import KEPT_SECONDS, SETTLED_SECONDS, expired
from remote.disk.syscalls import Unsupported
from remote.disk.targets import relative, without_nested
from remote.disk.trimming import is_training_state
from remote.journal import Line

NAMES = ("/data/ws", "/mnt/disk/ws")


def test_paths_are_named_below_either_name_of_the_workspace() -> None:
    assert (
        relative("out//7/", NAMES)
        == relative("/data/ws/out/7", NAMES)
        == relative("/mnt/disk/ws/out/7", NAMES)
        == "out/7"
    )
    assert without_nested(["a", "a/b", "ab", "a"]) == (("a", "ab"), (("a/b", "a"),))


def test_file_systems() -> None:
    info = "36 35 98:0 / /mnt\\040x rw,noatime - ext4 /dev/sda rw\n37 35 0:5 / /ro ro - fuse.sshfs a: rw\n"
    assert parse(info, 36) == ("ext4", False) and parse(info, 37) == ("fuse.sshfs", True) and parse(info, 3) is None
    assert (proof_of("xfs"), proof_of("overlay"), proof_of("fuse.sshfs")) == (KERNEL, NAMESPACE, LOCAL)
    with pytest.raises(Unsupported, match="vfat"):
        proof_of("vfat")


def test_expiry() -> None:
    line = Line(1, 1000.0, "boot", 50.0, "machine", "u", "prune", "")
    assert not expired(line, 1e9, "boot", 51.0)
    assert expired(line, 0.0, "boot", 50.0 + KEPT_SECONDS)
    assert not expired(line, 1e9, "another", SETTLED_SECONDS - 1)
    assert expired(line, 1001.0 + KEPT_SECONDS, "another", SETTLED_SECONDS)


def test_pins_and_training_state() -> None:
    assert protecting(["/w/a/b"], "/w/a") == protecting(["/w/a/b"], "/w/a/b/c") == "/w/a/b"
    assert protecting(["/w/a/b"], "/w/a/bc") == ""
    assert is_training_state("optimizer_state_dict.pt") and not is_training_state("model.safetensors")
