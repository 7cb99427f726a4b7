"""A crash report is written, complete enough to debug, and safe to paste."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle_console import crash


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_a_report_has_the_traceback_and_no_secret(state: Path) -> None:
    token = "hf_" + "a1B2c3D4" * 4
    try:
        raise RuntimeError(f"login of root@gpu-box.example.org failed, HF_TOKEN={token}")
    except RuntimeError as error:
        path = crash.write_report(error, "status")
    assert path is not None
    text = path.read_text()
    assert path.parent == state / "eagle-console" / "crash"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "RuntimeError" in text and "test_crash.py" in text and "doing: status" in text
    assert token not in text and "root@gpu-box" not in text


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("password: hunter2 next", "next", "hunter2"),
        ("--api-key=abc123 --port 8000", "--port 8000", "abc123"),
        ("MY_SECRET_TOKEN = xyz", "MY_SECRET_TOKEN", "xyz"),
        ("ssh user@10.0.0.7 -p 22", "-p 22", "10.0.0.7"),
    ],
)
def test_redaction(text: str, kept: str, gone: str) -> None:
    redacted = crash.redact(text)
    assert kept in redacted and gone not in redacted


def test_values_of_secret_variables_are_taken_out_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "correct-horse-battery")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    monkeypatch.setenv("SHORT_TOKEN", "the")
    text = crash.redact("KeyError: 'correct-horse-battery' in the url https://x/wJalrXUtnFEMI/K7MDENG/y")
    assert text == "KeyError: '<redacted>' in the url https://x/<redacted>/y"


def test_a_state_directory_that_cannot_be_written_is_no_second_crash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert crash.write_report(RuntimeError("x"), "status") is None
