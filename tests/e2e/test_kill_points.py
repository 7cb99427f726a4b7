"""SIGKILL at seeded points: in every stage of the pipeline to the stage itself, to its server or trainer, or to the
agent that launched it. Then the stage runs again, and what it has made must be as if nobody had killed anything.

One point a stage; with ``KILL_POINTS=30`` (``make soak``) as many as that, each round of stages on a run of its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent.agent_process import AgentProcess
from fixtures.stage_jobs import Jobs, living, rows
from fixtures.stages import ROOT, prompts

from pipeline.plan import manifest
from pipeline.plan.layout import Run
from pipeline.states import Shape, problem
from pipeline.training import records
from remote.protocol import jobs
from remote.protocol.codec import to_wire
from remote.protocol.jobs import Job
from remote.protocol.stages import LaunchRequest

PIPELINE = Path(os.environ.get("EAGLE_CONSOLE_PIPELINE", ROOT / ".pipeline"))
PYTHON, TOKENIZER = PIPELINE / "ml" / "bin" / "python", PIPELINE / "SmolLM2-135M-Instruct"

COUNT, EPOCHS = 12, 3
SHAPE = Shape(layers=4, width=64)
STAGE, SERVER, TRAINER, AGENT = "pipeline.stages {}", "VLLM::EngineCore", "pipeline.training.trainer", "the agent"


@dataclass(frozen=True)
class Part:
    """A stage with its parameters, whom to kill there, and within how many seconds where its work shows no share."""

    name: str
    targets: tuple[str, ...]
    parameters: dict[str, Any]
    seconds: float = 2.5


PARTS = (
    Part("prompts", (AGENT, STAGE), {"samples": COUNT, "held_out": 3}, seconds=0.3),
    Part(
        "synthesize",
        (SERVER, STAGE, AGENT),
        {"max_tokens": 100, "temperature": 0, "concurrency": 1, "max_truncated": 1, "max_repetitive": 1},
    ),
    Part("prepare", (STAGE, AGENT), {"seq_length": 256, "truncated": "keep"}),
    Part("extract", (STAGE, AGENT, SERVER), {"concurrency": 1}),
    Part("vocab", (STAGE, AGENT), {"draft_vocab_size": 512, "min_coverage": 0.01}),
    Part("train", (TRAINER, STAGE, AGENT), {"epochs": EPOCHS, "loader_workers": 0, "total_seq_len": 256}),
    Part("export", (STAGE, AGENT), {}),
    Part("bench", (SERVER, STAGE, AGENT), {"bench_prompts": 6, "max_tokens": 100, "concurrency": 1}),
)

POINTS = max(len(PARTS), int(os.environ.get("KILL_POINTS", "0")))
ROUNDS = -(-POINTS // len(PARTS))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small seeded verifier and prompts."""
    if not PYTHON.exists() or not TOKENIZER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no pipeline environment in {PIPELINE}")
    root = tmp_path_factory.mktemp("killed")
    script = ROOT / "tests" / "fixtures" / "seeded_verifier.py"
    subprocess.run([PYTHON, script, "llama", root / "verifier", TOKENIZER], check=True, capture_output=True)
    (root / "source.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts()))
    return root


class Killed:
    """One round: the stages of a run in turn, each with its kill."""

    def __init__(self, root: Path, number: int) -> None:
        self.number = number
        self.jobs = Jobs(root, root / "verifier", PYTHON)
        self.run = Run(str(root), f"r{number}")
        self.root = root
        self.in_time = 0
        self.work: dict[str, Callable[[], float]] = {
            "synthesize": lambda: len(rows(self.run.responses)) / COUNT,
            "extract": lambda: len(list(self.run.hidden_states.glob("hs_*.safetensors"))) / COUNT,
            "train": lambda: len(self.recorded(records.TRAIN)) / (5 * EPOCHS),
        }

    def point(self, place: int, part: Part) -> str:
        """Kills, runs again, and compares; what was killed, and whether it was in time."""
        rng = random.Random(f"{self.number} {part.name}")
        target = part.targets[self.number % len(part.targets)]
        before = self.manifests()
        job, agent = self.launch(part)
        reached = self.wait(job, part, rng)
        tree = self.jobs.processes(job)
        if target == AGENT:
            agent.process.kill()
            agent.wait()
        elif reached:
            self.jobs.kill(job, target.format(part.name))
        ended = self.jobs.ended(job)
        agent.process.kill()
        assert ended.state == jobs.DONE or (reached and target != AGENT), f"{part.name} {target}: {ended.failure}"
        reached = reached and (target == AGENT or ended.state == jobs.FAILED)
        self.in_time += reached
        self.jobs.until_gone(tree)
        left = self.finished(part)
        again, agent = self.launch(part)
        done = self.jobs.ended(again)
        agent.process.kill()
        log = "\n".join(self.jobs.store.read_log(done.id, tail=60).lines)
        assert done.state == jobs.DONE, f"{part.name} after {target}: {done.failure}\n{log}"
        evidence = {item.name: item.value for item in done.evidence}
        assert done.evidence and all(item.ok for item in done.evidence)
        assert ("is up to date" in log) == (ended.state == jobs.DONE), log
        left(evidence)
        assert {name: text for name, text in self.manifests().items() if name in before} == before, "made again"
        assert not list(self.run.data.rglob(".*.new")), "a half-written file stays"
        return f"{place + 1}: {part.name}, {target.format(part.name)} {'killed' if reached else 'was done before'}"

    def launch(self, part: Part) -> tuple[Job, AgentProcess]:
        """Launches the stage through an agent of its own."""
        parameters = {**part.parameters, "run": self.run.name}
        if part.name == "prompts":
            parameters["source"] = str(self.root / "source.jsonl")
        agent = AgentProcess()
        agent.hello(self.root)
        request = LaunchRequest(part.name, parameters, self.jobs.context, "a test")
        answer = agent.request("launch", **to_wire(request))
        assert "ok" in answer, answer
        return self.jobs.store.find(answer["ok"]["id"]), agent

    def wait(self, job: Job, part: Part, rng: random.Random) -> bool:
        """Waits for the point: a share of the work, or some moments after the start; False when it was done before."""
        share, seconds = rng.uniform(0.1, 0.7), rng.uniform(0.1, 1.0) * part.seconds

        def there(job: Job) -> bool:
            if job.state in jobs.ENDED_STATES:
                return True
            if part.name == "bench":
                return job.progress.phase.startswith(("warm up without", "measure without"))
            if part.name in self.work:
                return self.work[part.name]() >= share
            return job.state == jobs.RUNNING and (job.seconds or 0.0) > seconds

        found = self.jobs.until(job, there)
        assert found.state not in jobs.ENDED_STATES or found.state == jobs.DONE, found.failure
        return found.state not in jobs.ENDED_STATES

    def manifests(self) -> dict[str, str]:
        """What has been proven, as it is written."""
        folder = self.run.manifest("x").parent
        names = [part.name for part in PARTS]
        return {name: (folder / f"{name}.json").read_text() for name in names if (folder / f"{name}.json").exists()}

    def finished(self, part: Part) -> Callable[[dict[str, Any]], None]:
        """Looks at what is finished now; the answer checks the next run against it."""
        look: Callable[[], Callable[[dict[str, Any]], None]] | None = getattr(self, f"_{part.name}", None)
        return look() if look else lambda evidence: None

    def _prompts(self) -> Callable[[dict[str, Any]], None]:
        def check(evidence: dict[str, Any]) -> None:
            assert (evidence["prompts"], evidence["held out"]) == (COUNT, 3)
            assert len(rows(self.run.prompts)) == COUNT

        return check

    def _synthesize(self) -> Callable[[dict[str, Any]], None]:
        first, proven = rows(self.run.responses), self.proven("synthesize")

        def check(evidence: dict[str, Any]) -> None:
            final = rows(self.run.responses)
            assert final[: len(first)] == first, "what was answered stays as it was"
            assert len({row["id"] for row in final}) == len(final) == COUNT
            assert evidence["kept from before"] == (0 if proven else len(first))
            assert evidence["kept from before"] + evidence["answered now"] == COUNT

        return check

    def _prepare(self) -> Callable[[dict[str, Any]], None]:
        def check(evidence: dict[str, Any]) -> None:
            assert evidence["rows"] == COUNT and evidence["token frequencies"] == evidence["tokens to learn"]

        return check

    def _extract(self) -> Callable[[dict[str, Any]], None]:
        stamps = {path: path.stat().st_mtime_ns for path in self.run.hidden_states.glob("hs_*.safetensors")}
        lengths = [len(row["input_ids"]) for row in rows(self.run.responses)]
        proven = self.proven("extract")

        def check(evidence: dict[str, Any]) -> None:
            assert evidence["whole files"] == COUNT == evidence["kept from before"] + evidence["extracted now"]
            same = [path for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
            assert len(same) >= len(stamps) - 1, "more than the file in hand was made again"
            assert proven or evidence["kept from before"] == len(same)
            files = sorted(self.run.hidden_states.iterdir())
            assert len(files) == COUNT
            found = Counter(length for length in lengths for path in files if not problem(path, length, SHAPE))
            assert found == Counter({length: count * count for length, count in Counter(lengths).items()})

        return check

    def _vocab(self) -> Callable[[dict[str, Any]], None]:
        def check(evidence: dict[str, Any]) -> None:
            assert evidence["draft vocabulary"] == 512

        return check

    def _train(self) -> Callable[[dict[str, Any]], None]:
        done = self.epochs()

        def check(evidence: dict[str, Any]) -> None:
            steps = Counter(record["step"] for record in self.recorded(records.TRAIN))
            assert evidence["epochs"] == EPOCHS and set(steps) == set(range(evidence["steps"]))
            assert sorted(self.epochs()) == list(range(EPOCHS)) and set(done.items()) <= set(self.epochs().items())
            ends = [record["global_step"] for record in self.recorded(records.SAVED) if record["epoch"] in done]
            assert all(steps[step] == 1 for step in range(max(ends, default=0))), "a finished epoch was trained again"

        return check

    def _export(self) -> Callable[[dict[str, Any]], None]:
        def check(evidence: dict[str, Any]) -> None:
            assert sorted(path.name for path in self.run.draft.iterdir()) == ["config.json", "model.safetensors"]
            assert evidence["tensors"] > 0 and evidence["draft_vocab_size"] == 512

        return check

    def _bench(self) -> Callable[[dict[str, Any]], None]:
        def check(evidence: dict[str, Any]) -> None:
            report = json.loads(self.run.bench_json.read_text())
            assert [found["prompts"] for found in report["sets"]] == [6, 3]
            assert evidence["prompts"] == 9 and evidence["drafts"] > 0

        return check

    def proven(self, stage: str) -> bool:
        return manifest.read(self.run.manifest(stage)) is not None

    def recorded(self, kind: str) -> list[dict[str, Any]]:
        path = self.run.output / records.FILE
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [record for record in records.parse(lines) if record["kind"] == kind]

    def epochs(self) -> dict[int, int]:
        """When each epoch's checkpoint was completed, by its number."""
        states = [path for path in self.run.output.glob("[0-9]*/training_state.json") if not path.parent.is_symlink()]
        whole = [path for path in states if json.loads(path.read_text())["local_step"] == 0]
        return {int(path.parent.name): path.stat().st_mtime_ns for path in whole}


@pytest.mark.parametrize("number", range(ROUNDS))
def test_what_was_killed_goes_on_and_is_as_if_it_had_not_been(workspace: Path, number: int) -> None:
    killed = Killed(workspace, number)
    for place, part in enumerate(PARTS):
        said = killed.point(number * len(PARTS) + place, part)
        sys.stdout.write(f"{said}\n")
    assert killed.in_time >= len(PARTS) - 3, "most of the kills came too late to show anything"
    assert all(living([stat]) == [] for stat in killed.jobs.seen), "a process stays"
