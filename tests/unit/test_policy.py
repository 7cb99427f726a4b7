"""What agent.toml may say, and what a console may add to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote.policy import PolicyError, load, parse
from remote.protocol.errors import REFUSED, RequestError


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("# nothing\n\n", {}),
        ("readonly = true", {"readonly": True}),
        (
            '  readonly=false # why\nroots = ["/data", "/mnt/x y"]  # two\n',
            {"readonly": False, "roots": ("/data", "/mnt/x y")},
        ),
        ("roots = []", {"roots": ()}),
    ],
)
def test_what_can_be_said(text: str, settings: dict[str, object]) -> None:
    assert parse(text) == settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("readonly", "line 1"),
        ("\nreadonly = yes", "line 2"),
        ("readonly = 1", "true or false"),
        ('readonly = "true"', "true or false"),
        ("readonly = true false", "something follows"),
        ("readonly = true\nreadonly = false", "twice"),
        ("read_only = true", "unknown key 'read_only'"),
        ("roots = '/data'", "line 1"),
        ('roots = "/data"', "a list of absolute paths"),
        ('roots = ["data"]', "a list of absolute paths"),
        ("roots = [1]", "a list of absolute paths"),
        ("[agent]\nreadonly = true", "line 1"),
        ("roots = " + "[" * 100_000, "line 1"),
    ],
)
def test_what_cannot(text: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        parse(text)


def policy(tmp_path: Path, text: str | bytes | None, workspace: str | None = None, readonly: bool = False):
    file = tmp_path / "agent.toml"
    if text is not None:
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(workspace, readonly, [str(file)])


def test_without_a_file_the_workspace_is_the_root(tmp_path: Path) -> None:
    found = policy(tmp_path, None, "/data/work")
    assert (found.readonly, found.roots, found.workspace) == (False, ("/data/work",), "/data/work")
    found.require_writable()
    assert policy(tmp_path, None).roots == ()


@pytest.mark.parametrize("text", ["readonly = perhaps", b"\xff\xfe", "x" * 100_000, 'roots = ["relative"]'])
def test_a_broken_file_makes_the_connection_read_only(tmp_path: Path, text: str | bytes) -> None:
    found = policy(tmp_path, text, "/data/work")
    assert found.readonly and "agent.toml cannot be used" in found.readonly_reason and found.workspace == "/data/work"
    with pytest.raises(RequestError) as refused:
        found.require_writable()
    assert refused.value.code == REFUSED and found.readonly_reason in refused.value.message


def test_a_file_that_cannot_be_read_is_no_absent_file(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").mkdir()
    assert policy(tmp_path, None, "/data/work").readonly
    (tmp_path / "agent.toml").rmdir()
    (tmp_path / "agent.toml").symlink_to(tmp_path / "nothing")
    assert policy(tmp_path, None, "/data/work").readonly


@pytest.mark.parametrize(
    ("host", "asked", "readonly"),
    [("readonly = true", False, True), ("readonly = false", True, True), ("readonly = false", False, False)],
)
def test_the_console_narrows_and_never_widens(tmp_path: Path, host: str, asked: bool, readonly: bool) -> None:
    assert policy(tmp_path, host, "/data/work", asked).readonly is readonly


def test_the_workspace_lies_below_a_root(tmp_path: Path) -> None:
    inside, outside = tmp_path / "data" / "work", tmp_path / "database"
    inside.mkdir(parents=True)
    outside.mkdir()
    (inside / "way-out").symlink_to(outside)
    roots = f'roots = ["/nowhere", "{tmp_path}/data"]'
    for workspace, allowed in (
        (inside, True),
        (tmp_path / "data", True),
        (inside / "not-made-yet", True),
        (outside, False),
        (inside / "way-out", False),
        (inside / ".." / ".." / "database", False),
    ):
        found = policy(tmp_path, roots, str(workspace))
        assert found.readonly is not allowed, workspace
        if not allowed:
            assert "outside the roots" in found.readonly_reason
    assert policy(tmp_path, "roots = []", str(inside)).readonly
    assert policy(tmp_path, None, "relative/path").readonly


def test_the_first_file_counts(tmp_path: Path) -> None:
    system, user = tmp_path / "system.toml", tmp_path / "user.toml"
    user.write_text("readonly = false")
    assert not load("/w", False, [str(system), str(user)]).readonly
    system.write_text("readonly = true")
    assert load("/w", False, [str(system), str(user)]).readonly
