"""The stages that make the training data, as data."""

from __future__ import annotations

from pipeline.plan.layout import RUN
from pipeline.plan.prompts import PRESETS
from pipeline.plan.stage import TASK, Parameter, Stage

VERIFIER = Parameter("verifier", "path", "model folder", from_profile="verifier")

TRUST_REMOTE_CODE = Parameter("trust_remote_code", "bool", "run the Python code that the verifier's folder brings")


def endpoint(name: str, what: str) -> Parameter:
    """A server that runs already instead of one of the stage's own."""
    return Parameter(
        name,
        "str",
        f"base URL of {what} that runs already, such as http://127.0.0.1:8000; empty: the stage starts its own",
        pattern=r"https?://[^\s/]+/?",
        pattern_words="http://HOST:PORT",
        shapes_result=False,
    )


ENDPOINT = endpoint("endpoint", "a server")

SERVER = (
    Parameter(
        "tensor_parallel",
        "int",
        "GPUs that hold one copy of the model",
        unit="GPUs",
        minimum=1,
        maximum=1024,
        from_profile="tensor_parallel",
        shapes_result=False,
    ),
    Parameter(
        "gpu_memory_utilization",
        "float",
        "share of each GPU's memory for vLLM",
        minimum=0.05,
        maximum=1.0,
        shapes_result=False,
    ),
    Parameter(
        "max_num_batched_tokens",
        "int",
        "tokens prefilled in one step; bounds activation memory; by the budget if empty",
        unit="tokens",
        minimum=1,
        shapes_result=False,
    ),
    Parameter("dtype", "str", "weights and activations of the server: auto, bfloat16, float16, float32"),
    TRUST_REMOTE_CODE,
    Parameter("extra", "str", "more options for vllm serve, as on a command line"),
)
"""Of the server that a stage starts for itself."""


def concurrency(default: int) -> Parameter:
    """Requests that are open at once."""
    return Parameter(
        "concurrency",
        "int",
        "requests that are open at once",
        default,
        unit="requests",
        minimum=1,
        maximum=4096,
        shapes_result=False,
    )


SEQ_LENGTH = Parameter(
    "seq_length", "int", "longest sequence to train on; longer ones are cut", 8192, unit="tokens", minimum=16
)

PROMPTS = Stage(
    name="prompts",
    kind=TASK,
    summary="a set of prompts from a preset or a file: without duplicates, counted, drawn with a seed",
    watcher="events",
    inputs=("a preset on the hub, or a .json or .jsonl file",),
    outputs=("data_NAME/prompts.jsonl", "data_NAME/held_out.jsonl"),
    resources="no GPU; a preset needs the hub",
    resume="starts again; seconds for a file, minutes for a preset",
    parameters=(
        RUN,
        Parameter(
            "source",
            "str",
            f"a preset ({', '.join(PRESETS)}) or the path of a .json or .jsonl file",
            next(iter(PRESETS)),
        ),
        Parameter("samples", "int", "prompts to train on", 10_000, unit="prompts", minimum=1),
        Parameter("held_out", "int", "prompts kept aside, to measure on", 64, unit="prompts", minimum=0),
        Parameter("seed", "int", "seed of the draw", 0, minimum=0),
        Parameter(
            "broken_lines",
            "str",
            "what lines do that hold no prompt: refuse the file, or skip",
            "refuse",
            choices=("refuse", "skip"),
        ),
    ),
)

SYNTHESIZE = Stage(
    name="synthesize",
    kind=TASK,
    summary="the verifier's own answers, reasoning included, to every prompt",
    watcher="events",
    grace_seconds=30.0,
    stop_costs="the answers that are being written; finished ones are kept",
    inputs=("data_NAME/prompts.jsonl", "the verifier"),
    outputs=("data_NAME/responses.jsonl", "with states: data_NAME/captured/"),
    resources="the GPUs that hold the verifier",
    resume="asks only for what is missing; an answer is never asked for twice",
    needs=("vllm", "speculators"),
    parameters=(
        RUN,
        VERIFIER,
        ENDPOINT,
        Parameter(
            "states", "bool", "keep the hidden states of prompt and answer too: one pass instead of two", default=False
        ),
        concurrency(128),
        Parameter("max_tokens", "int", "longest answer, reasoning included", 8192, unit="tokens", minimum=1),
        Parameter("max_model_len", "int", "longest sequence of the server", unit="tokens", minimum=16),
        Parameter(
            "temperature", "float", "0 for the greedy answer; the model's own if empty", minimum=0.0, maximum=2.0
        ),
        Parameter(
            "max_truncated", "float", "share of answers that may be cut by max_tokens", 0.3, minimum=0.0, maximum=1.0
        ),
        Parameter("max_missing", "float", "share of prompts that may have no answer", 0.02, minimum=0.0, maximum=1.0),
        Parameter("max_repetitive", "float", "share of answers that may end in a loop", 0.1, minimum=0.0, maximum=1.0),
        Parameter("min_reasoning", "float", "share of answers that must hold reasoning", 0.0, minimum=0.0, maximum=1.0),
        *SERVER,
    ),
)

PREPARE = Stage(
    name="prepare",
    kind=TASK,
    summary="tokens and loss masks as a data set; a server without weights renders what is not tokenized yet",
    watcher="events",
    stop_costs="the data set that is being made",
    inputs=("data_NAME/responses.jsonl", "the verifier's config and tokenizer"),
    outputs=("data_NAME/prepared/*.arrow", "data_NAME/prepared/token_freq.pt"),
    resources="no GPU and no weights",
    resume="starts again; a data set appears only when it is complete",
    needs=("speculators",),
    parameters=(
        RUN,
        VERIFIER,
        SEQ_LENGTH,
        Parameter(
            "truncated", "str", "what happens to answers that were cut: drop or keep", "drop", choices=("drop", "keep")
        ),
        Parameter("seed", "int", "seed of the order", 0, minimum=0),
        Parameter("workers", "int", "processes", minimum=1, maximum=128, shapes_result=False),
        TRUST_REMOTE_CODE,
    ),
)

EXTRACT = Stage(
    name="extract",
    kind=TASK,
    summary="the verifier's hidden states of every row, through an extraction server",
    watcher="events",
    grace_seconds=30.0,
    stop_costs="the files that are being written; finished ones are kept",
    inputs=("data_NAME/prepared/*.arrow", "the verifier", "data_NAME/captured/ where there is one"),
    outputs=("data_NAME/prepared/hidden_states/hs_N.safetensors",),
    resources="the GPUs that hold the verifier; disk: 8 bytes x hidden size a token in bfloat16",
    resume="asks only for files that are missing or not whole",
    needs=("vllm", "speculators"),
    parameters=(
        RUN,
        VERIFIER,
        ENDPOINT,
        concurrency(32),
        Parameter(
            "max_model_len", "int", "longest sequence of the server", unit="tokens", minimum=16, shapes_result=False
        ),
        *SERVER,
    ),
)

VOCAB = Stage(
    name="vocab",
    kind=TASK,
    summary="the draft's vocabulary: the tokens that the answers use most, and how much of them it covers",
    watcher="events",
    inputs=("data_NAME/prepared/token_freq.pt", "the verifier's config"),
    outputs=("data_NAME/prepared/d2t-SIZE.npy", "data_NAME/prepared/t2d-SIZE.npy"),
    resources="no GPU",
    resume="starts again; it takes seconds",
    needs=("speculators",),
    parameters=(
        RUN,
        VERIFIER,
        Parameter("draft_vocab_size", "int", "tokens that the draft can say", 32_000, unit="tokens", minimum=1),
        Parameter(
            "min_coverage", "float", "share of the answers' tokens that it must cover", 0.9, minimum=0.0, maximum=1.0
        ),
    ),
)

DATA_STAGES: tuple[Stage, ...] = (PROMPTS, SYNTHESIZE, PREPARE, EXTRACT, VOCAB)
