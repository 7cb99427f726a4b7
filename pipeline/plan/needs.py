"""How much a stage will write, before it starts: pure arithmetic over parameters, the verifier's config and the run.

A forecast has an expected size, which blocks a launch that cannot end well, and a largest one, which warns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan import budget, training, verifier_config
from pipeline.plan.budget import bytes_per_token
from pipeline.plan.catalog import stage_named
from pipeline.plan.data_commands import PROMPT_ROOM
from pipeline.plan.recipes import RECIPES, parameters_of
from pipeline.plan.state import RunState
from pipeline.plan.training import Shape
from pipeline.plan.verifier_config import VerifierConfig

ASSUMED_TOKENS = 503
"""Tokens of a prompt with its answer where none has been counted: the mean of a thousand answers with reasoning."""

ROW_BYTES = 16
"""Of one token as JSON text in ``responses.jsonl``, and of one in the arrow data set: id and mask."""

RESERVE_BYTES = 256 * 1024**2
"""So much must stay free beside what is written."""

SET_BYTES = {"cpu": 4_000_000_000, "cuda12": 12_000_000_000, "cuda13": 14_000_000_000}
"""Of an ML environment on the disk: the CPU set was measured, the others are sums of their wheels' sizes, unpacked."""


@dataclass(frozen=True)
class DiskNeed:
    """Bytes that a stage will still write. ``words`` says how they come about."""

    expected: int
    largest: int
    words: str

    def plus(self, other: DiskNeed) -> DiskNeed:
        """Both, one after the other, with nothing removed between them."""
        words = "; ".join(word for word in (self.words, other.words) if word)
        return DiskNeed(self.expected + other.expected, self.largest + other.largest, words)


NOTHING = DiskNeed(0, 0, "")


def disk(
    stage: str, parameters: Mapping[str, Any], config: Optional[VerifierConfig], run: RunState, cpu_only: bool
) -> DiskNeed:
    """What the stage of that name will write below the workspace.

    :param config: of the verifier; without one nothing is known of the sizes that depend on it.
    """
    recipe = next((recipe for recipe in RECIPES if recipe.name == stage), None)
    if recipe is not None:
        total = NOTHING
        for part in map(stage_named, recipe.stages):
            total = total.plus(disk(part.name, parameters_of(recipe, part, parameters), config, run, cpu_only))
        return total
    if stage == "setup":
        size = SET_BYTES.get(str(parameters["set"]), max(SET_BYTES.values()))
        return (
            DiskNeed(size, size, f"an ML environment takes {gigabytes(size)}") if not parameters["python"] else NOTHING
        )
    if stage in ("synthesize", "prepare") and not (stage == "synthesize" and parameters["states"]):
        return _text(parameters, run)
    if config is None:
        return NOTHING
    if stage == "synthesize":
        return _text(parameters, run).plus(_captured(parameters, config, run, cpu_only))
    if stage == "extract":
        return _extracted(parameters, config, run, cpu_only)
    if stage == "train":
        return _checkpoints(parameters, config, run)
    if stage == "export":
        return _export(parameters, config, run)
    return NOTHING


def gigabytes(size: float) -> str:
    """A size for people."""
    return f"{size / 1e9:,.2f} GB" if size < 100e9 else f"{size / 1e9:,.0f} GB"


def training_shape(config: VerifierConfig, draft_vocabulary: Optional[int], run: RunState) -> Shape:
    """The sizes that decide what training writes and holds.

    :param draft_vocabulary: as given; else the one that is mapped, else the verifier's.
    """
    mapped = run.vocabularies[0] if len(run.vocabularies) == 1 else None
    return Shape(config.hidden_size, config.vocab_size, min(draft_vocabulary or mapped or 32_000, config.vocab_size))


def state_bytes(config: VerifierConfig, dtype: Optional[str], cpu_only: bool) -> int:
    """Bytes of one token's hidden states: four layers; 57 kB for Kimi-K2.5 in bfloat16.

    :param dtype: of the server as given; None for its own choice.
    """
    try:
        layers = len(verifier_config.extraction_layers(config.layers))
    except ValueError:
        return 0
    if dtype in (None, "auto"):
        dtype = "float32" if cpu_only and dtype is None else config.dtype
    return bytes_per_token(config.hidden_size, layers, dtype)


def _text(parameters: Mapping[str, Any], run: RunState) -> DiskNeed:
    tokens = run.answer_tokens or (run.prompts or 0) * ASSUMED_TOKENS
    size = tokens * ROW_BYTES
    return DiskNeed(size, size, f"text of about {tokens:,} tokens: {gigabytes(size)}" if size else "")


def _captured(parameters: Mapping[str, Any], config: VerifierConfig, run: RunState, cpu_only: bool) -> DiskNeed:
    size = state_bytes(config, parameters["dtype"], cpu_only)
    prompts = run.prompts or 0
    left = max(0, prompts - (run.answers or 0)) if run.captured_bytes else prompts
    each = run.answer_tokens // run.answers if run.answers and run.answer_tokens else ASSUMED_TOKENS
    longest = int(parameters["max_model_len"] or int(parameters["max_tokens"]) + PROMPT_ROOM)
    each = min(each, longest)
    words = (
        f"hidden states of {left:,} answers, about {each:,} tokens each and {longest:,} at most,"
        f" {size / 1e3:,.1f} kB a token"
    )
    return DiskNeed(left * each * size, left * longest * size, words if left else "")


def _extracted(parameters: Mapping[str, Any], config: VerifierConfig, run: RunState, cpu_only: bool) -> DiskNeed:
    size = state_bytes(config, parameters["dtype"], cpu_only)
    if run.tokens is not None:
        tokens, rows = run.tokens, run.rows or 0
        words = f"hidden states of {tokens:,} tokens, {size / 1e3:,.1f} kB each: {gigabytes(tokens * size)}"
    else:
        rows = run.answers or run.prompts or 0
        tokens = run.answer_tokens or rows * ASSUMED_TOKENS
        words = f"hidden states of about {tokens:,} tokens, {size / 1e3:,.1f} kB each"
    there = run.states_bytes + (run.captured_bytes if run.tokens is not None else 0)
    if there and rows:
        words += f"; {gigabytes(there)} are there already"
    left = max(0, tokens * size - there)
    return DiskNeed(left, left, words if tokens else "")


def _checkpoints(parameters: Mapping[str, Any], config: VerifierConfig, run: RunState) -> DiskNeed:
    shape = training_shape(config, parameters["draft_vocab_size"], run)
    values = {**parameters, "optimizer": parameters["optimizer"] or "adamw"}
    each, count = training.checkpoint_bytes(values, shape), training.checkpoints(values)
    left = max(0, count - run.checkpoints)
    words = f"{left} checkpoints of {gigabytes(each)} each" + (
        f", {run.checkpoints} are there" if run.checkpoints else ""
    )
    return DiskNeed(left * each, left * each, words if left else "")


def _export(parameters: Mapping[str, Any], config: VerifierConfig, run: RunState) -> DiskNeed:
    shape = training_shape(config, None, run)
    size = training.checkpoint_bytes({"optimizer": "none", "keep_embedding": parameters["form"] == "full"}, shape)
    return DiskNeed(size, size, f"a draft of about {gigabytes(size)}")


def growth(needs: Mapping[str, DiskNeed]) -> DiskNeed:
    """What the running jobs will still write together, by their ids."""
    busy = {job: need for job, need in needs.items() if need.expected}
    words = ", ".join(f"{job} {gigabytes(need.expected)}" for job, need in sorted(busy.items()))
    return DiskNeed(sum(need.expected for need in busy.values()), sum(need.largest for need in busy.values()), words)


def batched_tokens(parameters: Mapping[str, Any], cpu_only: bool) -> int:
    """Tokens of one prefill step of a server that a stage would start."""
    given = parameters.get("max_num_batched_tokens")
    return int(given) if given else budget.CPU_BATCHED_TOKENS if cpu_only else budget.GPU_BATCHED_TOKENS
