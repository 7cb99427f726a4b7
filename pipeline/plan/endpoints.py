"""Whether a server that runs already is the one that a stage needs: by the parameters of the job that serves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional
from urllib.parse import urlsplit

from pipeline.plan.commands import DRAFT, EXTRACTION, PLAIN

LOOPBACK = ("127.0.0.1", "localhost", "::1")

ENDPOINTS: Mapping[str, Mapping[str, str]] = {
    "synthesize": {PLAIN: "endpoint", EXTRACTION: "endpoint"},
    "extract": {EXTRACTION: "endpoint"},
    "bench": {PLAIN: "plain_endpoint", DRAFT: "draft_endpoint"},
    "prepare": {},
}
"""The parameter of a stage that takes the place of its own server of a kind."""

WORDS = {
    PLAIN: "a plain server",
    EXTRACTION: "an extraction server",
    DRAFT: "a server with a draft",
}


def port_of(endpoint: str) -> Optional[int]:
    """The port of a URL on this host's loopback; None for another host."""
    try:
        parts = urlsplit(endpoint)
        return (parts.port or 80) if parts.hostname in LOOPBACK else None
    except ValueError:
        return None


def disagreement(wanted: Mapping[str, Any], served: Mapping[str, Any]) -> str:
    """Why a server is not what a stage needs, a clause; empty where it is.

    :param wanted, served: parameters of the stage ``serve``: kind, verifier, layers, draft, speculative_tokens. What
        the wish leaves open is not compared.
    """
    kind, found = wanted.get("kind") or PLAIN, served.get("kind") or PLAIN
    if kind != found:
        return f"it is {WORDS.get(found, found)}, and {WORDS[kind]} is needed (serve kind={kind})"
    for name, words in (
        ("verifier", "model"),
        ("layers", "layers"),
        ("draft", "draft"),
        ("speculative_tokens", "speculative_tokens"),
    ):
        if wanted.get(name) is not None and wanted[name] != served.get(name):
            return f"its {words} is {served.get(name)}, and {wanted[name]} is needed"
    return ""
