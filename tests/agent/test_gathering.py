"""What the preflight's facts say about real folders and this machine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from fixtures import models

from pipeline.plan import manifest
from pipeline.plan.catalog import stage_named
from pipeline.plan.draft_config import AUX_LAYERS
from pipeline.plan.events import Evidence
from pipeline.plan.layout import Run
from pipeline.plan.manifest import Manifest
from pipeline.plan.stage import resolve
from pipeline.plan.state import RunState
from remote.jobs import model_folder, run_state
from remote.jobs.gathering import Gatherer, Readings
from remote.jobs.model_folder import ModelFolders
from remote.policy import Policy
from remote.protocol.gpu import GPU_OK, Gpu, GpuSnapshot
from remote.protocol.host import Filesystem, HostSample
from remote.protocol.jobs import RUNNING, Job


def test_a_whole_model(tmp_path: Path) -> None:
    found = ModelFolders().model(str(models.write(tmp_path / "m", shards=3)))
    assert found.exists and found.has_config and found.has_weights and found.has_tokenizer and found.defects == ()
    assert found.config is not None and found.config.layers == 8 and found.config.cache_values == 2 * 16 * 2
    assert found.weight_bytes == sum(path.stat().st_size for path in (tmp_path / "m").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "model-00002-of-00003.safetensors").unlink(), "1 of 3 shards of its index"),
        (lambda folder: os.truncate(folder / "model-00003-of-00003.safetensors", 90), "00003.safetensors is cut"),
        (
            lambda folder: (folder / "model-00001-of-00003.safetensors").write_text(
                "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4000000000\n"
            ),
            "00001-of-00003.safetensors is a Git LFS pointer of",
        ),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("{"), "index.json cannot be read"),
        (lambda folder: (folder / "model-00001-of-00003.safetensors").write_bytes(b""), "is cut: 0 bytes"),
    ],
)  # fmt: skip
def test_damage_is_seen_from_headers_and_again_when_a_file_changed(tmp_path: Path, damage, words: str) -> None:
    folders, folder = ModelFolders(), models.write(tmp_path / "m", shards=3)
    assert folders.model(str(folder)).defects == ()
    damage(folder)
    (found,) = folders.model(str(folder)).defects
    assert words in found


def test_links_of_a_cache_are_followed(tmp_path: Path) -> None:
    blobs = models.write(tmp_path / "blobs")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    assert ModelFolders().model(str(snapshot)).defects == ()
    (blobs / "model.safetensors").unlink()
    (found,) = ModelFolders().model(str(snapshot)).defects
    assert "model.safetensors cannot be read" in found


def test_a_tokenizer_of_code_and_a_config_that_lacks_a_number(tmp_path: Path) -> None:
    folder = models.write(tmp_path / "m", vocab_size=None)
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["x.Y", null]}}')
    found = ModelFolders().model(str(folder))
    assert found.tokenizer_code and found.config is None and "vocab_size" in found.config_problem
    assert not ModelFolders().model(str(tmp_path / "nothing")).exists


def test_drafts_in_both_formats(tmp_path: Path) -> None:
    flat = {"hidden_size": 64, "vocab_size": 256, "draft_vocab_size": 32, "eagle_config": {AUX_LAYERS: [2, 4, 5]}}
    layered = {"transformer_layer_config": {"hidden_size": 64, "vocab_size": 256}, "draft_vocab_size": 32}
    for name, config in (("flat", flat), ("layered", {**layered, AUX_LAYERS: [2, 4, 5]})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        found = model_folder.draft(str(tmp_path / name))
        assert (found.hidden_size, found.vocab_size, found.draft_vocab_size) == (64, 256, 32)
        assert found.layers == (2, 4, 5) and found.problem == ""
    (tmp_path / "flat" / "config.json").write_text("[")
    assert model_folder.draft(str(tmp_path / "flat")).problem


def test_how_far_a_run_has_come(tmp_path: Path) -> None:
    run = Run(str(tmp_path), "1k")
    assert run_state.read(run) == RunState()
    run.hidden_states.mkdir(parents=True)
    for row in range(3):
        models.safetensors(run.hidden_states / f"hs_{row}.safetensors", 1000)
    (run.hidden_states / "hs_3.safetensors.lock").touch()
    (run.prepared / "data-00000-of-00001.arrow").touch()
    (run.prepared / "d2t-32000.npy").touch()
    for name in ("0", "1", "interrupted"):
        (run.output / name).mkdir(parents=True)
    proven = (Evidence("rows", 10, "rows"), Evidence("tokens", 5030, "tokens"))
    manifest.write(run.manifest("prepare"), Manifest("prepare", "1k", {}, evidence=proven))
    found = run_state.read(run)
    assert (found.rows, found.tokens, found.states_files, found.vocabularies) == (10, 5030, 3, (32000,))
    assert found.states_bytes == sum(path.stat().st_size for path in run.hidden_states.glob("*.safetensors"))
    assert found.checkpoints == 2 and found.prompts is None


def test_the_facts_of_a_launch(tmp_path: Path) -> None:
    verifier = str(models.write(tmp_path / "verifier"))
    workspace = tmp_path / "workspace"
    run = Run(str(workspace), "1k")
    run.prepared.mkdir(parents=True)
    (run.prepared / "data-00000-of-00001.arrow").touch()
    proven = (Evidence("rows", 10, "rows"), Evidence("tokens", 1000, "tokens"))
    manifest.write(run.manifest("prepare"), Manifest("prepare", "1k", {}, evidence=proven))
    extract = stage_named("extract")
    parameters = resolve(extract, {"verifier": verifier}, {})
    other = Job("extract-1", "extract", "task", RUNNING, 1.0, "here", parameters)
    readings = Readings(
        GpuSnapshot("ok", (Gpu(0, GPU_OK, 0.0, memory_total=100, memory_used=1),), driver_version="580.95.05"),
        HostSample(0.0, 4, memory_total=8000, memory_available=4000, shm=Filesystem("/dev/shm", 10, 9, 1)),
    )
    policy = Policy(False, "", (str(workspace),), str(workspace))
    gatherer = Gatherer(policy, (other,), ModelFolders(), readings, time.time() - 100)
    facts = gatherer.facts(extract, None, parameters, simulated=False)
    assert facts.workspace.writable and (facts.workspace.free or 0) > 0
    assert facts.verifier is not None and facts.verifier.config is not None
    assert facts.run.tokens == 1000
    assert facts.growth["extract-1"].expected == 1000 * 4 * 64 * 2
    assert facts.host.driver == "580.95.05" and facts.host.shm_free == 9 and facts.host.memory_available == 4000
    assert facts.host.gpus is not None and 99 < (facts.host.skew or 0) < 160
    assert facts.host.cores >= 1 and facts.host.bases

    simulated = Gatherer(policy, (), ModelFolders(), Readings(GpuSnapshot("ok", readings.gpus.gpus, simulated=True)))  # type: ignore[union-attr]
    assert simulated.facts(extract, None, parameters, simulated=False).host.gpus is None
