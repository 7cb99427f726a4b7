"""Made-up verifiers with prepared data for ``bench.train_gpu``: of Kimi-K2.5's size, and with a language to learn."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.plan.training import Data

FILES = 64
"""Files of hidden states that differ; the others are hard links to them."""

SUCCESSORS = 4


@dataclass(frozen=True)
class Size:
    """A verifier and its data. ``language`` gives the states a meaning; without, they are noise."""

    name: str
    hidden: int
    vocabulary: int
    draft_vocabulary: int
    heads: int
    inner: int
    length: int
    samples: int
    share: float = 0.9
    language: bool = False

    @property
    def data(self) -> Data:
        return Data(self.samples, self.samples * self.length, self.length)


STORY = Size("story", 7168, 163_840, 32_000, 64, 18_432, 512, 1024, share=0.98)
LANGUAGE = Size("language", 2048, 32_000, 8192, 16, 5632, 512, 640, language=True)
TINY = Size("tiny", 64, 512, 128, 4, 128, 64, 96, language=True)


def make(folder: Path, size: Size) -> tuple[Path, Path]:
    """The folders of the verifier and of the data set; what is there already is used."""
    import torch

    verifier, data = folder / f"verifier_{size.name}", folder / f"data_{size.name}"
    if (data / "state.json").exists():
        return verifier, data
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    embedding, head = _verifier(verifier, size, device)
    _data(data, size, embedding, head, device)
    return verifier, data


def _verifier(folder: Path, size: Size, device: str) -> tuple[Any, Any]:
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": size.hidden,
        "vocab_size": size.vocabulary,
        "intermediate_size": size.inner,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads,
        "head_dim": size.hidden // size.heads,
        "num_hidden_layers": 61,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 50_000.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    Tokenizer(models.WordLevel({f"t{number}": number for number in range(size.vocabulary)}, unk_token="t0")).save(
        str(folder / "tokenizer.json")
    )
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "t2", "unk_token": "t0"})
    )
    shape = (size.vocabulary, size.hidden)
    embedding = torch.randn(shape, device=device, dtype=torch.bfloat16) * 0.02
    head = torch.randn(shape, device=device, dtype=torch.bfloat16) * (size.hidden**-0.5 if size.language else 0.02)
    weights = {
        "model.embed_tokens.weight": embedding.cpu(),
        "lm_head.weight": head.cpu(),
        "model.norm.weight": torch.ones(size.hidden, dtype=torch.bfloat16),
    }
    save_file(weights, str(folder / "model.safetensors"), {"format": "pt"})
    return embedding, head


def _data(folder: Path, size: Size, embedding: Any, head: Any, device: str) -> None:
    import numpy
    import torch
    from datasets import Dataset  # type: ignore[import-not-found]
    from safetensors.torch import save_file

    states = folder / "hidden_states"
    states.mkdir(parents=True, exist_ok=True)
    different = size.samples if size.language else FILES
    successors = torch.randint(3, size.draft_vocabulary, (size.draft_vocabulary, SUCCESSORS), device=device)
    weights = torch.tensor([0.8, 0.12, 0.05, 0.03], device=device)
    rows = []
    for index in range(different):
        if size.language:
            tokens = _walk(successors, weights, size.length)
            layers = _speaking(tokens, successors, weights, embedding, head)
        else:
            tokens = torch.randint(3, size.draft_vocabulary, (size.length,), device=device)
            layers = torch.randn(size.length, 4, size.hidden, device=device, dtype=torch.bfloat16)
        save_file({"hidden_states": layers.cpu(), "token_ids": tokens.cpu()}, str(states / f"hs_{index}.safetensors"))
        rows.append(tokens.tolist())
    for index in range(different, size.samples):
        os.link(states / f"hs_{index % different}.safetensors", states / f"hs_{index}.safetensors")
    mask = [0] * (size.length // 8) + [1] * (size.length - size.length // 8)
    columns = {
        "input_ids": [rows[index % different] for index in range(size.samples)],
        "loss_mask": [mask] * size.samples,
        "seq_len": [size.length] * size.samples,
    }
    marked = numpy.arange(size.vocabulary) < size.draft_vocabulary
    numpy.save(folder / f"t2d-{size.draft_vocabulary}.npy", marked)
    numpy.save(folder / f"d2t-{size.draft_vocabulary}.npy", numpy.zeros(size.draft_vocabulary, dtype=numpy.int64))
    Dataset.from_dict(columns).with_format("torch").save_to_disk(str(folder))


def _walk(successors: Any, weights: Any, length: int) -> Any:
    """A sentence: each token is one of four that may follow the one before it."""
    import torch

    table, ways = successors.cpu(), torch.multinomial(weights.cpu(), length, replacement=True).tolist()
    tokens = [int(torch.randint(3, len(table), (1,)))]
    for way in ways[1:]:
        tokens.append(int(table[tokens[-1], way]))
    return torch.tensor(tokens, device=successors.device)


def _speaking(tokens: Any, successors: Any, weights: Any, embedding: Any, head: Any) -> Any:
    """States of a verifier that knows what may follow: the last points at it, the others at tokens, with noise."""
    import torch

    said = (head[successors[tokens]].float() * weights.log().exp()[None, :, None]).sum(1)
    seen = embedding[tokens].float() * 50
    noise = torch.randn_like(seen)
    layers = [seen + 0.1 * noise, seen.roll(1, 0) + 0.1 * noise, seen + said, said]
    return torch.stack(layers, 1).to(torch.bfloat16).contiguous()
