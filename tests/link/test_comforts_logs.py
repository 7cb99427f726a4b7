"""``logs --since`` through the agent and the command line, by the index of a real runner and by made-up ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agent.jobkit import Bench, until

from remote.jobs import records
from remote.protocol.errors import BAD_ARGUMENT, RequestError


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path).write("")
    lines = [f"line {number:03d}\n" for number in range(100)]
    Path(bench.directory, records.LOG).write_text("".join(lines))
    now = time.time()
    index(bench, [[now - 1000 + number * 10, (number + 1) * 9 - 4] for number in range(100)])  # sizes inside of lines
    return bench


def index(bench: Bench, entries: list[Any]) -> None:
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    Path(bench.directory, records.INDEX).write_text(text)


def lines(bench: Bench, **args: Any) -> tuple[str, ...]:
    return bench.store.read_log(bench.id, **args).lines


def test_since_and_its_edges(bench: Bench) -> None:
    assert lines(bench, since="95s")[0] in ("line 089", "line 090") and lines(bench, since="95s")[-1] == "line 099"
    assert lines(bench, since="95s", tail=2) == ("line 098", "line 099")
    assert len(lines(bench, since="95s", tail=90)) == len(lines(bench, since="95s"))
    assert len(lines(bench, since="3h")) == 100  # before its beginning
    ahead = bench.store.read_log(bench.id, since=str(int(time.time()) + 3600))
    assert ahead.lines == () and "in the future" in ahead.note
    with pytest.raises(RequestError, match="is no time") as error:
        lines(bench, since="yesterday")
    assert error.value.code == BAD_ARGUMENT


def test_without_an_index_all_of_it_is_given_and_said(bench: Bench) -> None:
    for break_it in (os.unlink, lambda path: Path(path).write_text("rubbish\n"), lambda path: os.mkfifo(path)):
        path = os.path.join(bench.directory, records.INDEX)
        if os.path.exists(path) and break_it is not os.unlink:
            os.unlink(path)
        break_it(path)
        chunk = bench.store.read_log(bench.id, since="1m")
        assert len(chunk.lines) == 100 and "no time index" in chunk.note


def test_an_index_of_another_log(bench: Bench) -> None:
    now = time.time()
    index(bench, [[now - 50, 10**12], [now - 40, 10**15]])
    assert lines(bench, since="45s") == ()


@pytest.mark.system
def test_the_command_line_with_a_real_runner(tmp_path: Path) -> None:
    code = "print('early', flush=True)\ntime.sleep(2.5)\nprint('late one', flush=True)\nprint('late two', flush=True)\n"
    bench = Bench(tmp_path).write(code + "time.sleep(1.5)\n").start()
    until(lambda: "late two" in bench.log())
    moment = time.time()
    bench.wait_for("done")
    config = tmp_path / "config.toml"
    config.write_text(f'[hosts.box]\naddress = "local"\nworkspace = "{tmp_path}"\n')

    def logs(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "eagle_console.cli", "logs", "box", bench.id, "--config", str(config), *words]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    since = str(moment - 1.5)
    assert logs("--since", since).stdout == "late one\nlate two\n"
    assert logs("--since", since, "--grep", "two").stdout == "late two\n"
    assert logs("--since", since, "--tail", "1", "-f").stdout == "late two\n"
    assert logs("--since", "1h").stdout == "early\nlate one\nlate two\n"
    assert json.loads(logs("--since", since, "--json").stdout)["lines"] == ["late one", "late two"]
    assert "in the future" in logs("--since", str(int(moment) + 9999)).stderr
    wrong = logs("--since", "soon", "--json")
    assert wrong.returncode == 2 and json.loads(wrong.stdout)["error"]["class"] == "bad_argument"
