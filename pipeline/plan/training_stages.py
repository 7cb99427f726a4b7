"""The stages that make a draft from data and measure it: the data only."""

from __future__ import annotations

from pipeline.plan.data_stages import SERVER, VERIFIER, concurrency, endpoint
from pipeline.plan.layout import RUN
from pipeline.plan.stage import TASK, Parameter, Stage

TRAIN = Stage(
    name="train",
    kind=TASK,
    summary="trains the draft with speculators' trainer; continues where an earlier start stopped",
    watcher="events",
    grace_seconds=300.0,
    stop_costs="the step in hand; the rest is saved, and training continues from there",
    inputs=("data_NAME/prepared/", "data_NAME/prepared/hidden_states/"),
    outputs=("output_NAME/",),
    resources="one GPU (46 GB at hidden 7168 and 8192 tokens a step); more where an epoch has steps enough",
    resume="an interrupted epoch continues after its last step, a torn checkpoint is passed over, whole epochs stay",
    needs=("torch", "speculators"),
    parameters=(
        RUN,
        VERIFIER,
        Parameter("epochs", "int", "passes over the data", 10, minimum=1, maximum=10_000),
        Parameter(
            "total_seq_len",
            "int",
            "tokens of one step: samples are packed into it; chosen from the data if empty",
            unit="tokens",
            minimum=16,
            maximum=1_048_576,
        ),
        Parameter("optimizer", "str", "chosen from the machine if empty", choices=("adamw", "muon")),
        Parameter("lr", "float", "highest learning rate; the trainer's 0.001 if empty", minimum=1e-8, maximum=1.0),
        Parameter(
            "draft_vocab_size",
            "int",
            "tokens that the draft can say; those of the stage vocab's mapping if empty",
            unit="tokens",
            minimum=16,
        ),
        Parameter("layer_ids", "str", "verifier layers that the draft reads, as vLLM counts; 2, n/2 and n-3 if empty"),
        Parameter("ttt_steps", "int", "tokens that training predicts ahead", 3, minimum=1, maximum=16),
        Parameter(
            "checkpoint_every",
            "float",
            "epochs between checkpoints; below 1 also within an epoch",
            1.0,
            unit="epochs",
            minimum=0.001,
            shapes_result=False,
        ),
        Parameter(
            "retention",
            "str",
            "what happens to older checkpoints after each epoch; best, newest two and one to resume from always stay: "
            "off keeps all, trim drops their optimizer state, whole moves them into the trash",
            "off",
            choices=("off", "trim", "whole"),
            shapes_result=False,
        ),
        Parameter("training_share", "float", "share of the samples to train on", 0.9, minimum=0.01, maximum=0.999),
        Parameter(
            "gpus",
            "int",
            "GPUs that training may use",
            unit="GPUs",
            minimum=1,
            maximum=64,
            from_profile="tensor_parallel",
            shapes_result=False,
        ),
        Parameter(
            "processes", "int", "trainers side by side, one a GPU; chosen from the data if empty", minimum=1, maximum=64
        ),
        Parameter(
            "loader_workers",
            "int",
            "processes that load data, for each trainer",
            minimum=0,
            maximum=64,
            shapes_result=False,
        ),
        Parameter(
            "prefetch", "int", "batches that each of them loads ahead", minimum=1, maximum=64, shapes_result=False
        ),
        Parameter("loss_implementation", "str", "chosen from the machine if empty", choices=("fused", "eager")),
        Parameter(
            "attention",
            "str",
            "of the draft while it is trained; chosen from the machine if empty",
            choices=("simple_flex_attention", "sdpa", "eager"),
        ),
        Parameter(
            "states_dtype",
            "str",
            "of the hidden states and of autocast; chosen from the machine if empty",
            choices=("bfloat16", "float16", "float32"),
        ),
        Parameter("fused_optimizer", "bool", "AdamW's update as one kernel; on GPUs if empty", shapes_result=False),
        Parameter("log_every", "int", "steps between records of loss and accuracy", minimum=1, shapes_result=False),
        Parameter(
            "keep_embedding",
            "bool",
            "keep the frozen copy of the verifier's embedding in every checkpoint",
            False,
            shapes_result=False,
        ),
        Parameter("seed", "int", "of the order of the samples and of the draft's first weights", 42, minimum=0),
        Parameter("trainer_options", "str", "more options for speculators train, as on a command line"),
    ),
)

EXPORT = Stage(
    name="export",
    kind=TASK,
    summary="one epoch of a training run as a draft in the flat format, which vLLM and others load",
    watcher="events",
    grace_seconds=60.0,
    stop_costs="nothing: the export appears only when it is complete",
    inputs=("output_NAME/N/",),
    outputs=("draft_NAME/",),
    resources="memory for one copy of the draft, no GPU",
    resume="made anew; an export that is there is kept under another name",
    needs=("torch",),
    parameters=(
        RUN,
        VERIFIER,
        Parameter(
            "checkpoint",
            "str",
            "best (by predicted acceptance), last, or the number of a checkpoint's folder",
            "best",
            pattern=r"best|last|\d{1,6}",
            pattern_words="best, last or a number",
        ),
        Parameter(
            "form",
            "str",
            "slim leaves out the embedding, which vLLM takes from the verifier; full has it",
            "slim",
            choices=("slim", "full"),
        ),
    ),
)

BENCH = Stage(
    name="bench",
    kind=TASK,
    summary="the same prompts without and with the draft: acceptance, tokens/s, speed-up, equal texts",
    watcher="events",
    grace_seconds=30.0,
    stop_costs="the measurement; it starts again",
    inputs=("draft_NAME/", "data_NAME/prompts.jsonl", "data_NAME/held_out.jsonl where there is one", "the verifier"),
    outputs=("bench_NAME/report.json", "bench_NAME/report.md"),
    resources="the GPUs that hold the verifier, twice in turn: without the draft, then with it",
    resume="starts again",
    needs=("vllm",),
    parameters=(
        RUN,
        VERIFIER,
        Parameter("draft", "path", "folder of the draft; that of the run if empty"),
        endpoint("plain_endpoint", "a plain server"),
        endpoint("draft_endpoint", "a server with the draft"),
        Parameter("prompts_file", "path", "prompts as JSON lines; those that were trained on if empty"),
        Parameter("held_out_file", "path", "prompts that were not trained on; the run's own if empty"),
        Parameter("bench_prompts", "int", "prompts of each set at most", 64, unit="prompts", minimum=1),
        Parameter("max_tokens", "int", "longest answer", 512, unit="tokens", minimum=1),
        Parameter("speculative_tokens", "int", "tokens drafted at once", 3, unit="tokens", minimum=1, maximum=16),
        Parameter("max_model_len", "int", "longest sequence of the server", unit="tokens", minimum=16),
        concurrency(8),
        *SERVER,
    ),
)

TRAINING_STAGES: tuple[Stage, ...] = (TRAIN, EXPORT, BENCH)
