"""What real vLLM makes of a draft that is broken in one way, and that the validator names it.

``DRAFT_RULES_DRAFT`` names another draft than the small one, trained for the verifier ``DRAFT_RULES_VERIFIER`` (SmolLM2
where it is absent): the soak. How much a real draft loses by a defect is then printed; that nothing makes it better is
asserted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fixtures.draft_defects import DEFECTS, ENDS, KEPT, LESS, NOTHING
from fixtures.draft_folder import DraftFolder
from fixtures.stages import ROOT, prompts

from remote.drafts.fixing import fix_draft
from remote.drafts.validating import validate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PYTHON = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline")) / "ml" / "bin" / "python"
FIXTURES = ROOT / "tests" / "fixtures"

REAL = os.environ.get("DRAFT_RULES_DRAFT", "")
SMOLLM2 = str(PYTHON.parents[2] / "SmolLM2-135M-Instruct")

FIXED = ("R7", "R10", "R12", "R12 speculators", "R14", "R19", "R24", "R30")
"""Defects of which a corrected copy is served too."""

SHOWN = {name: defect for name, defect in DEFECTS.items() if defect.does is not None}


@dataclass(frozen=True)
class Answered:
    """What vLLM did with a draft: its error, or how many of the drafted tokens it accepted."""

    error: str
    drafted: int
    accepted: int
    texts: Any
    v2_layers: list[int] | None

    @property
    def rate(self) -> float:
        return self.accepted / self.drafted


@dataclass(frozen=True)
class Rig:
    verifier: str
    drafts: dict[str, Path]
    answers: dict[str, Answered]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """The verifier, its drafts sound, broken and corrected, and vLLM's answers to all of them."""
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment at {PYTHON}")
    root = tmp_path_factory.mktemp("rules")
    verifier_path, sound_path, asked = _given(root) if REAL else _small(root)
    verifier = json.loads((verifier_path / "config.json").read_text())
    sound = DraftFolder.read(sound_path)
    drafts = {"sound": sound_path}
    cases = {"sound": _speculative(sound_path, "eagle3")}
    for name, defect in SHOWN.items():
        draft = sound.copy()
        if "embedding" in name and "embed_tokens.weight" not in draft.tensors:
            own = DraftFolder.read(verifier_path)
            draft.tensors["embed_tokens.weight"] = own.tensors[own.named("embed_tokens.weight")]
        draft = defect.change(draft, dict(verifier)) or draft
        path = drafts[name] = draft.write(root / name.replace(" ", "_"))
        cases[name] = {**_speculative(path, defect.method), "served": defect.served}
        if name in FIXED:
            made = fix_draft(str(path), None, str(verifier_path), None)
            copy = drafts[f"{name} fixed"] = Path(made.target)
            cases[f"{name} fixed"] = {**_speculative(copy, defect.method), "served": defect.served}
    answers = root / "answers"
    answers.mkdir()
    plan = {"verifier": str(verifier_path), "prompts": asked, "cases": cases}
    (root / "cases.json").write_text(json.dumps(plan))
    subprocess.run([PYTHON, FIXTURES / "draft_cases.py", root / "cases.json", answers], check=True)
    if folder := os.environ.get("DRAFT_RULES_ANSWERS"):
        shutil.copytree(answers, folder, dirs_exist_ok=True)
    return Rig(str(verifier_path), drafts, {name: _answered(answers / f"{name}.json") for name in cases})


def _small(root: Path) -> tuple[Path, Path, Any]:
    """Verifier, sound draft, and prompts in tokens."""
    subprocess.run([PYTHON, FIXTURES / "speaking_models.py", root], check=True, capture_output=True)
    return root / "verifier", root / "eagle3_draft", json.loads((root / "prompts.json").read_text())


def _given(root: Path) -> tuple[Path, Path, Any]:
    """The same of a real verifier; its prompts are texts."""
    draft = Path(REAL).resolve()
    if not (draft / "model.safetensors").exists():
        pytest.fail(f"{draft} is no exported draft; a recipe leaves one as draft_NAME")
    shutil.copytree(draft, root / "eagle3_draft")
    texts = [row["prompt"] for row in prompts()[::4]]
    return Path(os.environ.get("DRAFT_RULES_VERIFIER", SMOLLM2)).resolve(), root / "eagle3_draft", texts


def _speculative(path: Path, method: str | None) -> dict[str, Any]:
    return {"model": str(path), "num_speculative_tokens": 3, **({"method": method} if method else {})}


def _answered(path: Path) -> Answered:
    read = json.loads(path.read_text())
    return Answered(
        read.get("error", ""),
        int(read.get("draft_tokens") or 0),
        int(read.get("accepted") or 0),
        read.get("texts"),
        read.get("v2_layers"),
    )


def test_the_sound_draft_is_accepted_nearly_always(rig: Rig) -> None:
    sound = rig.answers["sound"]
    assert sound.error == "" and sound.drafted > 300
    assert sound.rate > (0.1 if REAL else 0.95)
    assert [found for found in validate(str(rig.drafts["sound"]), rig.verifier).findings if found.level != "note"] == []


def bounds(does: str, sound: float) -> tuple[float, float]:
    """The least and the most that may be accepted. A real draft may do without a norm, or with a neighbour's state."""
    if REAL:
        return {NOTHING: (0.0, 0.3 * sound), LESS: (0.0, sound + 0.02), KEPT: (0.0, sound + 0.02)}[does]
    return {NOTHING: (0.0, 0.15), LESS: (0.0, sound - 0.05), KEPT: (sound - 0.02, 1.0)}[does]


@pytest.mark.parametrize("name", SHOWN)
def test_vllm_does_what_the_rule_says_and_the_rule_names_it(name: str, rig: Rig) -> None:
    defect, answer, sound = SHOWN[name], rig.answers[name], rig.answers["sound"]
    if defect.does == ENDS:
        assert re.search(defect.words, answer.error, re.IGNORECASE) and answer.error, answer
    else:
        assert answer.error == "", answer.error
        same = [left == right for left, right in zip(answer.texts, sound.texts, strict=True)]
        assert sum(same) >= (0.8 if REAL else 1.0) * len(same), "a broken draft costs speed, never words"
        least, most = bounds(str(defect.does), sound.rate)
        assert least <= answer.rate <= most, f"{answer.accepted} of {answer.drafted}"
    named = [
        finding for finding in validate(str(rig.drafts[name]), rig.verifier).findings if finding.rule == defect.rule
    ]
    assert named, "the validator does not name it"
    if defect.does == NOTHING:
        assert named[0].level == "error"


@pytest.mark.parametrize("name", FIXED)
def test_a_corrected_copy_is_as_good_as_the_sound_draft(name: str, rig: Rig) -> None:
    fixed, sound = rig.answers[f"{name} fixed"], rig.answers["sound"]
    assert fixed.error == ""
    assert fixed.rate > sound.rate - 0.02, f"{fixed.accepted} of {fixed.drafted}"
    findings = validate(str(rig.drafts[f"{name} fixed"]), rig.verifier).findings
    assert {finding.rule for finding in findings} <= {"R34"}


def test_the_v2_runner_reads_the_layers_at_the_top_only(rig: Rig) -> None:
    layers = json.loads((rig.drafts["sound"] / "config.json").read_text())["eagle_aux_hidden_state_layer_ids"]
    assert rig.answers["sound"].v2_layers == layers
    assert rig.answers["R10"].v2_layers is None
    assert rig.answers["R10 fixed"].v2_layers == layers
