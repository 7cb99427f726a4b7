"""From prompts to a measured draft on two cores through the embedded SSH host: both recipes, and an untrained draft."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.stages import ROOT, prompts

from pipeline.plan import manifest
from pipeline.plan.layout import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PIPELINE = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
VERIFIER = PIPELINE / "SmolLM2-135M-Instruct"

PARAMETERS = {
    "samples": 50,
    "held_out": 10,
    "max_tokens": 64,
    "temperature": 0,
    "truncated": "keep",
    "max_truncated": 1.0,
    "max_repetitive": 1.0,
    "concurrency": 8,
    "dtype": "float32",
    "max_model_len": 512,
    "draft_vocab_size": 4096,
    "min_coverage": 0.5,
    "epochs": 20,
    "lr": 0.0007,
    "total_seq_len": 128,
    "loader_workers": 0,
    "checkpoint_every": 10,
    "bench_prompts": 50,
}

RECIPE_SECONDS = 1700.0


class Demo:
    """The command line against an embedded host with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.workspace = home / "demo" / "workspace"
        self.source = home / "source.jsonl"
        self.source.write_text("".join(json.dumps(row) + "\n" for row in prompts()))
        names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        kept = {name: value for name, value in os.environ.items() if name not in names}
        self._environment = {**kept, "HOME": str(home), "EAGLE_CONSOLE_DEMO_HOME": str(home / "demo")}

    def run(self, stage: str, **parameters: Any) -> dict[str, Any]:
        """Runs a stage to its end, followed by the command line; its job."""
        words = ["run", "demo", stage, *(f"{name}={value}" for name, value in parameters.items()), "--follow"]
        followed = self._call(*words)
        log = self._call("logs", "demo", stage.replace("-", "_"), "--tail", "60")
        assert followed.returncode == 0, followed.stderr[-3000:] + log.stdout
        jobs: list[dict[str, Any]] = json.loads(self._call("jobs", "demo", "--json").stdout)["jobs"]
        return max(jobs, key=lambda job: float(job["created"] or 0.0))

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "eagle_console.cli", *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RECIPE_SECONDS,
            check=False,
        )

    def report(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Run(str(self.workspace), run).bench_json.read_text())
        return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    if not (PIPELINE / "ml" / "bin" / "python").exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment in {PIPELINE}")
    yield Demo(tmp_path_factory.mktemp("recipes"))


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Writes to the terminal, whatever pytest captures."""

    def write(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}")

    return write


def check(demo: Demo, run: str, show: Callable[[str], None]) -> None:
    """What a finished recipe must have reached."""
    paths = Run(str(demo.workspace), run)
    for stage in ("prompts", "synthesize", "prepare", "extract", "vocab", "train", "export", "bench"):
        proven = manifest.read(paths.manifest(stage))
        assert proven is not None and proven.evidence and all(item.ok for item in proven.evidence), stage
    report = demo.report(run)
    trained, held_out = report["sets"]
    show(paths.bench_markdown.read_text())
    assert trained["drafts"] >= 500
    assert trained["acceptance_length"] >= 2.8
    assert held_out["acceptance_length"] == pytest.approx(report["predicted_acceptance"], abs=0.25)
    equal, of = (sum(measured[name] for measured in report["sets"]) for name in ("equal", "prompts"))
    assert equal >= 0.95 * of, [measured["mismatches"] for measured in report["sets"]]
    for measured in report["sets"]:
        assert len(measured["mismatches"]) == measured["prompts"] - measured["equal"]
        assert all(item["without"] != item["with"] for item in measured["mismatches"])
        assert all(item["logprob_gap"] is not None for item in measured["mismatches"])
        assert min(measured["tokens_per_second"].values()) > 0
    assert "| mean acceptance length |" in paths.bench_markdown.read_text()


def test_classic(demo: Demo, show: Callable[[str], None]) -> None:
    job = demo.run("classic", run="classic", source=demo.source, **PARAMETERS)
    assert job["state"] == "done"
    check(demo, "classic", show)


def test_one_pass_on_the_same_prompts(demo: Demo, show: Callable[[str], None]) -> None:
    demo.run("one-pass", run="one-pass", source=demo.source, **PARAMETERS)
    check(demo, "one-pass", show)


def test_an_untrained_draft_is_next_to_never_accepted(demo: Demo) -> None:
    draft = demo.workspace / "draft_untrained"
    script = Path(__file__).parents[1] / "fixtures" / "untrained_draft.py"
    prepared = Run(str(demo.workspace), "classic").prepared
    if not prepared.exists():
        pytest.skip("it uses the data of test_classic")
    subprocess.run(
        [PIPELINE / "ml" / "bin" / "python", script, VERIFIER, prepared, "4096", draft],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"},
        check=True,
        capture_output=True,
    )
    source = Run(str(demo.workspace), "classic").prompts
    job = demo.run(
        "bench",
        run="untrained",
        draft=draft,
        prompts_file=source,
        bench_prompts=8,
        max_tokens=48,
        dtype="float32",
        max_model_len=1024,
    )
    assert job["state"] == "done"
    (measured,) = demo.report("untrained")["sets"]
    assert measured["drafts"] > 100
    assert measured["acceptance_length"] <= 1.05
    assert measured["equal"] >= 0.95 * measured["prompts"]
