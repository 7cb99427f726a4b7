"""The disk from the command line and from the screen, over a real agent: the demo's workspace, its files and inodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from eagle_console.config import HostProfile
from eagle_console.demo.workspace import create_workspace
from eagle_console.link.connect import LOCAL, Target
from eagle_console.link.supervisor import Supervisor
from eagle_console.tui.app import ConsoleApp
from eagle_console.tui.screens.prune_dialog import PruneDialog
from eagle_console.tui.widgets.table import Table

SECONDS = 60.0

Tree = dict[str, tuple[int, int]]
"""Inode and size of every file, by its path."""


@dataclass(frozen=True)
class Box:
    """A user's home with the profile ``box``: this machine through the local transport, with the demo's workspace."""

    home: Path
    workspace: Path

    def __call__(self, *words: str) -> tuple[int, str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        done = subprocess.run(
            [sys.executable, "-m", "eagle_console.cli", *words],
            env={**environment, "HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *words: str, code: int = 0) -> Any:
        got, out, err = self(*words, "--json")
        assert got == code, (out, err)
        return json.loads(out)

    def prune(self, *words: str, code: int = 0) -> Any:
        """Prunes, and types what a file system of a weaker proof wants."""
        confirm = self.json("prune", "box", *words, "--dry-run", code=code).get("confirm")
        return self.json("prune", "box", *words, "--yes", *(["--confirm", confirm] if confirm else []), code=code)

    def tree(self, name: str = "") -> Tree:
        """What is in a folder of the workspace, our own records left out."""
        found = {}
        for path in (self.workspace / name).rglob("*"):
            place = path.relative_to(self.workspace)
            if not place.parts[0].startswith("."):
                status = path.lstat()
                found[str(place)] = (status.st_ino, status.st_size if path.is_file() else 0)
        return found


@pytest.fixture
def box(tmp_path: Path) -> Box:
    workspace = create_workspace(tmp_path)
    config = tmp_path / ".config" / "eagle-console" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[hosts.box]\naddress = "local"\nworkspace = "{workspace}"\n')
    return Box(tmp_path, workspace)


def test_the_whole_way_from_triage_to_purge(box: Box) -> None:
    triage = box.json("triage", "box")
    verdicts = {Path(item["path"]).name: item for item in triage["artifacts"] if not item["path"].count("output_1k/")}
    assert [verdicts[name]["verdict"] for name in ("output_1k", "output_test", "data_1k")] == ["stale"] * 3
    assert "validation loss 1.742 against 1.897" in verdicts["output_1k"]["reasons"][0]["text"]
    assert "only output_1k and output_test used it" in verdicts["data_1k"]["reasons"][0]["text"]
    assert verdicts["data_test"]["verdict"] == "keep"
    assert any(reason["rule"] == "tiny_reference" for reason in verdicts["data_test"]["reasons"])

    before = box.tree()
    plan = box.json("prune", "box", "output_1k", "output_test", "data_1k", "--dry-run")
    assert box.tree() == before, "a dry run moves nothing"
    assert [Path(item["path"]).name for item in plan["goes"]] == ["output_1k", "output_test", "data_1k"]
    assert 142e6 < plan["reclaimable"] < 144e6

    receipt = box.prune("output_1k", "output_test", "data_1k")
    assert [item["state"] for item in receipt["items"]] == ["trashed"] * 3 and receipt["refused"] == []
    assert receipt["freed"]["unlinked"] is None, "nothing is freed before the purge"
    assert not any(name.split("/")[0] in ("output_1k", "output_test", "data_1k") for name in box.tree())
    (shelf,) = box.json("trash", "box")["receipts"]
    assert shelf["receipt"] == receipt["receipt"] and shelf["expires"] > shelf["created"]

    undone = box.json("undo", "box", receipt["receipt"][:8])
    assert [item["state"] for item in undone["items"]] == ["restored"] * 3
    assert box.tree() == before, "the same inodes at the same names"
    assert box("undo", "box", "last")[0] == 1

    box.prune("data_1k")
    code, _, err = box("purge", "box", "last")
    assert code == 5 and "needs --yes" in err
    (purged,) = box.json("purge", "box", "last", "--yes")["receipts"]
    assert purged["state"] == "purged" and purged["freed"]["unlinked"] == pytest.approx(27e6, rel=0.02)
    assert box("undo", "box", purged["receipt"])[0] in (1, 5), "what is purged does not come back"

    journal = box.json("journal", "box")
    assert journal["broken"] is None and journal["differs"] == [] == journal["lost"]
    actions = [entry["action"] for entry in reversed(journal["entries"])]
    assert list(dict.fromkeys(actions)) == ["prune", "undo", "purge"]
    assert Path(journal["copy"]).is_relative_to(box.home) and len(Path(journal["copy"]).read_text().split()) > 5


def test_the_recommended_policy_and_the_level_of_the_profile(box: Box) -> None:
    config = box.home / ".config" / "eagle-console" / "config.toml"
    config.write_text(config.read_text() + 'prune = "trim"\n')
    listed = box.json("checkpoints", "box", "output_1k")["checkpoints"]
    assert [item["name"] for item in listed] == list("9876543210")
    assert [item["name"] for item in listed if item["best"]] == ["6"]
    receipt = box.prune("--policy", "recommended", "output_1k")
    assert {item["level"] for item in receipt["items"]} == {"trim"}
    after = {item["name"]: item for item in box.json("checkpoints", "box", "output_1k")["checkpoints"]}
    assert [name for name in "0123456789" if after[name]["resumable"]] == ["6", "8", "9"]
    assert all(item["servable"] for item in after.values())
    box.json("undo", "box", "last")
    assert all(item["resumable"] for item in box.json("checkpoints", "box", "output_1k")["checkpoints"])
    whole = box.prune("--policy", "recommended", "output_1k", "--whole")
    assert sorted(Path(item["path"]).name for item in whole["items"]) == ["0", "1", "2", "3", "4", "5", "7"]


def test_refusals_change_nothing(box: Box) -> None:
    before = box.tree()
    outside = box.home / "precious"
    outside.mkdir()
    for path in ("/", "..", ".", str(box.workspace), str(outside), "../precious", "output_1k/6", "output_2k", "absent"):
        code, out, err = box("prune", "box", path, "--yes", "--json")
        assert code in ((1, 5) if path == "absent" else (5,)), (path, out, err)
    code, _, err = box("prune", "box", "output_1k/0", "--yes", "--readonly")
    assert code == 5 and "read-only" in err
    with (box.workspace / "output_1k" / "1" / "model.safetensors").open("rb"):
        code, _, err = box("prune", "box", "output_1k/1", "--yes")
        assert code == 5, "it is open in this process"
    box.json("pin", "box", "output_1k/0")
    assert box("prune", "box", "output_1k/0", "--yes")[0] == 5
    assert box.tree() == before and outside.is_dir()
    answer = box.prune("output_1k/0", "output_1k/2", code=1)
    assert [Path(item["path"]).name for item in answer["items"]] == ["2"]
    assert [Path(item["path"]).name for item in answer["refused"]] == ["0"] and "pinned" in answer["refused"][0][
        "refused"
    ]
    assert box.json("pin", "box", "output_1k/0", "--remove")["pinned"] is False
    box.prune("output_1k/0")


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        said = [note.message for note in pilot.app._notifications]
        assert time.monotonic() < deadline, (said, [str(table.border_title) for table in pilot.app.screen.query(Table)])
        await pilot.pause(0.02)


async def test_one_key_on_a_run_prunes_it_and_u_brings_it_back(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(box.home))
    profile = HostProfile("box", LOCAL, workspace=str(box.workspace))
    app = ConsoleApp(profile, lambda publish: Supervisor(Target(profile), publish))
    before = box.tree("output_1k")
    async with app.run_test(size=(120, 34)) as pilot:
        await until(pilot, lambda: app.client is not None)
        await pilot.press("4")
        await until(pilot, lambda: app.screen.query_one("#checkpoint-table", Table).plain.count("\n") == 9)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, PruneDialog) and app.focused is not None)
        for field in app.screen.query(Input):  # a file system of a weaker proof
            field.value = app.screen._plan.confirm  # type: ignore[attr-defined]
        accept = app.screen.query_one("#accept")
        accept.focus()
        await until(pilot, lambda: app.focused is accept)
        await pilot.press("enter")
        await until(pilot, lambda: any("u undoes" in note.message for note in app._notifications))
        left = {path.name for path in (box.workspace / "output_1k").iterdir() if path.name.isdigit()}
        assert left == {"6", "8", "9"}
        await until(pilot, lambda: app.screen.query_one("#checkpoint-table", Table).plain.count("\n") == 2)
        await pilot.press("u")
        await until(pilot, lambda: any("7 items of 7 back" in note.message for note in app._notifications))
        assert box.tree("output_1k") == before
