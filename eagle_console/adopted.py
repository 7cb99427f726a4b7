"""What runs on a host without having been started by us, in the words and shapes that jobs have. Pure."""

from __future__ import annotations

from eagle_console.format import UNKNOWN, count, done_of, percent
from remote.protocol import adopted, jobs
from remote.protocol.adopted import ADOPTED, Adopted, is_adopted
from remote.protocol.jobs import Job
from remote.protocol.progress import Progress
from remote.protocol.serving import Serving
from remote.protocol.training import Training

NOT_OURS = "not ours"

SERVE, TRAIN = "serve", "train"
"""The stages whose place an adopted server and an adopted training run take."""

_STAGES = {adopted.KIND_SERVER: SERVE, adopted.KIND_TRAINING: TRAIN}


def adopted_id(word: str) -> str | None:
    """The id that a person's word for an adopted program means: ``adopted-4711`` or ``4711``; None for a job's."""
    if is_adopted(word):
        return word
    return f"{ADOPTED}{word}" if word.isascii() and word.isdigit() else None


def as_job(record: Adopted, host: str = "") -> Job:
    """The record in the shape of a job, so that the same widgets show both. Its id still says that it is none."""
    parameters = {"verifier": record.model, "tensor_parallel": record.tensor_parallel}
    return Job(
        id=record.id,
        stage=_STAGES.get(record.kind, record.kind),
        kind=jobs.KIND_TASK if record.kind == adopted.KIND_TRAINING else jobs.KIND_SERVICE,
        state=record.state,
        created=record.started or 0.0,
        host=host,
        parameters={name: value for name, value in parameters.items() if value is not None},
        command_line=record.command_line or "",
        progress=progress(record),
        started=record.started,
        seconds=record.seconds,
        failure=record.failure,
        pids=tuple(process.pid for process in record.processes),
        health_url=f"http://127.0.0.1:{record.port}/health" if record.port is not None else None,
        note=note(record),
        log=record.log or "",
    )


def progress(record: Adopted) -> Progress:
    """How far it is: the load's progress, or the steps of a training run."""
    training = record.training
    if training is None:
        return record.progress
    share = None
    if training.step is not None and training.total_steps:
        share = 100.0 * training.step / training.total_steps
        if record.state != jobs.DONE:
            share = min(share, 99.9)  # the total is a guess while it runs
    return Progress(
        training.phase, done=training.step, total=training.total_steps, unit="steps", percent=share,
        ready=record.state == jobs.DONE, rate=training.steps_per_second, eta=training.eta,
    )  # fmt: skip


def note(record: Adopted) -> str:
    """That it is not ours, whose it is, and what stands in the way of watching it."""
    words = [NOT_OURS + (f": {record.user} started it" if record.user else "")]
    if record.log is None and record.log_note:
        words.append(f"no log: {record.log_note}")
    if record.problem:
        words.append(f"its log cannot be read: {record.problem}")
    if record.health_note and record.healthy is None:
        words.append(record.health_note)
    if record.note:
        words.append(record.note)
    return "; ".join(words)


def serving_words(serving: Serving) -> list[str]:
    """What a server does, a line a subject; what is not known is left out."""
    lines = []
    if serving.running is not None:
        waiting = f", {count(serving.waiting)} waiting" if serving.waiting is not None else ""
        cache = f", KV cache {percent(100 * serving.kv_cache, 1)}" if serving.kv_cache is not None else ""
        lines.append(f"{count(serving.running)} running{waiting}{cache}")
    if serving.generation_rate is not None:
        prompt = "" if serving.prompt_rate is None else f", prompt {serving.prompt_rate:,.0f} tokens/s"
        lines.append(f"generates {serving.generation_rate:,.1f} tokens/s{prompt}")
    if serving.acceptance_length is not None:
        rate = "" if serving.acceptance_rate is None else f", {percent(100 * serving.acceptance_rate)} of drafted"
        places = " ".join(f"{value:.2f}" for value in serving.position_rates)
        since = "" if serving.window is not None else " since its start"
        lines.append(
            f"acceptance length {serving.acceptance_length:.2f}{rate}{since}" + (f": {places}" if places else "")
        )
    return lines


def training_words(training: Training) -> str:
    """Where a training run is, in one line."""
    words = [training.phase]
    if training.epoch is not None:
        words.append(f"epoch {training.epoch}" + (f"/{training.epochs}" if training.epochs is not None else ""))
    if training.step is not None:
        about = "" if training.total_exact or training.total_steps is None else "~"
        total = f"/{about}{count(training.total_steps)}" if training.total_steps is not None else ""
        words.append(f"step {count(training.step)}{total}")
    if training.steps_per_second is not None:
        words.append(f"{training.steps_per_second:.3g} steps/s")
    if training.loss is not None:
        words.append(f"loss {training.loss:.4g}")
    if training.accuracy:
        words.append("acc " + " ".join(f"{value:.2f}" for value in training.accuracy))
    if training.problem:
        words.append(training.problem.upper())
    return "  ".join(word for word in words if word)


def progress_words(record: Adopted) -> str:
    """Where an adopted program is, in one line."""
    if record.training is not None:
        return training_words(record.training)
    told = record.progress
    words = [told.phase, done_of(told.done, told.total, told.unit)]
    if told.percent is not None and not told.ready:
        words.append(percent(told.percent))
    if record.serving is not None:
        words += serving_words(record.serving)[:1]
    return "  ".join(word for word in words if word) or UNKNOWN
