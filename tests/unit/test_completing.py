"""Completion, asked for by real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("eagle-console")

BASH = """
eval "$(eagle-console completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
COMP_WORDS=($1)
_python_argcomplete eagle-console
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = "eagle-console completion fish | source; complete -C $argv[1]"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "eagle-console"
    folder.mkdir()
    (folder / "config.toml").write_text('[hosts.box]\naddress = "x"\n[hosts.big]\naddress = "y"\n')
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    return {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": path}


def bash(line: str, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(["bash", "-c", BASH, "-", line], env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    return [word.strip() for word in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("eagle-console gp", ["gpus"]),
        ("eagle-console b", ["box", "big"]),
        ("eagle-console scr", [""]),
        ("eagle-console status b", ["box", "big"]),
        ("eagle-console run demo tr", ["train"]),
        ("eagle-console run demo train ret", ["retention="]),
        ("eagle-console run demo train retention=", ["off", "trim", "whole"]),
        ("eagle-console run demo nonsense x", [""]),
        ("eagle-console prune box --po", ["--policy"]),
        ("eagle-console --json st", ["status", "stages", "stop"]),
        ("eagle-console completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_bash(line: str, words: list[str], environment: dict[str, str]) -> None:
    assert bash(line, environment) == words


def test_a_broken_configuration_takes_nothing_but_the_profiles(environment: dict[str, str]) -> None:
    Path(environment["XDG_CONFIG_HOME"], "eagle-console", "config.toml").write_text("[hosts")
    assert bash("eagle-console status ", environment) == ["demo", "local"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not here; make test installs it")
def test_fish_shows_what_each_word_does(environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["fish", "-c", FISH, "eagle-console run demo tr"], env=environment, capture_output=True, text=True, check=True
    )
    word, _, summary = done.stdout.strip().partition("\t")
    assert word == "train" and "draft" in summary


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not here; make test installs it")
def test_zsh_takes_the_code(environment: dict[str, str]) -> None:
    script = (
        'autoload -Uz compinit && compinit -u -D; eval "$(eagle-console completion zsh)"; echo $_comps[eagle-console]'
    )
    done = subprocess.run(["zsh", "-f", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "_python_argcomplete", done.stderr
