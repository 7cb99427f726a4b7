"""Servers that run already: what one serves is asked, and compared with what a stage needs, before it is used."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from pipeline.plan import endpoints, serving
from pipeline.plan.commands import DRAFT, EXTRACTION, PLAIN
from pipeline.plan.events import SERVER_DIED
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun

_COUNTERS = "vllm:spec_decode_num_drafts"
"""A metric that only a server with speculative decoding has; the extraction method is one."""

_PROBE_TOKENS = (0, 1)
_SECONDS = 600.0
"""A request waits for those that are before it."""


def identify(stage: StageRun, base: str, wanted: Mapping[str, Any]) -> str:
    """The name under which the server at ``base`` serves the model, when it is the server that the stage needs.

    A server that a job of this workspace runs is known by the job's parameters; any other one by its answers, which do
    not tell layer ids: of its hidden states only count, width and tokens are compared later.

    :param wanted: kind, verifier, and where they matter layers, draft, speculative_tokens and max_model_len.
    :raises StageError: naming what is different, before anything was asked of it for the stage.
    """
    card = _card(base)
    remedy = "Give the endpoint of the server that is needed, or leave it empty: the stage then starts its own."
    found = _job(stage, base)
    if found is None:
        found = {"kind": _kind(base, str(card["id"])), "verifier": wanted.get("verifier")}
        root = str(card.get("root") or card["id"])
        if os.path.realpath(root) != os.path.realpath(str(wanted.get("verifier"))):
            found["verifier"] = root
        compared = {name: value for name, value in wanted.items() if name in found}
    else:
        compared = {name: value for name, value in wanted.items() if name != "max_model_len"}
    wrong = endpoints.disagreement(compared, found)
    if wrong:
        raise StageError(f"It cannot be used: {wrong}.", file=base, field="endpoint", remedy=remedy, klass="endpoint")
    longest, needed = card.get("max_model_len"), wanted.get("max_model_len")
    if isinstance(longest, int) and needed and longest < int(needed):
        raise StageError(
            f"It takes sequences of {longest:,} tokens, and up to {int(needed):,} are needed.",
            file=base,
            field="endpoint",
            remedy=f"Serve with max_model_len={needed}, or ask for less (max_tokens).",
            klass="endpoint",
        )
    if found["kind"] == EXTRACTION and "layers" not in found:
        stage.message(f"{base} is no job of this workspace: its layer ids cannot be read, only counted.", "warning")
    return str(card["id"])


def _card(base: str) -> dict[str, Any]:
    """What the server says of its model.

    :raises StageError: when it does not answer as an OpenAI-compatible server.
    """
    try:
        with urllib.request.urlopen(f"{base}/v1/models", timeout=30) as answer:
            card = json.load(answer)["data"][0]
        return {**card, "id": card["id"]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StageError(
            f"It does not name its model: {error}.",
            file=f"{base}/v1/models",
            remedy="Check the endpoint: it must be an OpenAI-compatible server that is ready.",
            klass=SERVER_DIED,
        ) from None


def _job(stage: StageRun, base: str) -> Optional[dict[str, Any]]:
    """The parameters of the serve job of this workspace on the endpoint's port that has not ended; None without one."""
    port = endpoints.port_of(base)
    jobs = Path(stage.run.workspace) / ".eagle_console" / "jobs"
    for spec in sorted(jobs.glob("serve-*/spec.json"), reverse=True) if port else ():
        if (spec.parent / "exit.json").exists():
            continue
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            data = json.loads(spec.read_bytes())
            if data["parameters"]["port"] == port:
                return serving.known(data["parameters"], str(data["cwd"]))
    return None


def _kind(base: str, model: str) -> str:
    """What the server is for, by one answer of one token and by its metrics."""
    body = {"model": model, "prompt": list(_PROBE_TOKENS), "max_tokens": 1}
    request = urllib.request.Request(
        f"{base}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            saved = (json.load(answer).get("kv_transfer_params") or {}).get("hidden_states_path")
        with urllib.request.urlopen(f"{base}/metrics", timeout=30) as answer:
            speculates = _COUNTERS.encode() in answer.read()
    except (OSError, ValueError, AttributeError) as error:
        raise StageError(
            f"It does not answer: {error}.",
            file=base,
            field="endpoint",
            remedy="Check that it is ready.",
            klass=SERVER_DIED,
        ) from None
    if saved:
        for path in (Path(str(saved)), Path(f"{saved}.lock")):
            with contextlib.suppress(OSError):
                path.unlink()
        return EXTRACTION
    return DRAFT if speculates else PLAIN
