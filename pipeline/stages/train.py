"""The stage ``train``: speculators' trainer with chosen settings, resumed where it stopped, proven complete."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Mapping

from pipeline.plan import training, training_commands, verifier_config
from pipeline.plan.fingerprint import of_values
from pipeline.plan.safetensors import HeaderError, read_header
from pipeline.plan.training import Data, Settings, SettingsError, Shape
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun, execute
from pipeline.training import checkpoints, foreign, machine, records
from pipeline.training.run import Outcome, train

LOCK_WAIT_SECONDS = 180.0
"""A trainer whose stage was killed saves its state first; the next stage waits for it so long."""

_IDENTITY = (
    "total_seq_len",
    "processes",
    "optimizer",
    "lr",
    "ttt_steps",
    "training_share",
    "draft_vocab_size",
    "layer_ids",
    "seed",
    "trainer_options",
)
"""Settings that an epoch cannot be continued without."""


def run(spec_path: str) -> int:
    """Runs the stage and returns its exit code."""
    return execute(spec_path, work)


def work(stage: StageRun) -> None:
    """Trains until the last epoch is there, or finds that it is."""
    with stage.lock(stage.run.output):
        stage.phase("inputs")
        verifier = verifying.config(stage)
        inputs = {**stage.input_of(stage.run.prepared, "prepare", (stage.run.hidden_states.name,))}
        data, inputs[str(stage.run.hidden_states)] = _data(stage)
        inputs.update(verifying.fingerprint(stage))
        if stage.fresh(inputs):
            return
        vocabulary = _draft_vocabulary(stage, verifier.vocab_size)
        states = len(_layers(stage, verifier)) + 1
        _check_states(stage, verifier, states)
        shape = Shape(verifier.hidden_size, verifier.vocab_size, vocabulary or verifier.vocab_size, states)
        settings = _settings(stage, data, shape, vocabulary)
        _prepare_output(stage, settings, inputs)
        count = int(settings.values["epochs"])
        if not checkpoints.finished(stage.run.output, count):
            _train(stage, settings, count)
        _prove(stage, inputs, count)


def _layers(stage: StageRun, verifier: verifier_config.VerifierConfig) -> tuple[int, ...]:
    given = str(stage.parameters.get("layer_ids") or "").replace(",", " ").split()
    try:
        return tuple(int(word) for word in given) or verifier_config.aux_layers(verifier.layers)
    except ValueError as error:
        raise StageError(f"{error}.", field="layer_ids", remedy="Give whole numbers, as 2,30,58.") from None


def _data(stage: StageRun) -> tuple[Data, str]:
    """The data set's size, and the fingerprint of its hidden states: names and sizes."""
    from datasets import load_from_disk  # type: ignore[import-not-found]

    folder = stage.run.prepared
    try:
        lengths = [int(length) for length in load_from_disk(str(folder))["seq_len"]]
    except (OSError, ValueError, KeyError) as error:
        raise StageError(
            f"It is no prepared data set ({error}).", str(folder), remedy="Run the stage prepare first."
        ) from None
    found = []
    missing = []
    for row in range(len(lengths)):
        path = stage.run.hidden_states / f"hs_{row}.safetensors"
        try:
            read_header(str(path))
            found.append((path.name, path.stat().st_size))
        except (OSError, HeaderError):
            missing.append(path.name)
    if missing or not lengths:
        raise StageError(
            f"{len(missing)} of {len(lengths)} samples have no usable hidden states ({', '.join(missing[:3])}).",
            str(stage.run.hidden_states),
            remedy="Run the stage extract: it makes what is missing.",
            klass="missing_input",
        )
    return Data(len(lengths), sum(lengths), max(lengths)), of_values(found)


def _check_states(stage: StageRun, verifier: verifier_config.VerifierConfig, states: int) -> None:
    path = stage.run.hidden_states / "hs_0.safetensors"
    tensor = read_header(str(path)).tensors.get("hidden_states")
    found = tensor.shape[1:] if tensor else ()
    if found != (states, verifier.hidden_size):
        raise StageError(
            f"It holds {list(found)} values a token; {states} states of {verifier.hidden_size} are needed.",
            str(path),
            "hidden_states",
            "Extract with the same verifier and layer_ids that training uses.",
        )


def _draft_vocabulary(stage: StageRun, vocabulary: int) -> int | None:
    """The draft's vocabulary: as given, else of the mapping that is there, else None for the verifier's own."""
    made = sorted(int(path.stem[4:]) for path in stage.run.prepared.glob("d2t-*.npy") if path.stem[4:].isdecimal())
    given: int | None = stage.parameters.get("draft_vocab_size")
    if given is not None and given > vocabulary:
        raise StageError(
            f"{given:,} tokens are more than the verifier's {vocabulary:,}.",
            field="draft_vocab_size",
            remedy=f"Give at most {vocabulary}.",
        )
    if given == vocabulary:
        return None
    if given is None:
        if len(made) > 1:
            raise StageError(
                f"There are mappings for {made} tokens.",
                str(stage.run.prepared),
                remedy="Say which: draft_vocab_size=N.",
            )
        if not made:
            stage.message("There is no vocabulary mapping: the draft gets the verifier's whole vocabulary.", "warning")
        return made[0] if made else None
    if given not in made:
        raise StageError(
            f"There is no mapping for {given:,} tokens{f', only for {made}' if made else ''}.",
            str(stage.run.prepared / f"d2t-{given}.npy"),
            remedy=f"Run the stage vocab with draft_vocab_size={given} first.",
            klass="missing_input",
        )
    return given


def _settings(stage: StageRun, data: Data, shape: Shape, vocabulary: int | None) -> Settings:
    parameters = {**stage.parameters, "draft_vocab_size": vocabulary, "verifier": verifying.plain_folder(stage)}
    try:
        settings = training.choose(parameters, machine.find(stage.environment, parameters.get("gpus")), data, shape)
    except SettingsError as error:
        raise StageError(f"{error}.", field="parameters", remedy="Give other values.") from None
    stage.message(f"{data.samples:,} samples, {data.tokens:,} tokens, the longest {data.longest:,}.")
    for choice in settings.choices:
        stage.message(choice.sentence)
    _say_disk(stage, settings, shape)
    return settings


def _say_disk(stage: StageRun, settings: Settings, shape: Shape) -> None:
    each, count = training.checkpoint_bytes(settings.values, shape), training.checkpoints(settings.values)
    free = shutil.disk_usage(stage.run.workspace).free
    words = (
        f"{count} checkpoints of about {each / 1e9:,.1f} GB: {count * each / 1e9:,.1f} GB of {free / 1e9:,.1f} free."
    )
    stage.message(words, "info" if count * each < free else "warning")


def _prepare_output(stage: StageRun, settings: Settings, inputs: Mapping[str, str]) -> None:
    """Makes the save path continue this run: another run's is set aside, a torn or interrupted state made usable."""
    output = stage.run.output
    taken_over = checkpoints.started(output) and not (output / records.FILE).exists()
    if taken_over:
        _check_foreign(stage, settings)
    _wait_for_trainer(stage)
    identity = {name: settings.values.get(name) for name in _IDENTITY}
    stage.begin({**identity, "inputs": of_values(sorted(inputs.items()))}, [] if taken_over else [output])
    output.mkdir(parents=True, exist_ok=True)
    for sentence in checkpoints.make_resumable(output):
        stage.message(sentence, "warning")


def _check_foreign(stage: StageRun, settings: Settings) -> None:
    """Checkpoints of ``speculators train`` itself are continued where its settings were ours.

    :raises StageError: naming the settings that were not.
    """
    output = stage.run.output
    try:
        options = training.trainer_options(settings.values, str(stage.run.prepared), str(output))
        other = foreign.differences(output, options, int(settings.values["processes"]))
    except ValueError as error:
        raise StageError(
            f"It holds checkpoints that this stage has not made, and does not say how they were made: {error}.",
            str(output / foreign.SETTINGS),
            remedy="Give another run=NAME.",
        ) from None
    if other:
        raise StageError(
            f"It holds checkpoints that this stage has not made, with other settings: {', '.join(other[:5])}.",
            str(output / foreign.SETTINGS),
            remedy="Give the same settings, or another run=NAME.",
        )
    stage.message(f"{output.name} was begun by speculators itself with the same settings; training continues it.")


def _wait_for_trainer(stage: StageRun) -> None:
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    path = stage.run.output / records.FILE
    while path.exists() and records.in_use(path):
        if time.monotonic() > deadline:
            raise StageError(
                "A trainer whose stage is gone still writes there.", str(stage.run.output), remedy="End that process."
            )
        stage.wait(0.5)


def _train(stage: StageRun, settings: Settings, count: int) -> None:
    outcome = _attempt(stage, settings)
    ours = not any(choice.name == "loss_implementation" and choice.given for choice in settings.choices)
    if outcome.compiling and not outcome.stepped and settings.values["loss_implementation"] == "fused" and ours:
        settings = settings.replaced("loss_implementation", "eager", "the fused loss could not be compiled here")
        stage.message(f"{outcome.error.splitlines()[0][:300]}", "warning")
        stage.message("The fused loss could not be compiled; training starts again with the eager one.", "warning")
        outcome = _attempt(stage, settings)
    stage.check_stop()
    if checkpoints.finished(stage.run.output, count):
        return
    raise _failure(stage, outcome, count)


def _attempt(stage: StageRun, settings: Settings) -> Outcome:
    argv = training_commands.train(settings.values, stage.environment, stage.run, os.getpid())
    stage.message(f"$ {shlex.join(argv)}")
    variables = {**os.environ, **machine.variables(stage.environment)}
    return train(stage, argv, variables, stage.run.output / records.FILE)


def _failure(stage: StageRun, outcome: Outcome, count: int) -> StageError:
    free = shutil.disk_usage(stage.run.output).free
    largest = max((size for _, size in outcome.saved), default=64 * 1024**2)
    if free < largest:
        return StageError(
            f"Training ended with only {free / 1e6:,.0f} MB free.",
            str(stage.run.output),
            remedy="Free space, then run the stage again: it continues from the last whole checkpoint.",
            klass="disk_full",
        )
    if "out of memory" in outcome.error.lower():
        return StageError(
            f"The GPU's memory did not suffice: {outcome.error[:300]}",
            field="total_seq_len",
            remedy="Give a smaller total_seq_len, or end what else holds memory of the GPU.",
            klass="gpu_memory",
        )
    cause = outcome.error[:500].rstrip(".") or f"exit code {outcome.code}"
    return StageError(
        f"Training ended before epoch {count} was complete: {cause}.",
        str(stage.run.output),
        remedy="See the log; run the stage again: it continues from the last whole checkpoint.",
        klass="training",
    )


def _prove(stage: StageRun, inputs: Mapping[str, str], count: int) -> None:
    output = stage.run.output
    stage.phase("proof")
    whole = [number for number in checkpoints.epochs(output) if checkpoints.fault(output / str(number)) is None]
    state = checkpoints.read_state(output / str(count - 1))
    stage.evidence("epochs", count, "epochs", ok=checkpoints.finished(output, count))
    stage.evidence("steps", state.global_step, "steps", ok=state.global_step > 0)
    found = records.validations(output / records.FILE)
    best = records.best(found, [number for number in whole if number < count])
    if best is not None:
        stage.evidence("best_epoch", best + 1)
        stage.evidence("predicted_acceptance", round(found[best].predicted, 4))
        for position, value in enumerate(found[best].full_acc):
            stage.evidence(f"validation_full_acc_{position}", round(value, 4))
    kept = {count - 1, best if best is not None else count - 1}
    outputs = {
        output / str(number) / checkpoints.MODEL: {
            "epoch": number,
            "bytes": (output / str(number) / checkpoints.MODEL).stat().st_size,
            "predicted_acceptance": round(found[number].predicted, 4) if number in found else None,
        }
        for number in sorted(kept)
    }
    stage.commit(inputs, outputs)
