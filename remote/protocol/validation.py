"""What the rules say about a draft's folder (operations ``validate`` and ``fix_draft``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

LEVEL_ERROR = "error"
LEVEL_WARNING = "warning"
LEVEL_NOTE = "note"


@dataclass(frozen=True)
class DraftFinding:
    """One thing that a rule found.

    :param rule: its id, ``R1`` to ``R34``, or ``F1`` to ``F3`` about the files.
    :param level: ``error`` (refused, or of no use), ``warning`` (may be meant), ``note``.
    :param title: the defect, as a clause.
    :param evidence: what in the folder says so.
    :param effect: of the defect in vLLM: ``error``, ``silent`` or ``none``.
    :param vllm: what vLLM does, in words.
    :param remedy: what to do.
    :param source: where that is known from.
    :param fixable: ``fix_draft`` writes a copy without it.
    """

    rule: str
    level: str
    title: str
    evidence: str
    effect: str
    vllm: str
    remedy: str
    source: str
    fixable: bool = False


@dataclass(frozen=True)
class DraftValidation:
    """The rules over one folder.

    :param path: the folder on its host.
    :param format: ``flat`` or ``speculators``.
    :param parameters: values in all tensors together; ``weight_bytes`` what they take.
    :param layer_ids: of the verifier's states, as they stand in the config.
    :param verifier: the folder that it was compared with; None where none was given.
    :param findings: the gravest first.
    :param not_judged: rules that were judged in part or not at all for want of a verifier.
    :param layers_checked: the tensors of its layers were looked at; those of some architectures are not known here.
    :param bytes_read: of all files together.
    """

    path: str
    format: str
    architecture: str
    tensors: int
    parameters: int
    weight_bytes: int
    layer_ids: tuple[int, ...]
    vocabulary: Optional[int]
    draft_vocabulary: Optional[int]
    verifier: Optional[str]
    findings: tuple[DraftFinding, ...] = ()
    not_judged: tuple[str, ...] = ()
    layers_checked: bool = True
    bytes_read: int = 0
    seconds: float = 0.0

    @property
    def errors(self) -> tuple[DraftFinding, ...]:
        return tuple(finding for finding in self.findings if finding.level == LEVEL_ERROR)


@dataclass(frozen=True)
class DraftFix:
    """A corrected copy.

    :param source: the folder that was validated; it is as it was.
    :param target: the copy.
    :param changes: what differs, a sentence each.
    :param copied: bytes that were copied; weights are shared with the source where the file system can.
    :param validation: of the copy.
    """

    source: str
    target: str
    changes: tuple[str, ...]
    copied: int
    validation: DraftValidation
