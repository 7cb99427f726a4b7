"""The stage ``synthesize``: the verifier's own answers to every prompt, each once, checked for their quality."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pipeline import capture, rows, tools
from pipeline.plan import commands, data_commands, quality
from pipeline.plan.quality import Response, Thresholds
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun, execute
from pipeline.states import room_first
from pipeline.verifier_server import Served, verifier_server

CHECK_SECONDS = 3.0

KEY, GROUP = "id", "primary_id"


def run(spec_path: str) -> int:
    """Writes ``responses.jsonl``, and with ``states`` the folder ``captured`` beside it."""
    return execute(spec_path, _work)


def _work(stage: StageRun) -> None:
    paths = stage.run
    with stage.lock(paths.data):
        inputs = {**stage.input_of(paths.prompts, "prompts"), **verifying.fingerprint(stage)}
        if stage.fresh(inputs):
            return
        wanted = {str(row["id"]): row for row in rows.read(paths.prompts)}
        stage.begin(_settings(stage, inputs), [paths.responses, paths.captured])
        kept = _kept(stage, wanted)
        if kept < len(wanted):
            _ask(stage, wanted, kept)
        stage.phase("check")
        found = rows.repair(paths.responses, KEY, GROUP, frozenset(wanted))
        answered = _answered(stage)
        stage.evidence("kept from before", kept, "prompts")
        stage.evidence("answered now", len(answered) - kept, "prompts")
        _report(stage, wanted, answered)
        outputs: dict[Any, dict[str, Any]] = {paths.responses: {"rows": found.kept}}
        if stage.parameters["states"]:
            outputs[paths.captured] = {"files": capture.check(stage)}
        stage.commit(inputs, outputs)


def _settings(stage: StageRun, inputs: dict[str, str]) -> dict[str, Any]:
    """What every single answer depends on; another set of prompts leaves the old answers good."""
    names = ("max_tokens", "temperature", "states", "dtype")
    return {"verifier": inputs[str(stage.parameters["verifier"])], **{name: stage.parameters[name] for name in names}}


def _kept(stage: StageRun, wanted: dict[str, rows.Row]) -> int:
    found = rows.repair(stage.run.responses, KEY, GROUP, frozenset(wanted))
    if found.changed:
        stage.message(
            f"responses.jsonl: {found.torn} half-written lines, {found.repeated} repeated rows and {found.foreign} of"
            " prompts that are no longer asked were removed.",
            "warning",
        )
    kept = len(_answered(stage))
    if kept:
        stage.message(f"{kept} of {len(wanted)} prompts have been answered before and are not asked again.")
    return kept


def _answered(stage: StageRun) -> set[str]:
    return {str(row[GROUP]) for row in rows.read(stage.run.responses)}


def _ask(stage: StageRun, wanted: dict[str, rows.Row], kept: int) -> None:
    verifying.check_code(stage)
    states = bool(stage.parameters["states"])
    concurrency = int(stage.parameters["concurrency"])
    length = data_commands.synthesis_length(stage.parameters, verifying.config(stage).max_positions)
    values: dict[str, Any] = {"max_model_len": length, "max_num_seqs": concurrency}
    if states:
        values.update(capture.server_values(stage, length))
    kind = commands.EXTRACTION if states else commands.PLAIN
    with room_first(stage.run.data), verifier_server(stage, kind, **values) as served:
        stage.phase("synthesize", f"{len(wanted) - kept} prompts")
        if states:
            capture.ask(stage, served, [row for key, row in wanted.items() if key not in _answered(stage)], len(wanted))
        else:
            program = data_commands.regenerating(stage.parameters, stage.environment)
            tools.speculators(stage, _arguments(stage, served), _observer(stage, served, kept, len(wanted)), program)


def _arguments(stage: StageRun, served: Served) -> list[str]:
    if served.model != stage.parameters["verifier"]:
        raise StageError(
            f"It serves {served.model}, not {stage.parameters['verifier']}.",
            file=f"{served.base}/v1/models",
            remedy="Serve the verifier under its path (no served_model_name).",
        )
    return data_commands.regenerate(stage.parameters, stage.run, served.base, served.model)


def _observer(stage: StageRun, served: Served, kept: int, total: int) -> Callable[[], None]:
    """Counts the rows that come, and looks after the server."""
    counter = rows.LineCounter(stage.run.responses)
    begin, first = time.monotonic(), counter.count()
    checked = begin

    def each() -> None:
        nonlocal checked
        now = time.monotonic()
        fresh = counter.count() - first
        stage.count(
            min(total, kept + fresh), total, "prompts", fresh / (now - begin) if now > begin and fresh else None
        )
        if now - checked > CHECK_SECONDS:
            checked = now
            served.check()

    return each


def _report(stage: StageRun, wanted: dict[str, rows.Row], answered: set[str]) -> None:
    """The quality report as evidence, and a refusal where a figure is beyond its threshold."""
    report = quality.measure([_response(row) for row in rows.read(stage.run.responses)], len(wanted), len(answered))
    limits = Thresholds(*(float(stage.parameters[name]) for name in _LIMITS))
    verdicts = quality.verdicts(report, limits)
    for name, value, unit, ok in verdicts:
        stage.evidence(name, value, unit, ok)
    stage.evidence("tokens", report.tokens, "tokens", report.tokens > 0)
    lengths = ", ".join(f"{edge}: {count}" for edge, count in report.lengths.items())
    stage.message(f"Lengths of the answers in tokens: {lengths or 'none'}.")
    wrong = [f"{name} {value:g} {unit}" for name, value, unit, ok in verdicts if not ok]
    if wrong:
        raise StageError(
            f"The answers are not good enough: {', '.join(wrong)}.",
            file=str(stage.run.responses),
            remedy=f"Raise max_tokens, or set the thresholds ({', '.join(_LIMITS)}); nothing is asked again.",
            klass="quality",
        )


_LIMITS = ("max_truncated", "max_missing", "max_repetitive", "min_reasoning")


def _response(row: rows.Row) -> Response:
    mask = row.get("loss_mask") or []
    prompt = mask.index(1) if 1 in mask else len(mask)
    facts = row.get("metadata") or {}
    reasoning = facts.get("reasoning")
    if reasoning is None:
        reasoning = quality.thinks(str(row.get("text", "")))
    return Response(
        str(row.get(KEY)),
        prompt,
        tuple((row.get("input_ids") or [])[prompt:]),
        facts.get("finish_reason") == "length",
        reasoning,
    )
