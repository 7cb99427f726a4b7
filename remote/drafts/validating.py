"""The rules over a draft's folder of this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Optional

from pipeline.plan.draft_rules.checks import check, not_judged
from pipeline.plan.draft_rules.facts import CONVENTIONS, Draft, Verifier
from pipeline.plan.draft_rules.finding import Finding
from pipeline.plan.draft_rules.folder import LocalFolder
from pipeline.plan.draft_rules.reading import read_draft, read_verifier
from pipeline.plan.draft_rules.view import MOST, OTHER, architecture, view
from remote.protocol.errors import BAD_ARGUMENT, FAILED, NOT_FOUND, RequestError
from remote.protocol.validation import DraftFinding, DraftValidation

Allowed = Optional[Callable[[str], None]]
"""Called with the real path of each file before it is read; raises where it may not be."""


def validate(
    path: str, verifier: Optional[str] = None, convention: Optional[str] = None, allowed: Allowed = None
) -> DraftValidation:
    """Validates the draft in a folder.

    :param path: absolute.
    :param verifier: the folder of the verifier that it is to be served with.
    :param convention: how the config's layer ids count; None where nobody has said.
    :raises RequestError: ``not_found`` or ``failed`` where a folder cannot be read, ``bad_argument``.
    """
    begin = time.monotonic()
    draft, their_config, bytes_read = facts(path, verifier, convention, allowed)
    findings = check(draft, their_config, convention)
    seen = view(draft)
    return DraftValidation(
        path=draft.path,
        format=draft.format,
        architecture=architecture(draft.config)[:MOST],
        tensors=len(draft.tensors),
        parameters=sum(math.prod(tensor.shape) for tensor in draft.tensors.values()),
        weight_bytes=sum(tensor.bytes for tensor in draft.tensors.values()),
        layer_ids=(seen.ids or seen.nested)[:MOST],
        vocabulary=seen.vocabulary,
        draft_vocabulary=seen.draft_vocabulary,
        verifier=their_config.path if their_config else None,
        findings=tuple(record(finding) for finding in findings),
        not_judged=not_judged(their_config),
        layers_checked=seen.family != OTHER,
        bytes_read=bytes_read,
        seconds=time.monotonic() - begin,
    )


def facts(
    path: str, verifier: Optional[str], convention: Optional[str], allowed: Allowed
) -> tuple[Draft, Optional[Verifier], int]:
    """The facts of both folders, and the bytes that were read for them.

    :raises RequestError: as ``validate``.
    """
    if convention is not None and convention not in CONVENTIONS:
        raise RequestError(BAD_ARGUMENT, f"layer ids count as one of {', '.join(CONVENTIONS)}, not {convention!r}")
    folder = LocalFolder(path, allowed)
    try:
        draft = read_draft(folder)
    except OSError as error:
        raise _failed(path, error) from None
    if not verifier:
        return draft, None, folder.bytes_read
    beside = LocalFolder(verifier, allowed)
    try:
        return draft, read_verifier(beside), folder.bytes_read + beside.bytes_read
    except OSError as error:
        raise _failed(f"{verifier}/config.json", error) from None
    except ValueError as error:
        raise RequestError(FAILED, f"{verifier}/config.json: {error}") from None


def record(finding: Finding) -> DraftFinding:
    """A finding as it goes over the wire."""
    rule = finding.rule
    return DraftFinding(
        rule.id,
        finding.level,
        rule.title,
        finding.evidence,
        rule.effect,
        rule.vllm,
        rule.remedy,
        rule.source,
        rule.fixable,
    )


def _failed(path: str, error: OSError) -> RequestError:
    if isinstance(error, FileNotFoundError):
        return RequestError(NOT_FOUND, f"there is no {path}")
    return RequestError(FAILED, f"{path} cannot be read: {error.strerror}")
