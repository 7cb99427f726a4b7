"""The stage ``bench``: what the draft is worth, measured on the verifier's own server without it and with it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from pipeline import rows
from pipeline.answering import Greedy
from pipeline.export import ExportError, verify
from pipeline.plan import commands, manifest, measurement, prompts
from pipeline.plan.measurement import Answer, Counters, Measured, Mismatch, Report
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun, execute
from pipeline.verifier_server import Served, verifier_server

TRAINED, HELD_OUT = "trained prompts", "held-out prompts"

WARM_UP = 2
"""Requests before the measurement: the first ones compile and fill caches."""


@dataclass(frozen=True)
class Pass:
    """One set of prompts, answered by one server."""

    answers: list[Answer]
    seconds: float
    counters: Counters

    @property
    def tokens(self) -> int:
        return sum(len(answer.tokens) for answer in self.answers)


def run(spec_path: str) -> int:
    """Runs the stage and returns its exit code."""
    return execute(spec_path, work)


def work(stage: StageRun) -> None:
    """Measures, prints the table, and writes ``report.json`` and ``report.md``."""
    draft = Path(stage.parameters.get("draft") or stage.run.draft)
    with stage.lock(stage.run.bench):
        stage.phase("inputs")
        sets = _sets(stage)
        inputs = {**stage.input_of(draft, "export"), **verifying.fingerprint(stage)}
        for _, path, _ in sets:
            inputs.update(stage.input_of(path, "prompts"))
        if stage.fresh(inputs):
            return
        try:
            verify(draft, Path(verifying.folder(stage)))
        except ExportError as error:
            raise StageError(f"{error.cause}.", error.file, error.field, "Export the draft again.") from None
        except OSError as error:
            raise StageError(f"It cannot be read: {error.strerror}.", str(draft), remedy="Export it again.") from None
        named = [(name, chosen) for name, _, chosen in sets]
        with verifier_server(stage, commands.PLAIN, **_server(stage)) as served:
            without = _passes(stage, served, named, "without draft")
        values = {"draft": str(draft), "speculative_tokens": stage.parameters["speculative_tokens"]}
        with verifier_server(stage, commands.DRAFT, **_server(stage), **values) as served:
            with_draft = _passes(stage, served, named, "with draft")
            stage.phase("compare")
            measured = [
                _measured(served, name, before, after) for (name, _), before, after in zip(named, without, with_draft)
            ]
        report = Report(verifying.folder(stage), str(draft), tuple(measured), _predicted(stage), _settings(stage))
        _write(stage, report)
        _prove(stage, report)
        outputs: dict[Path, dict[str, Any]] = {stage.run.bench_json: {}, stage.run.bench_markdown: {}}
        stage.commit(inputs, outputs)


def _sets(stage: StageRun) -> list[tuple[str, Path, list[rows.Row]]]:
    """Name, file and rows of each set of prompts; the held-out set only where there is one."""
    given = stage.parameters.get("held_out_file")
    files = [
        (TRAINED, Path(stage.parameters.get("prompts_file") or stage.run.prompts), True),
        (HELD_OUT, Path(given or stage.run.held_out), bool(given)),
    ]
    found = []
    for name, path, needed in files:
        if not path.exists() and needed:
            raise StageError(
                "It is not there.", str(path), remedy="Run the stage prompts first.", klass="missing_input"
            )
        chosen = [_row(path, number, row) for number, row in enumerate(rows.read(path), 1)][
            : stage.parameters["bench_prompts"]
        ]
        if chosen:
            found.append((name, path, chosen))
        elif needed:
            raise StageError("It holds no prompt.", str(path), remedy="Give a file with one prompt a line.")
    return found


def _row(path: Path, number: int, row: rows.Row) -> rows.Row:
    try:
        return {**prompts.parse_row(row).row(), "id": str(row.get("id") or number)}
    except prompts.RowError as error:
        raise StageError(f"{error}.", str(path), f"line {number}", "Repair the line or take it out.") from None


def _server(stage: StageRun) -> dict[str, Any]:
    return {"max_num_seqs": stage.parameters["concurrency"]}


def _passes(stage: StageRun, served: Served, named: Sequence[tuple[str, list[rows.Row]]], how: str) -> list[Pass]:
    greedy = Greedy(served.base, served.model)
    tokens, concurrency = stage.parameters["max_tokens"], stage.parameters["concurrency"]
    stage.phase(f"warm up {how}")
    first = named[0][1][:WARM_UP]
    greedy.answers(first, min(16, tokens), concurrency, lambda done: stage.check_stop())
    found = []
    for name, chosen in named:
        stage.phase(f"measure {how}", name)

        def count(done: int, total: int = len(chosen)) -> None:
            stage.count(done, total, "prompts")
            stage.check_stop()

        before = greedy.counters()
        answers, seconds = greedy.answers(chosen, tokens, concurrency, count)
        served.check()
        found.append(Pass(answers, seconds, greedy.counters().since(before)))
    return found


def _measured(served: Served, name: str, without: Pass, with_draft: Pass) -> Measured:
    greedy = Greedy(served.base, served.model)
    pairs = zip(without.answers, with_draft.answers)
    mismatches = [item for left, right in pairs if (item := _mismatch(greedy, left, right)) is not None]
    return Measured(
        name=name,
        prompts=len(without.answers),
        equal=len(without.answers) - len(mismatches),
        tokens=(without.tokens, with_draft.tokens),
        seconds=(without.seconds, with_draft.seconds),
        counters=with_draft.counters,
        mismatches=tuple(mismatches),
    )


def _mismatch(greedy: Greedy, left: Answer, right: Answer) -> Optional[Mismatch]:
    place = measurement.first_difference(left.tokens, right.tokens)
    if place is None:
        return None
    first = left.tokens[place] if place < len(left.tokens) else None
    other = right.tokens[place] if place < len(right.tokens) else None
    gap = greedy.gap([*left.prompt_tokens, *left.tokens[:place]], first, other)
    return Mismatch(left.prompt, place, greedy.text(first), greedy.text(other), gap)


def _predicted(stage: StageRun) -> Optional[float]:
    """What validation predicted of the run's own draft."""
    if stage.parameters.get("draft"):
        return None
    known = manifest.read(stage.run.manifest("export"))
    values = [item.value for item in known.evidence if item.name == "predicted_acceptance"] if known else []
    return float(values[0]) if values and isinstance(values[0], (int, float)) else None


def _settings(stage: StageRun) -> dict[str, Any]:
    names = ("max_tokens", "speculative_tokens", "concurrency", "tensor_parallel", "dtype")
    return {"temperature": 0, **{name: stage.parameters.get(name) for name in names}}


def _write(stage: StageRun, report: Report) -> None:
    text = measurement.as_markdown(report)
    sys.stdout.write(text)
    stage.run.bench.mkdir(parents=True, exist_ok=True)
    manifest.write_json(stage.run.bench_json, measurement.as_json(report))
    temporary = stage.run.bench / ".report.md.new"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(stage.run.bench_markdown)


def _prove(stage: StageRun, report: Report) -> None:
    totals = measurement.totals(report.sets)
    stage.evidence("prompts", int(totals["prompts"]), "prompts", ok=totals["prompts"] > 0)
    stage.evidence("drafts", int(totals["drafts"]), "drafts", ok=totals["drafts"] > 0)
    for measured in report.sets:
        length = measured.counters.acceptance_length
        suffix = "" if measured.name == TRAINED else "_held_out"
        stage.evidence(
            f"acceptance_length{suffix}", None if length is None else round(length, 4), ok=length is not None
        )
        stage.evidence(f"speed_up{suffix}", round(measured.speed_up, 3))
        stage.evidence(f"equal_texts{suffix}", f"{measured.equal} of {measured.prompts}")
        if length is not None and length < measurement.UNUSABLE_LENGTH:
            stage.message(
                f"The draft is next to never accepted on {measured.name}: {length:.2f}. It is untrained, or its config"
                " does not fit the verifier (layer ids, norms, vocabulary).",
                "warning",
            )
    if totals["equal_share"] < measurement.EQUAL_SHARE:
        stage.message(f"Only {totals['equal_share']:.0%} of the texts are equal; see the report.", "warning")
