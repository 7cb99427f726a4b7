"""Manifests, fingerprints and rows: what still stands, what has changed, and what a killed writer leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import rows
from pipeline.plan import manifest
from pipeline.plan.events import Evidence
from pipeline.plan.fingerprint import ABSENT, SAMPLE_BYTES, WHOLE_BYTES, fingerprint
from pipeline.plan.manifest import Changed, Manifest, UpToDate, freshness

KNOWN = Manifest(
    "prepare",
    "1k",
    {"seed": 0},
    inputs={"a": "1"},
    outputs={"/o": {"rows": 3, "fingerprint": "f"}},
    evidence=(Evidence("rows", 3, "rows"),),
    wall=7.0,
)


@pytest.mark.parametrize(
    ("known", "parameters", "inputs", "outputs", "why"),
    [
        (KNOWN, {"seed": 0}, {"a": "1"}, {"/o": "f"}, ""),
        (KNOWN, {"seed": 0}, {"a": "1"}, None, ""),
        (None, {"seed": 0}, {"a": "1"}, {"/o": "f"}, "not been finished"),
        (KNOWN, {"seed": 1}, {"a": "1"}, {"/o": "f"}, "seed was 0 and is 1"),
        (KNOWN, {"seed": None}, {"a": "1"}, {"/o": "f"}, "seed was 0 and is not set"),
        (KNOWN, {"seed": 0, "new": 2}, {"a": "1"}, {"/o": "f"}, "new was not set and is 2"),
        (KNOWN, {"seed": 0}, {"a": "2"}, {"/o": "f"}, "input a"),
        (KNOWN, {"seed": 0}, {}, {"/o": "f"}, "input a"),
        (KNOWN, {"seed": 0}, {"a": "1"}, {"/o": "g"}, "output /o"),
        (KNOWN, {"seed": 0}, {"a": "1"}, {}, "output /o"),
    ],
)
def test_freshness(known: Manifest | None, parameters, inputs, outputs, why: str) -> None:
    verdict = freshness(known, parameters, inputs, outputs)
    if why:
        assert isinstance(verdict, Changed) and why in verdict.why
    else:
        assert verdict == UpToDate(7.0)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "prepare.json"
    manifest.write(path, KNOWN)
    assert manifest.read(path) == KNOWN and os.listdir(path.parent) == ["prepare.json"]
    for text in ("", "{", "[]", "{}", '{"stage": 1, "evidence": [{"no": 1}]}'):
        path.write_text(text)
        assert manifest.read(path) is None
    assert manifest.read(tmp_path / "nothing") is None


def test_fingerprints(tmp_path: Path) -> None:
    assert fingerprint(str(tmp_path / "nothing")) == ABSENT
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "x").write_text("1")
    before = fingerprint(str(folder))
    (folder / "x.lock").write_text("")
    (folder / ".hidden").write_text("")
    os.utime(folder / "x", (1, 1))
    assert fingerprint(str(folder)) == before, "neither locks nor times are content"
    (folder / "sub").mkdir()
    (folder / "sub" / "y").write_text("2")
    assert fingerprint(str(folder)) != before
    assert fingerprint(str(folder), ["sub"]) == before
    (folder / "x").write_text("3")
    assert fingerprint(str(folder), ["sub"]) != before


@pytest.mark.parametrize("place", [0, SAMPLE_BYTES - 1, WHOLE_BYTES, 2 * WHOLE_BYTES - 1])
def test_a_large_file_is_known_by_its_ends_and_its_middle(tmp_path: Path, place: int) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(2 * WHOLE_BYTES))
    before = fingerprint(str(path))
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(b"x")
    assert fingerprint(str(path)) != before


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.text()), max_size=20)


@given(ROWS, st.data())
def test_a_repaired_file_holds_each_whole_row_once(found: list[tuple[int, int, str]], data: st.DataObject) -> None:
    import tempfile

    lines = [
        json.dumps({"id": f"{group}_{key}", "group": str(group), "text": text}) + "\n" for key, group, text in found
    ]
    whole = "".join(lines).encode()
    cut = data.draw(st.integers(0, len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(whole[:cut])
        repair = rows.repair(path, "id", "group", frozenset({"0", "1", "2"}))
        kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        ids = [row["id"] for row in kept]
        assert len(set(ids)) == len(ids) == repair.kept and {row["group"] for row in kept} <= {"0", "1", "2"}
        complete = [json.loads(line) for line in whole[:cut].decode("utf-8").split("\n")[:-1]]
        assert {row["id"] for row in complete if row["group"] in ("0", "1", "2")} <= set(ids)
        assert not rows.repair(path, "id", "group", frozenset({"0", "1", "2"})).changed
        counter = rows.LineCounter(path)
        assert counter.count() == counter.count() == len(ids)


def test_writing_rows_replaces_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert rows.write(path, [{"a": 1}]) == 1

    def broken():
        yield {"a": 2}
        raise ValueError

    with pytest.raises(ValueError):
        rows.write(path, broken())
    assert list(rows.read(path)) == [{"a": 1}] and os.listdir(tmp_path) == ["rows.jsonl"]
    assert list(rows.read(tmp_path / "nothing")) == []
