"""The stages: the data only. What a stage is made of stands in ``pipeline.plan.stage``."""

from __future__ import annotations

from pipeline.plan.commands import PLAIN, SERVE_KINDS, SPECULATIVE_TOKENS
from pipeline.plan.data_stages import DATA_STAGES
from pipeline.plan.recipes import RECIPES, as_stage
from pipeline.plan.setup_stage import SETUP
from pipeline.plan.stage import SERVICE, TASK, Parameter, Stage, nearest
from pipeline.plan.training_stages import TRAINING_STAGES

SERVE = Stage(
    name="serve",
    kind=SERVICE,
    summary="vLLM with the verifier: loads the model, then answers on the port until it is stopped",
    watcher="vllm_load",
    grace_seconds=20.0,
    stop_costs="the loaded model; the next start loads it again",
    inputs=("the verifier", "for kind=draft: draft_NAME/"),
    resources="the GPUs that hold the verifier, until it is stopped",
    needs=("vllm",),
    parameters=(
        Parameter("verifier", "path", "model folder", from_profile="verifier"),
        Parameter("port", "int", "port of the OpenAI-compatible server, on loopback", 8000, minimum=1, maximum=65535),
        Parameter(
            "tensor_parallel",
            "int",
            "GPUs that hold one copy of the model",
            unit="GPUs",
            minimum=1,
            maximum=1024,
            from_profile="tensor_parallel",
        ),
        Parameter("max_model_len", "int", "longest sequence; the model's own limit if empty", unit="tokens", minimum=1),
        Parameter("max_num_seqs", "int", "sequences decoded at once", minimum=1),
        Parameter(
            "max_num_batched_tokens",
            "int",
            "tokens prefilled in one step; bounds activation memory",
            unit="tokens",
            minimum=1,
        ),
        Parameter(
            "gpu_memory_utilization",
            "float",
            "share of each GPU's memory for vLLM",
            minimum=0.05,
            maximum=1.0,
        ),
        Parameter("dtype", "str", "weights and activations: auto, bfloat16, float16, float32"),
        Parameter("enforce_eager", "bool", "no torch.compile and no CUDA graphs: starts faster, serves slower"),
        Parameter("trust_remote_code", "bool", "run the Python code that the model's folder brings"),
        Parameter("served_model_name", "str", "name of the model in requests; the folder's path if empty"),
        Parameter(
            "kind",
            "str",
            "plain; extraction: hidden states of every request go to files; draft: answers with an EAGLE-3 draft",
            PLAIN,
            choices=SERVE_KINDS,
        ),
        Parameter("draft", "path", "folder of an exported draft, for kind=draft"),
        Parameter(
            "speculative_tokens",
            "int",
            "tokens that the draft guesses at a time",
            SPECULATIVE_TOKENS,
            unit="tokens",
            minimum=1,
            maximum=16,
        ),
        Parameter(
            "layers",
            "str",
            "layers that an extraction server saves, as vLLM counts; 2, n/2, n-3 and n if empty",
            pattern=r"\d+(,\d+)*",
            pattern_words="numbers with commas between them",
        ),
        Parameter("storage", "path", "where an extraction server writes; below the workspace if empty"),
        Parameter("extra", "str", "more options for vllm serve, as on a command line"),
    ),
)

CHECK = Stage(
    name="check",
    kind=TASK,
    summary="imports the ML environment and prints its versions and devices",
    grace_seconds=5.0,
)

_PARTS = (*DATA_STAGES, *TRAINING_STAGES)

STAGES: tuple[Stage, ...] = (SETUP, CHECK, *_PARTS, SERVE, *(as_stage(recipe, _PARTS) for recipe in RECIPES))


def stage_named(name: str) -> Stage:
    """The stage of that name.

    :raises KeyError: with a sentence that names the nearest stage.
    """
    for stage in STAGES:
        if stage.name == name:
            return stage
    raise KeyError(f"there is no stage {name!r}{nearest(name, [stage.name for stage in STAGES])}")
