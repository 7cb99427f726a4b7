"""The pure parts of adopting: command lines, secrets, time stamps, and what the console makes of a record."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_console import adopted as words
from eagle_console.state import newest_of_stage
from remote.adopt import recognising, stamps
from remote.adopt.adoption import _fitted
from remote.adopt.recognising import LAUNCHER, PART, SERVER, TRAINING, recognise, redact, safe_name
from remote.protocol import adopted, jobs
from remote.protocol.adopted import Adopted
from remote.protocol.codec import MAX_FRAME_BYTES, encode_line, to_wire
from remote.protocol.jobs import Job
from remote.protocol.progress import Progress
from remote.protocol.serving import Serving
from remote.protocol.training import Training
from remote.watch import training


@pytest.mark.parametrize(
    ("line", "role", "model", "port"),
    [
        ("vllm serve /models/K --port 8011 -tp 8", SERVER, "/models/K", 8011),
        ("/ml/bin/python3.11 /ml/bin/vllm serve org/K", SERVER, "org/K", 8000),
        ("vllm serve --model /models/K --port=9000", SERVER, "/models/K", 9000),
        ("python -m vllm.entrypoints.openai.api_server --model K --port 1", SERVER, "K", 1),
        ("python -u -X dev -m vllm.entrypoints.api_server --model K", SERVER, "K", 8000),
        ("vllm serve K --port x", SERVER, "K", 8000),
        ("VLLM::EngineCore", PART, None, None),
        ("VLLM::EngineCore_DP0", PART, None, None),
        ("VLLM::Worker_TP3", PART, None, None),
        ("mine::VLLM::Worker_TP3", PART, None, None),  # VLLM_PROCESS_NAME_PREFIX
        ("/ml/bin/python /ml/bin/speculators train --save-path out", TRAINING, None, None),
        ("python -m speculators.train --verifier-name-or-path K", TRAINING, "K", None),
        ("torchrun --nproc-per-node 8 -m speculators.train --save-path out", LAUNCHER, None, None),
        ("torchrun --standalone /ml/bin/speculators train --save-path out", LAUNCHER, None, None),
        ("python -m torch.distributed.run -m speculators.train --save-path out", LAUNCHER, None, None),
    ],
)
def test_what_a_command_line_is(line: str, role: str, model: Optional[str], port: Optional[int]) -> None:
    found = recognise(line.split())
    assert found is not None and (found.role, found.model, found.port) == (role, model, port)


@pytest.mark.parametrize(
    "line",
    ["vllm bench serve --model K", "vllm", "bash -c vllm", "tail -f vllm", "grep vllm serve", "python train.py",
     "python -c import_vllm", "speculators convert K", "torchrun train.py", "torchrun", "docker run vllm serve K",
     "python", "vim /ml/bin/vllm serve", "notVLLM::EngineCore"],
)  # fmt: skip
def test_what_it_is_not(line: str) -> None:
    assert recognise(line.split()) is None


def test_more_of_a_server() -> None:
    argv = ["vllm", "serve", "K", "--host", "0.0.0.0", "--tensor_parallel_size=4", "--ssl-certfile", "c.pem"]
    found = recognise(argv)
    assert found is not None
    assert (found.host, found.tensor_parallel, found.tls) == ("0.0.0.0", 4, True)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (
            ["vllm", "serve", "K", "--api-key", "a", "b", "--port", "1"],
            "vllm serve K --api-key <hidden> <hidden> --port 1",
        ),
        (["x", "--api_key=abc"], "x --api_key=<hidden>"),
        (["x", "--hf-token", "abc"], "x --hf-token <hidden>"),
        (["env", "HF_TOKEN=abc", "x"], "env 'HF_TOKEN=<hidden>' x"),
        (["x", '{"api_key": "abc"}'], 'x \'{"api_key": "<hidden>"}\''),
        (["x", "http://me:abc@host/"], "x 'http://me:<hidden>@host/'"),
        (["x", "hf_" + "A" * 30], "x '<hidden>'"),
        (["x", "--max-num-batched-tokens", "8192"], "x --max-num-batched-tokens 8192"),
        (["x", "--tokenizer", "/m", "--token-freq-path=/p"], "x --tokenizer /m --token-freq-path=/p"),
        (["x", "max_tokens=3"], "x max_tokens=3"),
        (["x", "it's"], "x 'it'\\''s'"),
    ],
)
def test_secrets_of_a_command_line(argv: list[str], shown: str) -> None:
    assert redact(argv) == shown


def test_long_command_lines_are_cut() -> None:
    assert len(redact(["x" * 10_000])) == recognising.MAX_COMMAND_LINE


@given(st.lists(st.text(max_size=30), max_size=12))
def test_no_command_line_breaks_it(argv: list[str]) -> None:
    recognise(argv)
    redact(argv)


@pytest.mark.parametrize(
    ("text", "name"),
    [("/models/Kimi-K2.5/", "Kimi-K2.5"), ("org/My Model", "My-Model"), (None, "vllm"), ("///", "vllm"), ("ä", "vllm")],
)
def test_names_can_be_typed(text: Optional[str], name: str) -> None:
    assert safe_name(text, "vllm") == name


# When old lines were written

START = 1_780_000_000.0


def stamped(wall: float, text: str = "x") -> str:
    return time.strftime("INFO %m-%d %H:%M:%S [core.py:1] ", time.localtime(wall)) + text


def test_stamps_in_this_hosts_zone() -> None:
    lines = [stamped(START + 20), "a bar", stamped(START + 50)]
    assert stamps.ages(lines, START, START + 60) == [20.0, 20.0, 50.0]


@pytest.mark.parametrize("hours", [-7, 5.75, 11])
def test_stamps_of_a_container_in_another_zone(hours: float) -> None:
    lines = [stamped(START + 20 + hours * 3600), stamped(START + 50 + hours * 3600)]
    assert stamps.ages(lines, START, START + 60) == [20.0, 50.0]


def test_stamps_that_fit_nothing_are_not_believed() -> None:
    late = [stamped(START + 20), stamped(START + 7000)]
    assert stamps.ages(late, START, START + 60) is None, "a line cannot be written after the log's last change"
    assert stamps.ages(["no stamp", "none either"], START, START + 60) is None
    assert stamps.ages([], START, START + 60) is None
    assert stamps.ages(["INFO 99-99 99:99:99 [x.py:1] y"], START, START + 60) is None


def test_a_year_that_changed_meanwhile() -> None:
    new_year = time.mktime((2026, 1, 1, 0, 0, 10, 0, 0, -1))
    lines = [stamped(new_year - 30), stamped(new_year + 5)]
    assert stamps.ages(lines, new_year - 40, new_year + 10) == [10.0, 45.0]


# On the console's side

RECORD = Adopted(
    "adopted-7", "tiny", adopted.KIND_SERVER, jobs.RUNNING, user="ann", log_note="thrown away", model="/m/tiny"
)


def test_an_adopted_server_takes_the_place_of_a_serve_job() -> None:
    shown = words.as_job(RECORD, "box")
    assert (shown.id, shown.stage, shown.parameters) == ("adopted-7", "serve", {"verifier": "/m/tiny"})
    assert shown.note == "not ours: ann started it; no log: thrown away"


def test_a_training_run_counts_its_steps_and_is_never_complete_while_it_runs() -> None:
    run = Training("training", step=100, total_steps=100)
    record = Adopted("adopted-8", "out", adopted.KIND_TRAINING, jobs.RUNNING, training=run)
    counted = words.progress(record)
    assert (counted.done, counted.total, counted.unit) == (100, 100, "steps")
    assert counted.percent is not None and counted.percent < 100


def test_which_words_mean_an_adopted_program() -> None:
    assert words.adopted_id("4711") == words.adopted_id("adopted-4711") == "adopted-4711"
    assert words.adopted_id("serve") is None and words.adopted_id("serve-20260101-000000-abcd") is None


def test_words_of_a_server_leave_out_what_is_not_known() -> None:
    assert words.serving_words(Serving()) == []
    told = Serving(
        running=2, waiting=1, kv_cache=0.5, generation_rate=12.5, acceptance_length=2.5, position_rates=(0.8,)
    )
    assert words.serving_words(told) == [
        "2 running, 1 waiting, KV cache 50.0%",
        "generates 12.5 tokens/s",
        "acceptance length 2.50 since its start: 0.80",
    ]


def test_words_of_a_training_run() -> None:
    told = Training("training", 2, 10, 30, 300, loss=1.5, accuracy=(0.5, 0.25), problem="the loss is not a number")
    assert words.training_words(told) == (
        "training  epoch 2/10  step 30/~300  loss 1.5  acc 0.50 0.25  THE LOSS IS NOT A NUMBER"
    )


def test_a_live_job_of_ours_is_shown_before_an_adopted_program() -> None:
    ours = Job("serve-1", "serve", "service", jobs.RUNNING, 1.0, "box", {}, progress=Progress())
    ended = Job("serve-0", "serve", "service", jobs.FAILED, 0.0, "box", {})
    other = words.as_job(RECORD)
    gone = words.as_job(Adopted("adopted-6", "tiny", adopted.KIND_SERVER, jobs.GONE))
    assert newest_of_stage((ours, ended), "serve", (other,)) == ours
    assert newest_of_stage((ended,), "serve", (other,)) == other
    assert newest_of_stage((ended,), "serve", (gone,)) == ended
    assert newest_of_stage((), "serve", (gone,)) == gone
    assert newest_of_stage((), "train", (other,)) is None


# Work is bounded, whatever anybody on the host writes


@pytest.mark.parametrize(
    "argv",
    [["a" * 100_000], ["token" * 20_000], ["sk-" * 30_000], ["http://" + "a" * 60_000], ["x"] * 60_000,
     ["python", "speculators" + "train" * 20_000], ["python", "-m", "vllm.entrypoints." + "a." * 30_000]],
)  # fmt: skip
def test_a_hostile_command_line_costs_little(argv: list[str]) -> None:
    began = time.process_time()
    recognise(argv)
    assert len(redact(argv)) <= recognising.MAX_COMMAND_LINE
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "line",
    ["      INFO " + " " * 16_000 + "x", "[a] INFO train/" + "a=[" * 5_000, "[a] INFO train/" + "a='" * 5_000,
     "[a] INFO train/" + "a" * 16_000, "[a] INFO " + "x.py:1 " * 2_200, "Epoch 0 100% " + " " * 16_000],
)  # fmt: skip
def test_a_hostile_log_line_costs_little(line: str) -> None:
    began = time.process_time()
    training.flush(training.read_line(training.initial(), line, 0.0), 0.0)
    assert time.process_time() - began < 0.5


def test_a_list_always_fits_into_a_frame() -> None:
    large = [replace(RECORD, id=f"adopted-{pid}", command_line="\u2028" * 4_000) for pid in range(60)]
    fitted = _fitted(large, 0, 2)
    assert 0 < len(fitted.records) < 60 and fitted.omitted == 2 + 60 - len(fitted.records)
    assert len(encode_line(to_wire(fitted))) < MAX_FRAME_BYTES
