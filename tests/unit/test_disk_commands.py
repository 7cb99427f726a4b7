"""The commands about the disk against a session that answers with records: words, JSON, confirmations, exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures import disk_records as records

from eagle_console import cli
from eagle_console.client import HostClient
from eagle_console.exit_codes import ExitCode
from remote.protocol.codec import to_wire
from remote.protocol.errors import REFUSED, RequestError
from remote.protocol.frames import AgentHello
from remote.protocol.trash import ROLLED_BACK, TRASHED, Journal, TrashList


class Host:
    """A session that answers from a table and remembers what was asked."""

    def __init__(self) -> None:
        self.answers = records.answers()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.hello = AgentHello(
            protocol=1, agent="0" * 12, host="gpu-box", user="root", machine_id="m", boot_id="b", python="3.11.2",
            pid=7, wall=records.WALL, readonly=False, workspace=records.WORKSPACE,
        )  # fmt: skip

    async def request(self, op: str, args: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        self.asked.append((op, args or {}))
        answer = self.answers[op]
        if isinstance(answer, Exception):
            raise answer
        wire: dict[str, Any] = to_wire(answer)
        return wire

    async def subscribe(self, topic: str, interval: float = 1.0, args: dict[str, Any] | None = None) -> Any:
        raise AssertionError("no command about the disk subscribes")

    def asked_for(self, op: str) -> list[dict[str, Any]]:
        return [args for name, args in self.asked if name == op]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr("eagle_console.commands.trash.time.time", lambda: records.WALL)
    monkeypatch.setattr("eagle_console.commands.triage.time.time", lambda: records.WALL)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    fake = Host()

    @asynccontextmanager
    async def connect(*_: Any) -> AsyncIterator[HostClient]:
        yield HostClient(fake)  # type: ignore[arg-type]

    monkeypatch.setattr("eagle_console.commands.invocation.connect", connect)
    yield fake


class Terminal(io.StringIO):
    """A stdin at which a person types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def call(host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(*words: str, typed: str | None = None) -> tuple[int, str, str]:
        if typed is not None:
            monkeypatch.setattr("sys.stdin", Terminal(typed + "\n"))
        code = cli.main([words[0], "gpu-box", *words[1:]])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_triage_lists_what_could_go_first_and_says_why(call: Any, host: Host) -> None:
    code, out, _ = call("triage")
    assert code == ExitCode.DONE
    lines = out.splitlines()
    words = [line.split()[0] for line in lines[1:16]]
    assert words == ["stale"] * 8 + ["torn", "review", "unknown"] + ["keep"] * 4, "verdicts in order"
    assert "data_1k" in lines[1], "the largest of a verdict first"
    assert "superseded: epoch 6 has validation loss 1.897  (+1 more)" in out
    assert "held open by pid 4711" in out
    assert "91 GB could be freed from 9 stale or torn artifacts" in out
    assert host.asked_for("triage") == [{"fresh": True}]


def test_triage_of_directories_gives_every_reason(call: Any, host: Host) -> None:
    _, out, _ = call("triage", "output_1k", "/data/eagle3-train/data_1k/")
    assert host.asked_for("triage")[0]["dirs"] == [records.RUN, "/data/eagle3-train/data_1k"]
    assert "not open or mapped by any process, 7 files  [kernel lease" in out
    assert "rebuilding costs about 2 min: measured from directory times" in out
    assert "    tiny reference, used by validation\n" in out


def test_the_json_of_triage_is_flat_and_complete(call: Any) -> None:
    _, out, _ = call("triage", "--json")
    found = json.loads(out)
    (one,) = [item for item in found["artifacts"] if item["path"].endswith("output_1k/3")]
    assert one["verdict"] == "stale" and one["run"] == records.RUN and one["rebuild_minutes"] == 2.8
    assert one["reclaim"] == {"whole": int(8.9e9), "trim": int(5.9e9)}
    assert one["reasons"][0]["rule"] == "superseded" and one["reasons"][0]["guard"] is False
    assert found["hidden"][0]["path"] == "/tmp/core"


def test_checkpoints_in_a_table(call: Any, host: Host) -> None:
    code, out, _ = call("checkpoints", "output_1k")
    assert code == ExitCode.DONE and host.asked == [("checkpoints", {"dir": records.RUN})]
    (six,) = [line for line in out.splitlines() if line.startswith("6 ")]
    assert "7,000" in six and "1.897" in six and "1.50" in six and " best " in six and " keep " in six
    (seven,) = [line for line in out.splitlines() if line.startswith("7 ")]
    assert seven.count("–") == 2, "an absent metric is no bad one"


def test_a_dry_run_lists_everything_and_moves_nothing(call: Any, host: Host) -> None:
    code, out, _ = call("prune", "--policy", "recommended", "output_1k", "--dry-run")
    assert code == ExitCode.DONE
    assert host.asked == [("plan_prune", {"policy": "recommended", "dir": records.RUN, "level": "whole"})]
    assert "Goes to the trash: 7 items, 62 GB reclaimable" in out and "Stays: 3 items" in out
    assert "output_1k/6" in out and "the run's own pointer names it" in out


def test_the_json_of_a_dry_run(call: Any) -> None:
    code, out, err = call("prune", "--policy", "recommended", "output_1k", "--dry-run", "--json")
    plan = json.loads(out)
    assert code == ExitCode.DONE and plan["dry_run"] is True and plan["reclaimable"] == 7 * int(8.9e9)
    assert [item["path"][-1] for item in plan["goes"]] == list("0123457")
    assert [item["reasons"][0]["rule"] for item in plan["stays"]] == ["best", "newest_two", "newest_two"]
    assert "Goes to the trash" in err, "people see it beside the data"


def test_a_prune_without_a_terminal_needs_yes(call: Any, host: Host) -> None:
    code, _, err = call("prune", "output_1k/0")
    assert code == ExitCode.REFUSED and "needs --yes" in err
    assert not host.asked_for("prune")


@pytest.mark.parametrize("level", ["--trim", None])
def test_a_prune_is_one_receipt_and_says_that_nothing_is_freed_yet(call: Any, host: Host, level: str | None) -> None:
    code, out, _ = call("prune", "output_1k/0", "/elsewhere/x", "--yes", *([level] if level else []))
    assert code == ExitCode.DONE
    assert host.asked_for("plan_prune") == [
        {"paths": [f"{records.RUN}/0", "/elsewhere/x"], "level": "trim" if level else "whole"}
    ]
    (sent,) = host.asked_for("prune")
    assert (sent["plan"], sent["fingerprint"], sent["typed"]) == ("p-1", "f" * 64, "") and " at " in sent[
        "requested_by"
    ]
    assert "7 items in the trash as 20260528-203000-7c1e. 0 B freed yet, 62 GB reclaimable: purge frees them." in out
    assert "eagle-console undo gpu-box 20260528-203000-7c1e" in out


def test_a_person_says_yes_or_nothing_happens(call: Any, host: Host) -> None:
    code, _, err = call("prune", "output_1k/0", typed="")
    assert code == ExitCode.REFUSED and "[y/N]" in err and not host.asked_for("prune")
    assert call("prune", "output_1k/0", typed="y")[0] == ExitCode.DONE and host.asked_for("prune")


def test_a_weaker_proof_wants_more_than_yes(call: Any, host: Host) -> None:
    host.answers["plan_prune"] = records.plan(confirm="output_1k", unseen="processes on other NFS clients")
    code, out, err = call("prune", "output_1k/0", "--yes")
    assert code == ExitCode.REFUSED and "--confirm 'output_1k'" in err and "other NFS clients" in out
    assert call("prune", "output_1k/0", typed="output_2k")[0] == ExitCode.REFUSED
    assert not host.asked_for("prune")
    assert call("prune", "output_1k/0", "--confirm", "output_1k")[0] == ExitCode.DONE
    assert host.asked_for("prune")[0]["typed"] == "output_1k"


def test_what_is_wholly_refused_ends_with_five(call: Any, host: Host) -> None:
    stays = (records.plan_item("data_test", refused="pinned by someone"),)
    host.answers["plan_prune"] = records.plan(items=(), stays=stays)
    code, out, err = call("prune", "data_test", "--yes", "--json")
    assert code == ExitCode.REFUSED and json.loads(out)["refused"] == [f"{records.WORKSPACE}/data_test"]
    code, _, err = call("prune", "data_test", "--yes")
    assert code == ExitCode.REFUSED and "pinned by someone" in err and not host.asked_for("prune")
    host.answers["plan_prune"] = RequestError(REFUSED, "/ is not below the workspace")
    code, out, err = call("prune", "/", "--yes", "--json")
    assert code == ExitCode.REFUSED and json.loads(out)["error"]["class"] == "refused"


def test_what_is_partly_refused_ends_with_one_and_a_result_each(call: Any, host: Host) -> None:
    stays = (records.plan_item("output_1k/6", refused="best: checkpoint_best names it"),)
    host.answers["plan_prune"] = records.plan(stays=stays)
    items = records.receipt().items
    changed = replace(items[0], state=ROLLED_BACK, problem="it was opened meanwhile")
    host.answers["prune"] = records.receipt(items=(changed, *items[1:]))
    words = ("prune", "output_1k/0", "output_1k/6", "--yes")
    code, out, _ = call(*words)
    assert code == ExitCode.FAILED
    assert "output_1k/0: rolled back: it was opened meanwhile" in out
    assert "output_1k/6: stays: best: checkpoint_best names it" in out and "6 items in the trash" in out
    code, out, _ = call(*words, "--json")
    answer = json.loads(out)
    assert code == ExitCode.FAILED and answer["receipt"] == "20260528-203000-7c1e"
    assert [item["state"] for item in answer["items"]] == [ROLLED_BACK] + [TRASHED] * 6
    assert [item["path"] for item in answer["refused"]] == [f"{records.RUN}/6"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("prune",), "prune needs paths"),
        (("prune", "--policy", "recommended", "a", "b"), "takes one directory"),
        (("purge",), "a receipt or --expired"),
        (("purge", "x", "--expired"), "a receipt or --expired"),
    ],
)
def test_words_that_make_no_sense(call: Any, host: Host, words: tuple[str, ...], part: str) -> None:
    code, _, err = call(*words)
    assert code == ExitCode.USAGE and part in err and host.asked == []


@pytest.mark.parametrize("word", ["20260528-203000-7c1e", "20260528", "last"])
def test_undo_takes_an_abbreviation(call: Any, host: Host, word: str) -> None:
    code, out, _ = call("undo", word)
    assert code == ExitCode.DONE and host.asked_for("undo")[0]["receipt"] == "20260528-203000-7c1e"
    assert "output_1k/0: back in place" in out and "7 items of 7 back in place" in out


def test_an_abbreviation_of_several_is_no_receipt(call: Any, host: Host) -> None:
    code, _, err = call("undo", "202605")
    assert code == ExitCode.USAGE and "several receipts" in err and not host.asked_for("undo")
    host.answers["trash"] = TrashList()
    code, _, err = call("undo", "last")
    assert code == ExitCode.FAILED and "nothing in the trash" in err and not host.asked_for("undo")


def test_a_purge_wants_the_size_typed_and_says_what_it_freed(call: Any, host: Host) -> None:
    code, _, err = call("purge", "last")
    assert code == ExitCode.REFUSED and "needs --yes" in err
    code, _, err = call("purge", "last", typed="y")
    assert code == ExitCode.REFUSED and "Type its size, 62 GB" in err and not host.asked_for("purge")
    code, out, _ = call("purge", "last", typed="62 GB")
    assert code == ExitCode.DONE and len(host.asked_for("purge")) == 1
    assert "planned 62 GB, unlinked 62 GB, file system +62 GB (4.1 kB are the journal's)" in out
    code, out, _ = call("purge", "--expired", "--yes", "--json")
    assert code == ExitCode.DONE and json.loads(out)["receipts"][0]["freed"]["unlinked"] == 7 * int(8.9e9)
    assert host.asked_for("purge")[-1]["expired"] is True


def test_nothing_expired_asks_for_nothing(call: Any, host: Host) -> None:
    host.answers["trash"] = TrashList((records.receipt(),))
    code, out, _ = call("purge", "--expired")
    assert code == ExitCode.DONE and "nothing in the trash has expired" in out and not host.asked_for("purge")


def test_the_trash_counts_down(call: Any) -> None:
    code, out, _ = call("trash")
    assert code == ExitCode.DONE and "7 d 0 h" in out and "expired" in out and "125 GB in the trash" in out


@pytest.mark.parametrize("remove", [False, True])
def test_pins(call: Any, host: Host, remove: bool) -> None:
    host.answers["pin"] = replace(host.answers["pin"], pinned=not remove)
    code, out, _ = call("pin", "data_test", *(["--remove"] if remove else []))
    assert code == ExitCode.DONE and host.asked_for("pin")[0]["pinned"] is not remove
    assert ("is not pinned any more" if remove else "no prune takes it") in out


def test_the_journal_is_copied_and_a_changed_one_is_told(call: Any, host: Host) -> None:
    code, out, err = call("journal", "--tail", "10")
    assert code == ExitCode.DONE and host.asked == [("journal", {"limit": 10})] and err == ""
    assert "7 items of output_1k into the trash" in out
    first, second = host.answers["journal"].entries
    host.answers["journal"] = Journal((replace(first, text="nothing happened"), second))
    code, _, err = call("journal")
    assert code == ExitCode.FAILED and "entry 2 differs from the copy" in err
    host.answers["journal"] = Journal((second,))
    code, out, err = call("journal", "--json")
    answer = json.loads(out)
    assert code == ExitCode.FAILED and answer["lost"] == [2] and Path(answer["copy"]).is_file()
    assert Path(answer["copy"]).stat().st_mode & 0o077 == 0


def test_a_broken_chain_is_the_first_thing_said(call: Any, host: Host) -> None:
    host.answers["journal"] = replace(records.journal(), broken=1)
    code, out, _ = call("journal")
    assert code == ExitCode.FAILED and out.startswith("THE CHAIN IS BROKEN AT ENTRY 1")


def test_a_prune_is_in_the_copy_of_the_journal(call: Any, host: Host, tmp_path: Path) -> None:
    call("prune", "output_1k/0", "--yes")
    (copy,) = (tmp_path / "eagle-console" / "journals").iterdir()
    assert [json.loads(line)["seq"] for line in copy.read_text().split("\n") if line] == [1, 2]
    with copy.open("a") as file:
        file.write('\n{"seq": 3, "torn')
    call("prune", "output_1k/1", "--yes")
    host.answers["journal"] = Journal((replace(records.journal().entries[0], seq=3), *records.journal().entries))
    code, _, err = call("journal")
    assert code == ExitCode.DONE and err == "", "a torn line spoils nothing"
    assert json.loads(copy.read_text().split("\n")[-1])["seq"] == 3


def test_a_state_directory_that_cannot_be_written_hides_no_receipt(call: Any, tmp_path: Path) -> None:
    (tmp_path / "eagle-console").mkdir()
    (tmp_path / "eagle-console" / "journals").write_text("a file in the way")
    code, out, err = call("prune", "output_1k/0", "--yes")
    assert code == ExitCode.DONE and "in the trash as" in out and "could not be kept" in err


def test_names_of_the_host_cannot_paint_the_terminal(call: Any, host: Host) -> None:
    evil = "output_1k/\x1b[2J\nforged"
    host.answers["plan_prune"] = records.plan(items=(records.plan_item(evil),))
    _, out, _ = call("prune", "x", "--dry-run")
    assert "\x1b" not in out and "\nforged" not in out
