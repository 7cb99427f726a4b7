"""The words of the command line: what is taken, and what is said of those that are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle_console import cli
from eagle_console.commands.jobs import words_of_what_is_left_out
from eagle_console.exit_codes import ExitCode
from remote.protocol.jobs import LogChunk


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["gpus"], "required: HOST"),
        (["run", "box"], "required: STAGE"),
        (["statsu", "box"], "did you mean status?"),
        (["frobnicate", "box"], "there is no command 'frobnicate'; there are: hosts, "),
        (["jobs", "box", "extra"], "unrecognized arguments: extra"),
        (["gpus", "box", "--timeout", "soon"], "'soon' is no number of seconds"),
        (["logs", "box", "serve", "--tail", "all"], "'all' is no whole number"),
        (["gpus", "a b"], "is not the address of a host"),
    ],
)
def test_wrong_words_are_answered_in_json_too(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "--json"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["class"] == "usage" and part in error["cause"] and part in err
    assert "STAGE, key=value" not in err


def test_an_address_that_is_none_comes_with_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gpus", "a b"]) == ExitCode.USAGE
    assert "user@host:port" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["demo", "--help"], ["gpu-box", "-h"], ["--readonly", "demo", "--help"]])
def test_the_screen_has_a_help_of_its_own(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert not end.value.code
    assert "usage: eagle-console [-h]" in (text := capsys.readouterr().out) and "[HOST]" in text


def test_help_lists_the_commands_and_options_may_stand_before_one(capsys: pytest.CaptureFixture[str]) -> None:
    for words, part in (["--help"], "COMMAND"), (["--json", "logs", "--help"], "the last N lines (200"):
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        assert not end.value.code and part in capsys.readouterr().out


@pytest.mark.parametrize("words", [["demo"], [], ["box"]])
def test_the_screen_is_not_painted_into_a_pipe(
    words: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == ExitCode.USAGE
    assert "needs a terminal" in capsys.readouterr().err
    assert not list(home.rglob("last_host"))


def test_options_before_an_action_reach_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = home / "other.toml"
    config.write_text('[hosts.box]\naddress = "no address"\n')
    for words in (
        ["--config", str(config), "--json", "hosts", "trust", "box"],
        ["hosts", "--json", "trust", "box", "--config", str(config)],
    ):
        cli.main(words)
        out = capsys.readouterr().out
        assert json.loads(out)["error"]["cause"] == "'no address' is not the address of a host"


def test_without_a_profile_hosts_shows_one_to_copy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["hosts"]) == ExitCode.DONE
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "" and lines[2] == "    [hosts.gpu-box]" and lines[-2] == ""
    assert lines[-1].startswith("A host without a profile") and all(line == line.rstrip() for line in lines)


def test_a_log_too_long_for_the_tail_that_was_asked_for() -> None:
    chunks = [LogChunk("job", 284_000_000, 300_000_000, 300_000_000, ("one", "two"))]
    assert words_of_what_is_left_out(chunks, 2) == words_of_what_is_left_out(chunks, None) == ""
    assert words_of_what_is_left_out([LogChunk("job", 0, 8, 8, ("one", "two"))], 200) == ""
    said = words_of_what_is_left_out(chunks, 3)
    assert said == "only the last 2 lines were read: the 284 MB before them are too much at once"
