"""The stage ``vocab``: the draft's vocabulary, by how often the answers use each token."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from pipeline.plan import verifier_config
from pipeline.stages import verifying
from pipeline.stages.errors import StageError
from pipeline.stages.prepare import TOKEN_FREQUENCIES
from pipeline.stages.runtime import StageRun, execute


def run(spec_path: str) -> int:
    """Writes ``d2t-SIZE.npy`` (offsets) and ``t2d-SIZE.npy`` (booleans), where the trainer looks for them."""
    return execute(spec_path, _work)


def _work(stage: StageRun) -> None:
    prepared = stage.run.prepared
    size = int(stage.parameters["draft_vocab_size"])
    with stage.lock(stage.run.data):
        config = verifying.config(stage)
        if size > config.vocab_size:
            raise StageError(
                f"The draft's vocabulary of {size:,} tokens is larger than the verifier's of {config.vocab_size:,}.",
                file=os.path.join(config.path, verifier_config.FILE),
                field="vocab_size",
                remedy=f"Set draft_vocab_size to at most {config.vocab_size}.",
                klass="vocabulary",
            )
        inputs = {
            **stage.input_of(prepared / TOKEN_FREQUENCIES, "prepare"),
            **stage.input_of(Path(config.path) / verifier_config.FILE, maker=""),
        }
        if stage.fresh(inputs):
            return
        stage.phase("count")
        d2t, t2d, coverage = _mapping(prepared / TOKEN_FREQUENCIES, size, config.vocab_size)
        outputs = {
            prepared / f"d2t-{size}.npy": _save(prepared / f"d2t-{size}.npy", d2t),
            prepared / f"t2d-{size}.npy": _save(prepared / f"t2d-{size}.npy", t2d),
        }
        limit = float(stage.parameters["min_coverage"])
        stage.evidence("draft vocabulary", size, "tokens", int(t2d.sum()) == size == len(d2t))
        stage.evidence("token coverage", round(coverage, 5), "share", coverage >= limit)
        if coverage < limit:
            raise StageError(
                f"{size:,} tokens cover {coverage:.1%} of what the answers use, less than {limit:.1%}.",
                file=str(prepared / TOKEN_FREQUENCIES),
                remedy="Raise draft_vocab_size, or lower min_coverage.",
                klass="coverage",
            )
        stage.commit(inputs, outputs)


def _mapping(frequencies: Path, size: int, vocabulary: int) -> tuple[Any, Any, float]:
    """speculators' own mapping as arrays, and the share of the counted tokens that it holds."""
    torch = importlib.import_module("torch")
    mapping = importlib.import_module("speculators.train.vocab_mapping")
    counts = torch.load(frequencies, weights_only=True)
    if max(counts, default=0) >= vocabulary:
        raise StageError(
            f"It counts the token {max(counts)}, which a vocabulary of {vocabulary:,} does not have.",
            file=str(frequencies),
            remedy="Run prepare again with this verifier.",
        )
    d2t, t2d = mapping.build_vocab_mappings_from_distribution(counts, size, vocabulary)
    covered = sum(count for token, count in counts.items() if bool(t2d[token]))
    return d2t.numpy(), t2d.numpy(), covered / max(1, sum(counts.values()))


def _save(path: Path, array: Any) -> dict[str, Any]:
    numpy = importlib.import_module("numpy")
    partial = path.with_name(f".{path.name}.new")
    with open(partial, "wb") as file:
        numpy.save(file, array)
    os.replace(partial, path)
    return {"entries": len(array)}
