from __future__ import annotations

from typing import Any

import pytest

from pipeline.plan import draft_config
from pipeline.plan.draft_config import DraftConfigError
from pipeline.plan.safetensors import Header, TensorInfo

VERIFIER = {"bos_token_id": 1, "eos_token_id": [2, 7], "text_config": None}

TRAINED: dict[str, Any] = {
    "draft_vocab_size": 12,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "norm_before_residual": True,
    "norm_before_fc": True,
    "norm_output": True,
    "fc_norm": False,
    "transformer_layer_config": {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "vocab_size": 32,
        "layer_types": ["sliding_attention"],
        "sliding_window": 2048,
        "use_sliding_window": True,
        "bos_token_id": 99,
        "pad_token_id": None,
    },
}


def header(shapes: dict[str, tuple[int, ...]], **dtypes: str) -> Header:
    default = {"d2t": "I64", "t2d": "BOOL"}
    return Header(
        {name: TensorInfo(dtypes.get(name, default.get(name, "BF16")), shape, 0, 0) for name, shape in shapes.items()}
    )


def test_the_flat_config_names_the_layers_for_both_runners_of_vllm() -> None:
    config = draft_config.flat_config(TRAINED, VERIFIER)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert config["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [2, 4, 5], "use_aux_hidden_state": True}
    assert config["num_aux_hidden_states"] == 3
    assert (config["vocab_size"], config["draft_vocab_size"]) == (32, 12)
    assert config["torch_dtype"] == "bfloat16"
    assert config["norm_before_residual"] is True and config["norm_output"] is True
    assert config["tie_word_embeddings"] is False and config["use_cache"] is True


def test_special_tokens_are_the_verifiers() -> None:
    config = draft_config.flat_config(TRAINED, VERIFIER)
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, [2, 7])
    assert "pad_token_id" not in config
    nested = draft_config.flat_config(TRAINED, {"text_config": {"bos_token_id": 5}, "bos_token_id": 6})
    assert nested["bos_token_id"] == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eagle_aux_hidden_state_layer_ids": None}, "eagle_aux_hidden_state_layer_ids is missing"),
        ({"fc_norm": True}, "fc_norm"),
        ({"draft_vocab_size": True}, "draft_vocab_size is True"),
        ({"transformer_layer_config": {**TRAINED["transformer_layer_config"], "num_hidden_layers": 2}}, "not 1"),
        ({"transformer_layer_config": {**TRAINED["transformer_layer_config"], "model_type": "qwen3"}}, "qwen3"),
    ],
)
def test_what_the_flat_format_cannot_say_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DraftConfigError, match=words):
        draft_config.flat_config({**TRAINED, **change}, VERIFIER)


def test_names_of_the_flat_format() -> None:
    assert draft_config.flat_name("layers.0.self_attn.q_proj.weight") == "midlayer.self_attn.q_proj.weight"
    assert draft_config.flat_name("fc.weight") == "fc.weight"
    assert draft_config.flat_name("verifier_lm_head.weight") is None


def test_a_complete_draft_has_no_problems_with_and_without_the_embedding() -> None:
    config = draft_config.flat_config(TRAINED, VERIFIER)
    shapes = draft_config.required_tensors(config)
    assert shapes["fc.weight"] == (8, 24)
    assert shapes["midlayer.self_attn.q_proj.weight"] == (8, 16)
    assert shapes["midlayer.self_attn.k_proj.weight"] == (4, 16)
    assert draft_config.problems(config, header(shapes)) == []
    assert draft_config.problems(config, header({**shapes, "embed_tokens.weight": (32, 8)})) == []


def test_every_tensor_that_is_missing_is_named() -> None:
    config = draft_config.flat_config(TRAINED, VERIFIER)
    shapes = draft_config.required_tensors(config)
    for name in shapes:
        left = {other: shape for other, shape in shapes.items() if other != name}
        assert draft_config.problems(config, header(left)) == [f"{name} is missing"]


def test_wrong_shapes_types_and_strangers_are_named() -> None:
    config = draft_config.flat_config(TRAINED, VERIFIER)
    shapes = draft_config.required_tensors(config)
    wrong = {**shapes, "lm_head.weight": (32, 8), "model.norm.weight": (8,)}
    found = draft_config.problems(config, header(wrong, **{"fc.weight": "F32"}))
    assert found == [
        "model.norm.weight is no tensor of this draft",
        "lm_head.weight is [32, 8] and must be [12, 8]",
        "fc.weight is F32 and must be BF16",
    ]


def test_a_draft_with_the_whole_vocabulary_needs_no_mapping() -> None:
    config = draft_config.flat_config({**TRAINED, "draft_vocab_size": 32}, VERIFIER)
    assert not {"d2t", "t2d"} & set(draft_config.required_tensors(config))
