"""Is the verifier whole, does the draft fit it, and can the tools read both?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.plan import purpose, verifier_config
from pipeline.plan.commands import DRAFT, EXTRACTION
from pipeline.plan.stage import Stage
from pipeline.plan.verifier_config import VerifierConfig
from remote.jobs.facts import Facts
from remote.jobs.model_folder import DraftFacts
from remote.jobs.preflight.rules import LAYERS, MODEL_FILES, PATH, REMOTE_CODE, TOKENIZER, VERIFIER, VOCABULARY
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

COMPLETE = "give the folder of a complete Hugging Face model"
TRAP = "eagle-"
"""vLLM takes a draft whose path holds this for EAGLE-1 where no method is named (``config/speculative.py``)."""


def checks(stage: Stage, facts: Facts) -> Iterator[Check]:
    """The verifier's folder, then what the stage's parameters and the draft's config say about it."""
    if "verifier" not in {parameter.name for parameter in stage.parameters}:
        return
    yield from _verifier(stage, facts)
    if facts.verifier is None or facts.verifier.config is None:
        return
    yield from _remote_code(stage, facts)
    for name, values in purpose.parts(stage.name, facts.parameters):
        yield from _layers(name, values, facts.verifier.config)
        yield from _vocabulary(stage.name, name, values, facts, facts.verifier.config)
    if facts.draft is not None and _serves_draft(stage, facts):
        yield from _draft(facts.draft, facts.verifier.config)
    yield from _path(stage, facts)


def _verifier(stage: Stage, facts: Facts) -> Iterator[Check]:
    folder = facts.verifier
    if folder is None:
        yield Check(
            VERIFIER, VERDICT_BLOCKED, "no verifier is set", "set verifier in the host's profile, or verifier=PATH"
        )
        return
    lacks: list[tuple[bool, str]] = [
        (folder.exists, "is no folder on this host"),
        (not folder.problem, f"cannot be read: {folder.problem}"),
        (folder.has_config, "holds no config.json"),
        (folder.has_weights, "holds no weights (*.safetensors, *.bin)"),
    ]
    wrong = next((words for fits, words in lacks if not fits), "")
    if wrong:
        yield Check(VERIFIER, VERDICT_BLOCKED, f"{folder.path} {wrong}", COMPLETE)
        return
    if folder.config_problem:
        yield Check(VERIFIER, VERDICT_BLOCKED, folder.config_problem, COMPLETE)
        return
    yield Check(VERIFIER, VERDICT_OK, f"{folder.path} holds a config and weights")
    if folder.has_tokenizer:
        yield Check(TOKENIZER, VERDICT_OK, "a tokenizer is there")
    else:
        yield Check(TOKENIZER, VERDICT_BLOCKED, f"{folder.path} holds no tokenizer", COMPLETE)
    if folder.defects:
        reason = f"the weights in {folder.path} are not whole: {'; '.join(folder.defects)}"
        yield Check(MODEL_FILES, VERDICT_BLOCKED, reason, "download them again")
    else:
        yield Check(MODEL_FILES, VERDICT_OK, f"its weights are whole: {folder.weight_bytes / 1e9:,.2f} GB")


def _remote_code(stage: Stage, facts: Facts) -> Iterator[Check]:
    names = {parameter.name for parameter in stage.parameters}
    folder = facts.verifier
    if folder is None or not folder.tokenizer_code or "trust_remote_code" not in names:
        return
    if facts.parameters.get("trust_remote_code"):
        yield Check(REMOTE_CODE, VERDICT_OK, "the tokenizer's own code is run, as trust_remote_code says")
    else:
        yield Check(
            REMOTE_CODE,
            VERDICT_BLOCKED,
            f"the tokenizer of {folder.path} is Python code of that folder (auto_map in tokenizer_config.json)",
            "look at the code, then allow it: trust_remote_code=true",
        )


def _layers(stage: str, values: Mapping[str, Any], config: VerifierConfig) -> Iterator[Check]:
    """What extraction saves must be what training reads."""
    name = {"train": "layer_ids", "serve": "layers"}.get(stage)
    if stage not in ("train", "extract", "synthesize", "serve"):
        return
    if stage == "serve" and values.get("kind") != EXTRACTION:
        return
    if stage == "synthesize" and not values.get("states"):
        return
    try:
        saved = verifier_config.extraction_layers(config.layers)
    except ValueError as error:
        yield Check(LAYERS, VERDICT_BLOCKED, str(error), "EAGLE-3 needs a verifier of more layers")
        return
    given = numbers(values.get(name)) if name else ()
    wanted = saved[:-1] if stage == "train" else saved
    if not given or given == wanted:
        yield Check(LAYERS, VERDICT_OK, f"layers {_list(saved)} are saved, and training reads them")
    elif max(given) > config.layers:
        yield Check(
            LAYERS, VERDICT_BLOCKED, f"{name}={_list(given)}: the verifier has {config.layers} layers", f"{name}="
        )
    elif stage == "train":
        yield Check(
            LAYERS,
            VERDICT_BLOCKED,
            f"layer_ids={_list(given)}, but the hidden states are of layers {_list(saved)}",
            f"leave layer_ids empty, or layer_ids={_list(wanted)}",
        )
    else:
        yield Check(
            LAYERS,
            VERDICT_WARNING,
            f"layers={_list(given)}: extract and train expect {_list(saved)}",
            "leave layers empty unless another client reads the states",
        )


def _vocabulary(
    single: str, stage: str, values: Mapping[str, Any], facts: Facts, config: VerifierConfig
) -> Iterator[Check]:
    """:param single: the stage that was asked for; a recipe maps the vocabulary before it trains."""
    size = values.get("draft_vocab_size")
    if size is None or stage not in ("vocab", "train"):
        return
    mapped = facts.run.vocabularies
    if size > config.vocab_size:
        yield Check(
            VOCABULARY,
            VERDICT_BLOCKED,
            f"draft_vocab_size={size:,} is more than the verifier's {config.vocab_size:,} tokens",
            f"draft_vocab_size={config.vocab_size} at most",
        )
    elif stage == "train" and stage == single and mapped and size not in (*mapped, config.vocab_size):
        yield Check(
            VOCABULARY,
            VERDICT_BLOCKED,
            f"draft_vocab_size={size:,}, but the run's mapping is of {_list(mapped)} tokens",
            f"run the stage vocab with draft_vocab_size={size}, or leave it empty here",
        )


def _serves_draft(stage: Stage, facts: Facts) -> bool:
    return any(server.get("kind") == DRAFT for server in purpose.servers(stage.name, facts.parameters))


def _draft(draft: DraftFacts, config: VerifierConfig) -> Iterator[Check]:
    """The numbers that vLLM does not compare, or compares with words that do not name them."""
    if draft.problem:
        yield Check(VERIFIER, VERDICT_BLOCKED, f"{draft.path}: {draft.problem}", "give the folder of an exported draft")
        return
    if not draft.layers:
        yield Check(
            LAYERS,
            VERDICT_BLOCKED,
            f"{draft.path} does not say which layers it reads: vLLM takes 2, n/2 and n-3, and tells nobody",
            "export it with the stage export",
        )
    elif max(draft.layers) > config.layers or min(draft.layers) < 0:
        yield Check(
            LAYERS,
            VERDICT_BLOCKED,
            f"the draft reads layers {_list(draft.layers)}, the verifier has {config.layers}",
            "it belongs to another verifier",
        )
    else:
        yield Check(LAYERS, VERDICT_OK, f"the draft reads layers {_list(draft.layers)}")
    if draft.hidden_size not in (None, config.hidden_size):
        yield Check(
            LAYERS,
            VERDICT_BLOCKED,
            f"the draft's hidden size is {draft.hidden_size}, the verifier's {config.hidden_size}",
            "it belongs to another verifier",
        )
    if draft.vocab_size not in (None, config.vocab_size):
        yield Check(
            VOCABULARY,
            VERDICT_BLOCKED,
            f"the draft knows a vocabulary of {draft.vocab_size:,} tokens, the verifier has {config.vocab_size:,}",
            "it belongs to another verifier",
        )
    elif draft.draft_vocab_size is not None and draft.draft_vocab_size > config.vocab_size:
        yield Check(
            VOCABULARY,
            VERDICT_BLOCKED,
            f"the draft says {draft.draft_vocab_size:,} tokens of {config.vocab_size:,}",
            "export it again",
        )
    elif draft.draft_vocab_size is not None:
        yield Check(
            VOCABULARY, VERDICT_OK, f"the draft says {draft.draft_vocab_size:,} of {config.vocab_size:,} tokens"
        )


def _path(stage: Stage, facts: Facts) -> Iterator[Check]:
    """Our own servers name the method; others that load this folder may not."""
    path = facts.draft.path if facts.draft and _serves_draft(stage, facts) else ""
    if not path and stage.name == "export" and facts.workspace.path:
        path = os.path.join(facts.workspace.path, f"draft_{facts.parameters.get('run')}")
    if TRAP in path:
        yield Check(
            PATH,
            VERDICT_WARNING,
            f"{path} holds {TRAP!r}: without a method vLLM takes such a draft for EAGLE-1 and fails",
            'name it wherever you serve it: "method": "eagle3"; ours does',
        )


def numbers(text: Any) -> tuple[int, ...]:
    """Layer ids as the parameters write them: ``2,15,27``, or with spaces."""
    words = str(text or "").replace(",", " ").split()
    return tuple(int(word) for word in words if word.isdigit())


def _list(values: Any) -> str:
    return ",".join(map(str, values))
