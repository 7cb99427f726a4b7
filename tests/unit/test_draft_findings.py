"""Every rule on a draft of a few kilobytes, broken in one way; tests/e2e/test_draft_rules.py asks vLLM the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.draft_defects import AUX, DEFECTS, ENDS, NOTHING
from fixtures.draft_folder import DraftFolder, Tensor, small, speculators

from pipeline.export import ExportError, verify
from pipeline.plan.draft_rules import values
from pipeline.plan.draft_rules.catalogue import ERROR, LEVELS, NOTE, RULES
from pipeline.plan.draft_rules.checks import check, errors, not_judged
from pipeline.plan.draft_rules.facts import SGLANG, VLLM, Sample, Verifier
from pipeline.plan.draft_rules.finding import EVIDENCE_LENGTH, Finding
from pipeline.plan.draft_rules.fixing import default_target, fix
from pipeline.plan.draft_rules.folder import LocalFolder
from pipeline.plan.draft_rules.reading import SMALL_BYTES, read_draft


def findings(
    draft: DraftFolder, root: Path, verifier: dict[str, Any] | None = None, convention: str | None = None
) -> list[Finding]:
    beside = None if verifier is None else Verifier("/verifier", verifier)
    return check(read_draft(LocalFolder(str(draft.write(root)))), beside, convention)


def test_a_sound_draft_has_no_findings(tmp_path: Path) -> None:
    draft, verifier = small()
    assert findings(draft, tmp_path, verifier) == []
    del draft.tensors["embed_tokens.weight"]  # shared with the verifier then
    assert findings(draft, tmp_path / "slim", verifier) == []


def test_a_sound_draft_of_the_whole_vocabulary_has_none(tmp_path: Path) -> None:
    draft, verifier = small(reduced=False)
    assert findings(draft, tmp_path, verifier) == []
    draft.drop("lm_head.weight")  # the verifier's fits
    assert findings(draft, tmp_path / "shared", verifier) == []


def test_a_checkpoint_of_speculators_is_known_to_be_one(tmp_path: Path) -> None:
    draft, verifier = small()
    found = findings(speculators(draft, str(tmp_path)), tmp_path, verifier)
    assert [(finding.id, finding.level) for finding in found] == [("R34", NOTE)]


@pytest.mark.parametrize("name", DEFECTS)
def test_the_rule_names_the_defect(name: str, tmp_path: Path) -> None:
    defect = DEFECTS[name]
    draft, verifier = small()
    draft = defect.change(draft, verifier) or draft
    defect.verifier(verifier)
    found = findings(draft, tmp_path, verifier)
    named = [finding for finding in found if finding.id == defect.rule]
    assert named, [f"{finding.id}: {finding.evidence}" for finding in found]
    assert all(finding.evidence for finding in named)
    if RULES[defect.rule].level == ERROR or (defect.does in (ENDS, NOTHING) and defect.method):
        assert named[0].level == ERROR
    others = {finding.id for finding in errors(found)} - {defect.rule}
    allowed = {"R1", "R2", "R3", "R4"} if name == "R22 prefix" else {"R11", "R13", "R16", "R17", "R18"}
    assert others <= allowed, "a defect is not named as another one"


def test_every_rule_has_a_defect_a_source_and_words() -> None:
    shown = {defect.rule for defect in DEFECTS.values()}
    assert set(RULES) == shown | {"F1", "F2", "F3"}
    for rule in RULES.values():
        assert rule.level in LEVELS and rule.effect in ("error", "silent", "none")
        assert all((rule.title, rule.vllm, rule.remedy, rule.source)), rule.id


def test_files_that_are_missing_or_cut(tmp_path: Path) -> None:
    draft, _ = small()
    path = draft.write(tmp_path)
    model = path / "model.safetensors"
    whole = model.read_bytes()

    def ids() -> set[str]:
        return {finding.id for finding in check(read_draft(LocalFolder(str(path))))}

    model.write_bytes(whole[:-1])
    assert "F3" in ids() and "R2" not in ids(), "nothing is missing: it cannot be read"
    model.write_bytes(whole[:100])
    assert "F3" in ids()
    model.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    assert "F3" in ids()
    model.unlink()
    assert "F2" in ids()
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"fc.weight": "a.safetensors"}}))
    assert "F3" in ids()
    (path / "config.json").write_text("[1]")
    assert "F1" in ids()
    (path / "config.json").unlink()
    assert "F1" in ids()
    with pytest.raises(OSError):
        read_draft(LocalFolder(str(tmp_path / "nothing")))


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    draft, verifier = small()
    path = draft.write(tmp_path)
    (path / "model.safetensors").unlink()
    head = {"lm_head.weight": draft.tensors.pop("lm_head.weight")}
    DraftFolder(draft.config, draft.tensors, "a").write(path)
    DraftFolder(draft.config, head, "b").write(path)
    (path / "a" / "model.safetensors").rename(path / "a.safetensors")
    (path / "b" / "model.safetensors").rename(path / "b.safetensors")
    (path / "stray.safetensors").write_bytes(b"not in the index")
    index = {**dict.fromkeys(draft.tensors, "a.safetensors"), "lm_head.weight": "b.safetensors"}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert check(read_draft(LocalFolder(str(path))), Verifier("/v", verifier)) == []


def test_the_counting_of_layer_ids_can_be_said(tmp_path: Path) -> None:
    draft, verifier = small()
    for place in (draft.config, draft.nested):
        place[AUX] = [1, 5, 8]
    path = str(draft.write(tmp_path))
    facts = read_draft(LocalFolder(path))
    beside = Verifier("/verifier", verifier)
    assert [finding.id for finding in check(facts, beside)] == ["R9"]
    assert check(facts, beside, VLLM) == [], "who says that they count as vLLM's is believed"
    assert "vLLM needs [2, 6, 9]" in check(facts, beside, SGLANG)[0].evidence
    assert check(facts)[0].level == NOTE
    corrected = fix(facts, beside, SGLANG, path + "_fixed")
    assert corrected.config[AUX] == corrected.config["eagle_config"][AUX] == [2, 6, 9]
    assert facts.config[AUX] == [1, 5, 8]
    assert fix(facts, beside, None, path + "_fixed").changes == ()


@pytest.mark.parametrize("name", ["R7", "R10", "R12", "R12 speculators", "R14", "R19", "R24", "R30"])
def test_what_needs_no_guess_is_corrected(name: str, tmp_path: Path) -> None:
    draft, verifier = small()
    draft = DEFECTS[name].change(draft, verifier) or draft
    facts = read_draft(LocalFolder(str(draft.write(tmp_path))))
    beside = Verifier(str(tmp_path), verifier)
    target = default_target(facts.path)
    correction = fix(facts, beside, None, target)
    rule = DEFECTS[name].rule
    assert [change.split(":")[0] for change in correction.changes] == [rule]
    assert RULES[rule].fixable
    draft.config, draft.name = correction.config, Path(target).name
    again = read_draft(LocalFolder(str(draft.write(tmp_path))))
    assert {finding.id for finding in check(again, beside)} <= {"R34"}


def test_only_rules_that_say_so_are_fixable() -> None:
    assert {rule.id for rule in RULES.values() if rule.fixable} == {"R7", "R10", "R12", "R14", "R19", "R24", "R30"}


def test_a_copy_is_named_without_what_misleads() -> None:
    assert default_target("/a/eagle-draft") == "/a/eagle3-draft_fixed"
    assert default_target("/a/My-EAGLE-one") == "/a/My-eagle3-one_fixed"
    assert default_target("/a/draft") == "/a/draft_fixed"


def test_what_is_not_judged_without_a_verifier() -> None:
    assert set(not_judged(None)) == {"R9", "R17", "R18", "R26", "R31", "R32", "R33"}
    assert not_judged(Verifier("/v", {})) == ()


def test_the_verifiers_numbers_decide(tmp_path: Path) -> None:
    draft, verifier = small()
    path = str(draft.write(tmp_path))

    def ids(**other: Any) -> dict[str, str]:
        beside = Verifier("/v", {**verifier, **other})
        return {finding.id: finding.level for finding in check(read_draft(LocalFolder(path)), beside)}

    assert ids(vocab_size=64) == {"R17": "error"}
    assert ids(hidden_size=16) == {"R18": "error"}
    assert ids(rope_theta=5e5) == {"R27": "note"}
    assert ids(num_hidden_layers=8) == {"R9": "error"}
    assert ids(text_config={**verifier, "vocab_size": 64}) == {"R17": "error"}, "a nested language model"


def test_an_export_closes_with_the_rules(tmp_path: Path) -> None:
    draft, verifier = small()
    (tmp_path / "config.json").write_text(json.dumps(verifier))
    del draft.tensors["embed_tokens.weight"]
    assert verify(draft.write(tmp_path / "sound"), tmp_path).doubts == ()
    draft.config["max_position_embeddings"] = 64
    assert [doubt.id for doubt in verify(draft.write(tmp_path / "short"), tmp_path).doubts] == ["R26"]
    draft.fill("hidden_norm.weight", "NaN")
    with pytest.raises(ExportError, match=r"R5: .*hidden_norm"):
        verify(draft.write(tmp_path / "bad"), tmp_path)


def test_hostile_configs_never_raise(tmp_path: Path) -> None:
    for place, config in enumerate(
        (
            {"hidden_size": "8", "architectures": "x", "eagle_config": [1], AUX: "2,3"},
            {"speculators_config": 5, "transformer_layer_config": [], AUX: [1.5]},
            {"speculators_config": {"verifier": {"name_or_path": 7}}},
            {"num_attention_heads": 0, "hidden_size": -1, "vocab_size": 10**30, "draft_vocab_size": True},
            {
                "num_hidden_layers": 10**9,
                "fc_norm": True,
                "num_aux_hidden_states": 10**9,
                "rope_parameters": 4,
                "rope_theta": "1e4",
                "use_cache": "no",
            },
        )
    ):
        draft, verifier = small()
        draft.config = config
        findings(draft, tmp_path / str(place), verifier)
        findings(draft, tmp_path / f"{place} alone", {"text_config": 3, "architectures": 1})


def test_findings_stay_short_whatever_the_folder_holds(tmp_path: Path) -> None:
    draft, _ = small()
    for number in range(300):
        draft.tensors[f"{'x' * 2000}{number}"] = Tensor("BF16", (1,), b"\xc0\x7f")
    found = findings(draft, tmp_path)
    assert len(found) < 10 and all(len(finding.evidence) <= EVIDENCE_LENGTH for finding in found)


def test_large_tensors_are_sampled_and_small_ones_read_whole(tmp_path: Path) -> None:
    draft, _ = small()
    rows = SMALL_BYTES // 8
    big = Tensor("BF16", (rows, 64), b"\x80\x3f" * (rows * 64))
    big.data = big.data[:-2] + b"\xc0\x7f"  # a NaN at the very end
    draft.tensors["fc.weight"] = big
    folder = LocalFolder(str(draft.write(tmp_path)))
    samples = read_draft(folder).samples
    assert samples["fc.weight"].bad == 1 and not samples["fc.weight"].whole
    assert samples["norm.weight"] == Sample(8, True)
    assert folder.bytes_read < 200_000


@pytest.mark.parametrize(
    ("dtype", "raw", "expected"),
    [
        ("BF16", bytes.fromhex("803f c07f 80ff 0000"), Sample(4, True, 2)),
        ("F16", bytes.fromhex("003c 007c"), Sample(2, True, 1)),
        ("F32", bytes.fromhex("0000803f 0000c07f"), Sample(2, True, 1)),
        ("F64", bytes.fromhex("000000000000f07f"), Sample(1, True, 1)),
        ("F32", bytes.fromhex("00000080 00000000"), Sample(2, True, zero=True)),
        ("F8_E4M3", b"\0\0", None),
        ("BF16", b"", None),
    ],
)
def test_values_without_numpy(dtype: str, raw: bytes, expected: Sample | None) -> None:
    assert values.sample(dtype, raw, True) == expected


def test_marks_and_numbers_without_numpy() -> None:
    assert values.marked("BOOL", b"\0\1\1") == (1, 2)
    assert values.marked("I64", bytes(8) + b"\1" + bytes(7)) == (1,)
    assert values.integers("I32", b"\xff\xff\xff\xff") == (-1,)
    assert values.integers("F32", b"\0\0\0\0") is None
