"""What the stage ``serve`` fills in for its kind, so that a dry run and a launch agree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pipeline.plan import verifier_config
from pipeline.plan.commands import DRAFT, EXTRACTION
from pipeline.plan.verifier_config import ConfigError

STORAGE_FOLDER = os.path.join(".eagle_console", "states")
"""Below the workspace: where an extraction server writes, unless told otherwise."""


def complete(parameters: Mapping[str, Any], workspace: str) -> dict[str, Any]:
    """The parameters with what the kind needs: for extraction the layers, by the verifier's config, and the storage.

    Where the verifier cannot be read the layers stay open: a dry run shows a word in their place.

    :raises ValueError: for a draft server without a draft, and a verifier that is too small for EAGLE-3.
    """
    values = dict(parameters)
    kind = values.get("kind")
    if kind == DRAFT and not values.get("draft"):
        raise ValueError("kind=draft needs draft=PATH, the folder of an exported draft")
    if kind != EXTRACTION:
        return values
    values["storage"] = values.get("storage") or os.path.join(workspace, STORAGE_FOLDER)
    if not values.get("layers") and values.get("verifier"):
        try:
            layers = verifier_config.read(values["verifier"]).layers
        except ConfigError:
            return values
        values["layers"] = ",".join(map(str, verifier_config.extraction_layers(layers)))
    return values


def known(parameters: Mapping[str, Any], workspace: str) -> dict[str, Any]:
    """The parameters of a server that runs, filled in as far as they can be; as they are where they cannot."""
    try:
        return complete(parameters, workspace)
    except ValueError:
        return dict(parameters)
