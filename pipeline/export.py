"""A trained checkpoint as a draft in the flat format: written beside its place, checked by its header, then renamed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from pipeline.plan import draft_config
from pipeline.plan.draft_config import EMBEDDING
from pipeline.plan.draft_rules.catalogue import WARNING
from pipeline.plan.draft_rules.checks import check, errors
from pipeline.plan.draft_rules.facts import VLLM
from pipeline.plan.draft_rules.finding import Finding
from pipeline.plan.draft_rules.folder import LocalFolder
from pipeline.plan.draft_rules.reading import read_draft, read_verifier
from pipeline.plan.safetensors import HeaderError, read_header

MODEL = "model.safetensors"
CONFIG = "config.json"
INDEX = "model.safetensors.index.json"

_EMBEDDING_SUFFIX = "embed_tokens.weight"
_MAPPING = ("d2t", "t2d")


class ExportError(ValueError):
    """The checkpoint cannot be exported. ``file`` and ``field`` say what it is about."""

    def __init__(self, cause: str, file: str, field: str = "") -> None:
        super().__init__(f"{file}{': ' + field if field else ''}: {cause}")
        self.cause, self.file, self.field = cause, file, field


@dataclass(frozen=True)
class Exported:
    """What was written: the flat config, the number of tensors, and the bytes of the weights.

    :param doubts: what the rules of ``pipeline.plan.draft_rules`` warn of.
    """

    config: dict[str, Any]
    tensors: int
    bytes: int
    doubts: tuple[Finding, ...] = ()


def export(checkpoint: Path, target: Path, verifier: Path, full: bool) -> Exported:
    """Writes the draft to ``target``, which must not be there.

    :param full: with the verifier's embedding, for engines that do not share it with the draft.
    :raises ExportError: when the checkpoint or the verifier lacks something, or holds what no draft may hold.
    :raises OSError: when files cannot be read or written; nothing is left at ``target`` then.
    """
    config = _config(checkpoint, verifier)
    temporary = target.with_name(f".{target.name}.partial.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        _write_weights(checkpoint, temporary / MODEL, verifier if full else None, config)
        (temporary / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        exported = verify(temporary, verifier)
        _sync(temporary)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return exported


def verify(folder: Path, verifier: Path) -> Exported:
    """Checks an export by its config, its weights' header, and the rules for drafts.

    :param verifier: the folder of the verifier that it is for.
    :raises ExportError: naming the first thing that is wrong. :raises OSError: when it cannot be read.
    """
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        header = read_header(str(folder / MODEL))
        wrong = draft_config.problems(config, header)
    except HeaderError as error:
        raise ExportError(str(error), str(folder / MODEL)) from None
    except (ValueError, TypeError, KeyError) as error:
        raise ExportError(str(error), str(folder / CONFIG)) from None
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ExportError(f"{wrong[0]}{more}", str(folder / MODEL))
    doubts = _doubts(folder, verifier)
    return Exported(config, len(header.tensors), (folder / MODEL).stat().st_size, doubts)


def _doubts(folder: Path, verifier: Path) -> tuple[Finding, ...]:
    """The warnings of the rules.

    :raises ExportError: for their first error.
    """
    beside = read_verifier(LocalFolder(str(verifier)))
    findings = check(read_draft(LocalFolder(str(folder))), beside, VLLM)
    for finding in errors(findings):
        raise ExportError(f"{finding.id}: {finding.rule.title} ({finding.evidence})", str(folder))
    return tuple(finding for finding in findings if finding.level == WARNING)


def find_tensor(folder: Path, suffix: str) -> Optional[tuple[Path, str]]:
    """The file and full name of a model's tensor whose name ends so, in any layout of shards; None where it has none.

    :raises OSError: when the files cannot be read. :raises HeaderError: when a file is cut.
    """
    index = folder / INDEX
    if index.exists():
        names = json.loads(index.read_bytes())["weight_map"]
        return next(((folder / file, name) for name, file in sorted(names.items()) if _ends(name, suffix)), None)
    for file in sorted(folder.glob("*.safetensors")):
        for name in sorted(read_header(str(file)).tensors):
            if _ends(name, suffix):
                return file, name
    return None


def _config(checkpoint: Path, verifier: Path) -> dict[str, Any]:
    path = checkpoint / CONFIG
    try:
        trained = json.loads(path.read_bytes())
        models = json.loads((verifier / CONFIG).read_bytes())
    except ValueError as error:
        raise ExportError(f"it is not JSON ({error})", str(path)) from None
    try:
        return draft_config.flat_config(trained, models)
    except draft_config.DraftConfigError as error:
        raise ExportError(str(error), str(path)) from None


def _write_weights(checkpoint: Path, path: Path, verifier: Optional[Path], config: dict[str, Any]) -> None:
    import torch
    from safetensors import safe_open  # type: ignore[import-not-found]
    from safetensors.torch import save_file  # type: ignore[import-not-found]

    tensors: dict[str, Any] = {}
    with safe_open(str(checkpoint / MODEL), framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            flat = draft_config.flat_name(name)
            if flat is None or flat == EMBEDDING:
                continue
            tensor = file.get_tensor(name)
            tensors[flat] = tensor if flat in _MAPPING else _sound(tensor.to(torch.bfloat16), name, checkpoint / MODEL)
    if "d2t" in tensors:
        _check_mapping(tensors, checkpoint / MODEL)
    if config["draft_vocab_size"] == config["vocab_size"]:
        tensors = {name: tensor for name, tensor in tensors.items() if name not in _MAPPING}
    if verifier is not None:
        found = find_tensor(verifier, _EMBEDDING_SUFFIX)
        if found is None:
            raise ExportError(f"no tensor's name ends in {_EMBEDDING_SUFFIX}", str(verifier))
        with safe_open(str(found[0]), framework="pt") as file:
            tensors[EMBEDDING] = file.get_tensor(found[1]).to(torch.bfloat16)
    save_file({name: tensor.contiguous() for name, tensor in sorted(tensors.items())}, str(path), {"format": "pt"})


def _sound(tensor: Any, name: str, file: Path) -> Any:
    """The tensor, if it holds what a trained draft can hold: vLLM serves any other without a word."""
    if not bool(tensor.isfinite().all()):
        raise ExportError("it holds values that are no finite numbers", str(file), name)
    if not bool(tensor.any()):
        raise ExportError("it holds nothing but zeros", str(file), name)
    return tensor


def _check_mapping(tensors: dict[str, Any], file: Path) -> None:
    """The mapping holds offsets: draft token i is the verifier's token i + d2t[i], the i-th that t2d marks."""
    import torch

    d2t, t2d = tensors["d2t"], tensors.get("t2d")
    if t2d is None or not torch.equal(torch.arange(len(d2t)) + d2t, t2d.nonzero().flatten()):
        raise ExportError("it does not belong to t2d: offsets to the marked tokens are needed", str(file), "d2t")


def _ends(name: str, suffix: str) -> bool:
    return name == suffix or name.endswith(f".{suffix}")


def _sync(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
