"""Models from config.json: the same facts as the catalogue's, and errors in place of guesses."""

import json
from pathlib import Path
from typing import Any

import pytest

from optimizer import SpecError
from optimizer.profiles import load_catalogue, read_model_config
from optimizer.profiles.facts import ModelFacts
from optimizer.profiles.model_config import model_of_config
from optimizer.profiles.parameters import count_parameters

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280, "max_position_embeddings": 163840, "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000, "max_position_embeddings": 32768, "tie_word_embeddings": False,
    "sliding_window": None,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
    "num_hidden_layers": 24, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
    "num_experts_per_tok": 4, "experts_per_token": 4, "vocab_size": 201088, "max_position_embeddings": 131072,
    "sliding_window": 128, "tie_word_embeddings": False, "quantization_config": {"quant_method": "mxfp4"},
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152},
}  # fmt: skip
MAVERICK = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_attention_heads": 40, "num_hidden_layers": 48, "num_key_value_heads": 8, "head_dim": 128,
        "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
        "vocab_size": 202048,
        "max_position_embeddings": 1048576, "tie_word_embeddings": False,
    },
}  # fmt: skip
QWEN_3_5 = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text", "hidden_size": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 60,
        "num_key_value_heads": 2, "head_dim": 256, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "attn_output_gate": True, "vocab_size": 248320,
        "max_position_embeddings": 262144, "tie_word_embeddings": False,
    },
}  # fmt: skip
BIGCODE = {
    "model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 88, "n_inner": 24576,
    "multi_query": True,
    "vocab_size": 49152, "n_positions": 8192,
}  # fmt: skip
OPT = {
    "model_type": "opt", "hidden_size": 5120, "ffn_dim": 20480, "num_attention_heads": 40,
    "num_hidden_layers": 40,
    "vocab_size": 50272, "max_position_embeddings": 2048,
}  # fmt: skip
QWEN_2_5 = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
    "sliding_window": 131072, "max_window_layers": 28, "use_sliding_window": False,
    "tie_word_embeddings": False,
}  # fmt: skip

KNOWN: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": LLAMA, "deepseek-v3": DEEPSEEK, "mixtral-8x7b": MIXTRAL, "gpt-oss-20b": GPT_OSS,
    "gemma-3-27b": GEMMA_3, "llama-4-maverick": MAVERICK, "qwen3.5-397b-a17b": QWEN_3_5,
    "granite-34b-code": BIGCODE,
    "opt-13b": OPT, "qwen2.5-7b": QWEN_2_5,
}  # fmt: skip
"""Published config.json files (the keys that matter), by the catalogue's name of the model."""
ABOUT = {"name", "aliases", "note", "source", "as_of", "checked_against", "conflicts", "other_sources",
"repository",
         "parameters_b"}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_a_config_gives_the_facts_of_the_catalogue(name: str) -> None:
    found, listed = model_of_config(KNOWN[name]), load_catalogue().model(name)
    assert found.model_dump(exclude=ABOUT) == listed.model_dump(exclude=ABOUT)
    assert count_parameters(found) == count_parameters(listed)


def facts(**changes: Any) -> ModelFacts:
    return model_of_config({key: value for key, value in (LLAMA | changes).items() if value != "absent"})


def test_a_model_without_kv_heads_has_one_for_each_query_head() -> None:
    assert facts(num_key_value_heads="absent").kv_heads == 32


def test_windows_count_layer_by_layer() -> None:
    mistral = facts(model_type="mistral", sliding_window=4096)
    assert (mistral.growing_layers, mistral.window_layers) == (0, 32)
    gemma = facts(model_type="gemma2", sliding_window=4096)
    assert (gemma.growing_layers, gemma.window_layers) == (16, 16)
    assert facts(model_type="phi3", sliding_window=262144).window is None
    qwen = facts(model_type="qwen2", sliding_window=4096, use_sliding_window=True, max_window_layers=20)
    assert (qwen.growing_layers, qwen.window_layers) == (20, 12)


def test_dense_layers_among_experts_are_counted() -> None:
    moe = {
        "model_type": "qwen2_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 512,
    }
    for change, dense in (
        ({}, 0),
        ({"decoder_sparse_step": 2}, 16),
        ({"mlp_only_layers": [0, 5]}, 2),
        ({"first_k_dense_replace": 3}, 3),
        ({"moe_layer_freq": [0] * 4 + [1] * 28}, 4),
    ):
        experts = facts(**moe, **change).experts
        assert experts is not None
        assert experts.dense_layers == dense


@pytest.mark.parametrize(
    ("quantization", "checkpoint"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}},
         "fp8"),
        ({"quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}},
         "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
    ],
)  # fmt: skip
def test_the_format_of_the_weights_is_read(quantization: dict[str, Any], checkpoint: str) -> None:
    assert facts(quantization_config=quantization).checkpoint == checkpoint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "absent"}, "hidden_size: missing"),
        ({"num_hidden_layers": 3.5}, "num_hidden_layers: must be an integer, not 3.5"),
        ({"model_type": "mamba2"}, "model_type 'mamba2' is not understood"),
        ({"is_encoder_decoder": True}, "only decoders"),
        ({"ssm_cfg": {}}, "ssm_cfg: layers of this kind are not understood"),
        ({"layer_types": ["full_attention", "conv"], "sliding_window": 5},
        "layer_types: 'conv' is not understood"),
        ({"layer_types": ["full_attention", "conv"]}, "layer_types: 'conv' is not understood"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quantization_config: 'hqq' is not understood"),
        ({"num_key_value_heads": 0}, "kvHeads: must be at least 1, not 0"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        facts(**changes)


def test_a_file_or_its_folder_can_be_given(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for path in (folder, folder / "config.json", str(folder)):
        model = read_model_config(path)
        assert (model.name, model.layers) == ("my-model", 32)
    with pytest.raises(SpecError, match="no such file"):
        read_model_config(tmp_path / "other.json")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(SpecError, match="must be an object with keys, not a list"):
        read_model_config(tmp_path / "list.json")
