"""Profiles added to the configuration file: appended, checked before they are written, nothing else touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_console.config import ConfigError, HostProfile, load, parse
from eagle_console.config_file import append_profile, profile_text, read_profile

OLD = '# my hosts\r\n[hosts.a]\naddress = "a"   # here\n\n# the end, without a line end'


def test_what_is_there_stays_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(OLD.encode())
    path.chmod(0o640)
    config = append_profile(path, "gpu-box", {"address": "root@gpu-box", "workspace": "/data", "tensor_parallel": 8})
    assert path.read_bytes().startswith(OLD.encode())
    assert path.stat().st_mode & 0o777 == 0o640
    assert load(path) == config
    assert config.hosts["gpu-box"] == HostProfile("gpu-box", "root@gpu-box", workspace="/data", tensor_parallel=8)
    append_profile(path, "other", {"address": "other", "readonly": True, "transport": "ssh"})
    assert list(load(path).hosts) == ["a", "gpu-box", "other"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


def test_a_new_file_is_for_the_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    append_profile(path, "x", {"address": "x"})
    assert path.read_text() == '[hosts.x]\naddress = "x"\n'
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_linked_file_stays_linked(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "eagle.toml", tmp_path / "config.toml"
    real.parent.mkdir()
    real.write_text("")
    link.symlink_to(real)
    append_profile(link, "x", {"address": "x"})
    assert link.is_symlink() and "hosts.x" in real.read_text()


@pytest.mark.parametrize(
    ("old", "name", "values", "part"),
    [
        ('[hosts.a]\naddress = "a"\n', "a", {"address": "b"}, "already"),
        ("", "jobs", {"address": "b"}, "is a command"),
        ("", "-x", {"address": "b"}, "name of a profile"),
        ("", "a b", {"address": "b"}, "name of a profile"),
        ("", "a\nb", {"address": "b"}, "name of a profile"),
        ("", "x", {"address": "b", "workspace": "relative"}, "absolute path"),
        ("", "x", {"address": "b", "workspace": "/a\nreadonly = false"}, "characters"),
        ("", "x", {"address": "b", "tensor_parallel": 0}, "at least 1"),
        ('[hosts.a]\naddres = "a"\n', "x", {"address": "b"}, "did you mean 'address'"),
        ('hosts = { a = { address = "a" } }\n', "x", {"address": "b"}, "not TOML"),
    ],
)
def test_what_is_refused_changes_nothing(
    tmp_path: Path, old: str, name: str, values: dict[str, str | int | bool], part: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(old)
    with pytest.raises(ConfigError, match=part):
        append_profile(path, name, values)
    assert path.read_text() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


@given(st.text(), st.text(min_size=1))
def test_whatever_is_written_is_read_back(name: str, address: str) -> None:
    try:
        text = profile_text(name, {"address": address})
    except ConfigError:
        return
    hosts = parse(text).hosts
    assert list(hosts) == [name] and hosts[name].address == address
    assert read_profile(name, {"address": address}) == hosts[name]
