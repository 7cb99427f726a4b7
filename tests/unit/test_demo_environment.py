from __future__ import annotations

from pathlib import Path

import pytest

from eagle_console.demo import environment
from eagle_console.demo.environment import find_pipeline


def make(folder: Path) -> Path:
    python = folder / "ml" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    (folder / "SmolLM2-135M-Instruct").mkdir()
    (folder / "SmolLM2-135M-Instruct" / "config.json").write_text("{}")
    return folder


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EAGLE_CONSOLE_PIPELINE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(environment, "_beside_sources", lambda: tmp_path / "sources" / ".pipeline")


def test_there_may_be_none() -> None:
    assert find_pipeline() is None


def test_beside_the_sources_comes_before_the_data_folder(tmp_path: Path) -> None:
    data = make(tmp_path / "data" / "eagle_console" / "pipeline")
    found = find_pipeline()
    assert found is not None
    assert found.python == data / "ml" / "bin" / "python"
    sources = make(tmp_path / "sources" / ".pipeline")
    found = find_pipeline()
    assert found is not None
    assert found.verifier == sources / "SmolLM2-135M-Instruct"


def test_the_variable_decides_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "sources" / ".pipeline")
    monkeypatch.setenv("EAGLE_CONSOLE_PIPELINE", str(tmp_path / "empty"))
    assert find_pipeline() is None
    chosen = make(tmp_path / "chosen")
    monkeypatch.setenv("EAGLE_CONSOLE_PIPELINE", str(chosen))
    found = find_pipeline()
    assert found is not None
    assert found.python == chosen / "ml" / "bin" / "python"


def test_an_incomplete_environment_is_none(tmp_path: Path) -> None:
    folder = make(tmp_path / "sources" / ".pipeline")
    (folder / "SmolLM2-135M-Instruct" / "config.json").unlink()
    assert find_pipeline() is None
