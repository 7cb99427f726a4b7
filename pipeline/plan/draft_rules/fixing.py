"""What a corrected copy of a draft holds: another config, and where the folder's name misleads vLLM, another name.

The weights stay as they are: everything that can be mended without a guess stands in the config.
"""

from __future__ import annotations

import copy
import os
import re
from dataclasses import dataclass
from typing import Any, Optional

from pipeline.plan.draft_config import AUX_LAYERS
from pipeline.plan.draft_rules.checks import check
from pipeline.plan.draft_rules.facts import SGLANG, SPECULATORS, Draft, Verifier
from pipeline.plan.draft_rules.reading import named_verifier
from pipeline.plan.draft_rules.view import View, nested, view


@dataclass(frozen=True)
class Fix:
    """A correction: the new config, and what it changes, a sentence each."""

    config: dict[str, Any]
    changes: tuple[str, ...]


def fix(draft: Draft, verifier: Optional[Verifier], convention: Optional[str], target: str) -> Fix:
    """The correction of what the rules find and what needs no guess; without changes where that is nothing.

    :param convention: ``facts.SGLANG`` translates the layer ids to vLLM's.
    :param target: the path of the copy: a name without ``eagle-`` is a change too.
    """
    config = copy.deepcopy(dict(draft.config))
    changes: list[str] = []
    ids_of = {finding.id for finding in check(draft, verifier, convention)}
    seen = view(draft)
    if convention == SGLANG and (seen.ids or seen.nested):
        _translate(config, seen, changes)
    if "R7" in ids_of:
        config["norm_before_fc"] = True
        if "norm_before_fc" in nested(config):
            config["eagle_config"]["norm_before_fc"] = True
        changes.append("R7: norm_before_fc is true")
    if ids_of & {"R10", "R12"}:
        _write_ids(config, seen, changes, "R10" if "R10" in ids_of else "R12")
    if "R14" in ids_of and (length := _mapped(draft)) is not None:
        config["draft_vocab_size"] = length
        changes.append(f"R14: draft_vocab_size is {length}")
    if "R19" in ids_of:
        config["use_cache"] = True
        changes.append("R19: use_cache is true")
    if "R30" in ids_of and verifier is not None:
        config["speculators_config"]["verifier"]["name_or_path"] = verifier.path
        changes.append(f"R30: the verifier is {verifier.path}, it was {named_verifier(draft.config)}")
    if "R24" in ids_of and "eagle-" not in target.lower():
        changes.append(f"R24: the folder is called {os.path.basename(target)}")
    return Fix(config, tuple(changes))


def default_target(path: str) -> str:
    """Where the copy goes when nobody says: beside the draft, under a name that does not mislead vLLM."""
    name = re.sub("eagle-", "eagle3-", os.path.basename(path), flags=re.IGNORECASE)
    return os.path.join(os.path.dirname(path), f"{name}_fixed")


def _translate(config: dict[str, Any], seen: View, changes: list[str]) -> None:
    before = seen.ids or seen.nested
    for ids, place in ((seen.ids, config), (seen.nested, nested(config))):
        if ids and isinstance(place, dict):
            place[AUX_LAYERS] = [number + 1 for number in ids]
    changes.append(f"R9: the layers are {[number + 1 for number in before]}, they were {list(before)} as SGLang counts")


def _write_ids(config: dict[str, Any], seen: View, changes: list[str], rule: str) -> None:
    ids = list(config.get(AUX_LAYERS) or nested(config)[AUX_LAYERS])
    config[AUX_LAYERS] = ids
    if seen.format == SPECULATORS:  # vLLM passes on what stands in the layer's config, and no eagle_config
        config["transformer_layer_config"]["num_aux_hidden_states"] = len(ids)
    else:
        config["num_aux_hidden_states"] = len(ids)
        config["eagle_config"] = {"use_aux_hidden_state": True, **nested(config), AUX_LAYERS: ids}
    changes.append(f"{rule}: the layers {ids} are named wherever vLLM looks")


def _mapped(draft: Draft) -> Optional[int]:
    """The length of d2t, where lm_head has as many rows."""
    mapping, head = draft.tensors.get("d2t"), draft.tensors.get("lm_head.weight")
    fits = mapping is not None and head is not None and mapping.shape == head.shape[:1]
    return mapping.shape[0] if fits and mapping is not None else None
