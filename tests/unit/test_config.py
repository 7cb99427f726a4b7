"""Profiles: what is accepted, what is refused, and that the message says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle_console.config import COMMANDS, Config, ConfigError, HostProfile, default_path, load, parse
from eagle_console.screen_settings import ScreenSettings
from remote.protocol.stages import StageContext

FULL = """
[hosts.gpu-box]
address = "root@gpu-box"
workspace = "/data/eagle3-train"
verifier = "/data/models/Kimi-K2.5"
python = "/data/ml/bin/python"
tensor_parallel = 8
engine = "local"
readonly = true
"""


def test_a_full_profile() -> None:
    profile = parse(FULL).hosts["gpu-box"]
    assert profile == HostProfile(
        name="gpu-box",
        address="root@gpu-box",
        workspace="/data/eagle3-train",
        verifier="/data/models/Kimi-K2.5",
        python="/data/ml/bin/python",
        tensor_parallel=8,
        readonly=True,
    )
    assert profile.context == StageContext("/data/models/Kimi-K2.5", "/data/ml/bin/python", 8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[hosts.a]\naddress = "x"\nworkspce = "/d"', ["workspce", "did you mean 'workspace'"]),
        ('[hots.a]\naddress = "x"', ["hots", "did you mean 'hosts'"]),
        ("[hosts.a]\nworkspace = '/d'", ["address is missing"]),
        ('[hosts.a]\naddress = ""', ["address is missing"]),
        ('[hosts.a]\naddress = "x"\nworkspace = "data"', ["absolute path", "'data'"]),
        ('[hosts.a]\naddress = "x"\ntensor_parallel = "8"', ["tensor_parallel", "int", "str"]),
        ('[hosts.a]\naddress = "x"\ntensor_parallel = true', ["tensor_parallel", "bool"]),
        ('[hosts.a]\naddress = "x"\ntensor_parallel = 0', ["at least 1"]),
        ('[hosts.a]\naddress = "x"\nreadonly = "no"', ["readonly", "bool"]),
        ('[hosts.a]\naddress = "x"\nengine = "kubernetes"', ["engine", "local"]),
        ('[hosts.a]\naddress = "x"\nengine = "slurm"', ["slurm", "not in this version"]),
        ('[hosts.status]\naddress = "x"', ["'status' is a command"]),
        ("screen = 3", ["[screen]", "must be a table"]),
        ("[screen]\nthem = 'nord'", ["them", "did you mean 'theme'"]),
        ("[screen]\nnotify = 'loud'", ["notify", "bell, osc9, off", "'loud'"]),
        ("[screen]\nascii = 'yes'", ["ascii", "bool"]),
        ("[screen.keys]\nstop = 3", ["stop", "text"]),
        ("hosts = 3", ["[hosts.gpu-box]"]),
        ("[hosts]\na = 3", ["must be a table"]),
        ("[hosts.a\n", ["not TOML"]),
    ],
)
def test_refusals_say_what_is_wrong(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, Path("config.toml"))
    for word in ["config.toml", *words]:
        assert word in str(error.value)


def test_every_command_name_is_refused_as_a_profile() -> None:
    for command in COMMANDS:
        with pytest.raises(ConfigError, match="is a command"):
            parse(f'[hosts.{command}]\naddress = "x"')


def test_no_file_is_an_empty_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load() == Config()
    assert default_path() == tmp_path / "eagle-console" / "config.toml"


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "absent.toml")


def test_a_file_that_is_not_text_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(path)


def test_the_working_directory_is_never_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[hosts.evil]\naddress = "evil"')
    (tmp_path / "eagle-console").mkdir()
    (tmp_path / "eagle-console" / "config.toml").write_text('[hosts.evil]\naddress = "evil"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative-is-ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert load().hosts == {}


def test_what_the_recommended_policy_takes_is_the_users_setting() -> None:
    assert parse('[hosts.a]\naddress = "a"').hosts["a"].prune == "whole"
    assert parse('[hosts.a]\naddress = "a"\nprune = "trim"').hosts["a"].prune == "trim"
    with pytest.raises(ConfigError, match="prune must be one of whole, trim, not 'all'"):
        parse('[hosts.a]\naddress = "a"\nprune = "all"')


def test_the_screens_settings() -> None:
    assert parse("").screen == ScreenSettings()
    chosen = parse('[screen]\ntheme = "nord"\nascii = true\nnotify = "osc9"\n[screen.keys]\nstop = "X"').screen
    assert chosen == ScreenSettings("nord", True, "osc9", {"stop": "X"})
