"""Training runs out of speculators' console output: a recorded real run, and lines written from its templates."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.protocol.training import Training
from remote.watch import training
from remote.watch.training import TrainingState

FIXTURES = Path(__file__).parents[1] / "fixtures"


def recorded(name: str) -> list[tuple[float, str]]:
    """Lines of a real run on a CPU with the seconds at which each was complete."""
    pairs = [line.partition("\t") for line in (FIXTURES / name).read_text().split("\n") if line]
    return [(float(at), text) for at, _, text in pairs]


def read(lines: list[tuple[Optional[float], str]], state: Optional[TrainingState] = None) -> TrainingState:
    state = state or training.initial()
    for at, line in lines:
        state = training.read_line(state, line, at)
    return state


def step(number: int, loss: str = "2.5", at: str = "10:00:00", more: str = "") -> str:
    values = f"train/full_acc_0=0.5, train/cond_acc_0=0.5, train/cond_acc_1=0.4, train/loss={loss}, {more}epoch=0"
    return f"[{at}] INFO     {values}, lr=2.47e-05, global_step={number}    trainer.py:587"


def frame(text: str) -> str:
    return f"           INFO     {text}    trainer.py:737"


@pytest.mark.parametrize("name", ["speculators_train.log", "speculators_train_wide.log"])
def test_a_real_run_wrapped_and_unwrapped(name: str) -> None:
    shown: list[Training] = []
    state = training.initial()
    for at, line in recorded(name):
        state = training.read_line(state, line, at)
        shown.append(training.progress(state))
    last = training.progress(training.flush(state, None))
    assert (last.phase, last.epoch, last.epochs, last.step, last.total_steps) == ("done", 3, 3, 49, 49)
    assert training.complete(state)
    assert last.loss == 10.512 and last.losses[0] == 22.931 and len(last.losses) == 49
    assert last.accuracy == (0.146, 0.073, 0.0) and last.predicted_length == 1.157
    assert last.learning_rate == 5.88e-05 and last.data_wait is not None
    assert last.validation_loss == 12.862 and last.validation_accuracy == (0.018, 0.214, 0.0)
    assert last.checkpoint is not None and last.checkpoint.endswith("/2") and last.checkpoint_step == 49
    phases = [
        phase for number, phase in enumerate(each.phase for each in shown) if phase and phase != shown[number - 1].phase
    ]
    assert phases == [
        "starting", "training", "checkpoint", "validation", "training", "checkpoint", "validation", "training",
        "checkpoint", "validation", "done",
    ]  # fmt: skip
    steps = [each.step for each in shown if each.step is not None]
    assert steps == sorted(steps)
    first_epoch = [
        each for each in shown if each.epoch == 1 and each.phase == "training" and each.step and each.step < 17
    ]
    assert all(each.total_steps is None for each in first_epoch), (
        "nothing says how long an epoch is before one has ended"
    )


def test_the_rate_of_a_real_run_is_that_of_its_steps() -> None:
    lines = recorded("speculators_train_wide.log")
    arrivals = [at for at, line in lines if "global_step=" in line]
    third = arrivals[33:]  # the last epoch took 6 s; a rate reaches some seconds further back
    true = (len(third) - 1) / (third[-1] - third[0])
    assert training.progress(read(list(lines))).steps_per_second == pytest.approx(true, rel=0.25)


def test_attaching_in_the_middle_is_right_at_once_and_has_no_rate() -> None:
    lines = recorded("speculators_train.log")
    for cut in range(200, len(lines), 37):
        tail = [(None, line) for _, line in lines[cut - 190 : cut]]
        whole = training.progress(read(list(lines[:cut])))
        attached = training.progress(read(tail))
        assert attached.steps_per_second is None
        if attached.step is not None:
            assert (attached.step, attached.epoch, attached.loss) == (whole.step, whole.epoch, whole.loss)


def test_steady_steps_have_their_rate_and_pauses_do_not_change_it() -> None:
    state = training.initial()
    at = 0.0
    for number in range(100):
        at += 0.5
        state = training.read_line(state, step(number), at)
        if number == 80:
            for line in ("Saving checkpoint to out/0", "Checkpoint saved to out/0"):
                at += 60.0
                state = training.read_line(state, frame(line), at)
        if number == 90:
            at += 45.0  # something that has no line: an outlier
    assert training.progress(state).steps_per_second == pytest.approx(2.0)
    assert training.progress(state).checkpoint == "out/0"


def test_the_first_steps_do_not_count_once_there_are_others() -> None:
    state = training.initial()
    at = 0.0
    for number in range(40):
        at += 30.0 if number < 3 else 4.0 if number < 20 else 1.0
        state = training.read_line(state, step(number), at)
    assert training.progress(state).steps_per_second == pytest.approx(1.0)


def test_steps_that_arrive_together_are_not_infinitely_fast() -> None:
    state = training.initial()
    for number in range(60):
        state = training.read_line(state, step(number), float(number // 10) * 5)  # ten at once, every five seconds
    assert training.progress(state).steps_per_second == pytest.approx(2.0)


def test_a_restart_begins_a_new_rate() -> None:
    state = read([(float(at), step(at)) for at in range(50)])
    state = read([(100.0 + 2 * at, step(20 + at)) for at in range(30)], state)
    assert training.progress(state).step == 50
    assert training.progress(state).steps_per_second == pytest.approx(0.5)


def test_a_run_appended_to_an_old_log_starts_anew() -> None:
    state = read([(float(at), step(at)) for at in range(50)])
    settings = "[10:00:00] INFO     speculator_type='eagle3', trainer/epochs=4, trainer/save_path='out2'"
    state = read([(60.0, settings), (61.0, frame("Training epoch 1/4 started"))], state)
    shown = training.progress(state)
    assert (shown.phase, shown.step, shown.epochs, shown.losses, shown.save_path) == ("training", None, 4, (), "out2")


def test_max_steps_is_an_exact_total() -> None:
    settings = "[10:00:00] INFO     speculator_type='eagle3', trainer/epochs=4, trainer/max_steps=120,  logger.py:736"
    state = read([(0.0, settings), (1.0, frame("Training epoch 1/4 started")), (2.0, step(9))])
    shown = training.progress(state)
    assert (shown.step, shown.total_steps, shown.total_exact) == (10, 120, True)


def test_the_total_follows_the_last_epochs_length() -> None:
    bar = "Epoch 0 100% ━━━━━━━━━━━━━━━━━━━━━━ 17/17  [ 0:00:47 < 0:00:00 , 0 it/s ]"
    lines = [frame("Training epoch 1/10 started"), step(16), bar, frame("Training epoch 1/10 completed")]
    state = read([(float(at), line) for at, line in enumerate(lines)])
    assert training.progress(state).total_steps == 170
    validation = ["Validation epoch 1/10 started", "Validation epoch 1/10 completed"]
    state = read([(9.0, frame(validation[0])), (9.5, bar.replace("17", "2")), (10.0, frame(validation[1]))], state)
    assert training.progress(state).total_steps == 170, "the bar of the validation looks the same"


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "NaN"])
def test_a_loss_that_is_no_number_is_named_at_once(loss: str) -> None:
    state = read([(0.0, step(0)), (1.0, step(1, loss)), (2.0, step(2, loss))])
    shown = training.progress(state)
    assert shown.loss is None and shown.losses == (2.5, None, None)
    assert shown.problem == "the loss is not a number since step 2"
    assert training.progress(read([(3.0, step(3))], state)).problem == ""


def test_resuming_in_the_middle_of_an_epoch() -> None:
    lines = [
        "Found checkpoint at out/1.",
        "Resuming mid-epoch from epoch=1 local_step=12 global_step=57.",
        "Training epoch 2/3 started",
    ]
    state = read([(float(at), frame(line)) for at, line in enumerate(lines)])
    shown = training.progress(state)
    assert (shown.resumed, shown.step, shown.epoch) == ("epoch 2", 57, 2)
    short = "Epoch 1 100% ━━━━━ 33/33  [ 0:00:47 < 0:00:00 , 0 it/s ]"
    state = read([(9.0, step(89)), (10.0, short), (10.1, frame("Training epoch 2/3 completed"))], state)
    assert training.progress(state).total_steps is None, "the bar of a resumed epoch counts only what was left of it"


def test_an_interrupt_is_shown() -> None:
    state = read([(0.0, step(5)), (1.0, frame("Received SIGTERM - interrupting training to save checkpoint"))])
    assert training.progress(training.flush(state, None)).phase == "interrupted"
    state = training.flush(read([(2.0, frame("Interrupt checkpoint saved to out/interrupted"))], state), None)
    assert training.progress(state).checkpoint == "out/interrupted"


def test_records_without_a_step_give_loss_and_epoch_only() -> None:
    line = "[10:00:00] INFO     train/loss_0=0.1, train/cond_acc_0=0.9, train/loss=0.3, epoch=2, lr=2.47e-05"
    shown = training.progress(training.flush(read([(0.0, line)]), 0.0))
    assert (shown.step, shown.loss, shown.epoch, shown.steps_per_second) == (None, 0.3, 3, None)


def test_other_programs_say_nothing_about_training() -> None:
    lines = [
        "INFO 11-30 10:00:01 [api_server.py:1] vLLM API server version 0.32.0",
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.00s/it]",
        "           INFO     loss=3, global_step=7",
        "Epoch 0 100% ━━━━━ 33/33  [ 0:00:47 < 0:00:00 , 0 it/s ]",
        "",
    ]
    assert not training.flush(read([(0.0, line) for line in lines]), 0.0).begun


PIECES = st.sampled_from(
    [step(3), step(4, "nan"), frame("Training epoch 1/3 started"), frame("Saving checkpoint to o"),
     " " * 20 + "epoch=1,",
     "[10:00:00] INFO     train/loss=1e999, epoch=-3, global_step=99999999999999999999", "speculator_type=",
     "[x] INFO speculator_type='a', trainer/epochs=-1, trainer/max_steps=nan", "Epoch 0 100% ━ 0/0  [",
     frame("Training epoch 9/3 completed"), frame("Resuming mid-epoch from epoch=1 local_step=1 global_step=1")]
)  # fmt: skip


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 1e6)), st.one_of(PIECES, st.text(max_size=80))), max_size=60)
)
def test_no_line_breaks_it(lines: list[tuple[Optional[float], str]]) -> None:
    shown = training.progress(training.flush(read(lines), None))
    assert len(shown.losses) <= training.KEPT
    assert shown.steps_per_second is None or 0 < shown.steps_per_second < float("inf")
