"""Models from config.json: the same facts as the catalogue's, and errors in place of guesses."""

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from builders import LLAMA

from optimizer import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.formats import weight_format
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.memory import Memory
from optimizer.profiles.model_config import model_of_config, read_model_config

DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280, "max_position_embeddings": 163840, "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8"},
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


@pytest.mark.parametrize("name", KNOWN)
def test_a_config_gives_the_layers_of_the_catalogue(name: str) -> None:
    found, listed = model_of_config(KNOWN[name]), load_catalogue().model(name)
    assert found.layers == listed.layers
    assert found.parameters == listed.parameters


def facts(**changes: Any) -> ModelFacts:
    return model_of_config({key: value for key, value in (LLAMA | changes).items() if value != "absent"})


def kinds(model: ModelFacts) -> list[tuple[int, str]]:
    """Return the number of layers of each kind of cache."""
    return [(layer.count, " + ".join(cache.type for cache in layer.caches)) for layer in model.layers]


def bytes_per_parameter(model: ModelFacts, use: str = "dense") -> set[float]:
    return {item.size for item in weight_format(model).of(use)}


def weights_gb(model: ModelFacts) -> float:
    h100 = load_catalogue().accelerator("H100")
    return Memory(Iterations(model, h100, Deployment())).weight_bytes / 1e9


def test_a_model_without_kv_heads_has_one_for_each_query_head() -> None:
    assert facts(num_key_value_heads="absent").layers[0].kv_heads == 32
    with pytest.raises(SpecError, match="num_key_value_heads: missing"):
        facts(model_type="qwen3", num_key_value_heads="absent")


def test_windows_are_read_layer_by_layer() -> None:
    assert kinds(facts(model_type="mistral", sliding_window=4096)) == [(32, "window")]
    assert kinds(facts(model_type="mistral", sliding_window=None)) == [(32, "grows")]
    assert kinds(facts(model_type="gemma2", sliding_window=4096)) == [(16, "window"), (16, "grows")]
    assert kinds(facts(model_type="phi3", sliding_window=262144)) == [(32, "grows")]
    qwen = facts(model_type="qwen2", sliding_window=4096, use_sliding_window=True, max_window_layers=20)
    assert kinds(qwen) == [(20, "grows"), (12, "window")]
    exaone = facts(model_type="exaone4", sliding_window=4096, sliding_window_pattern="LLLG")
    assert kinds(exaone) == [(24, "window"), (8, "grows")]
    with pytest.raises(SpecError, match="sliding_window = 4096: no key says which layers have this window"):
        facts(sliding_window=4096)
    with pytest.raises(SpecError, match=r"layer_types = .* contradicts sliding_window_pattern = 3"):
        facts(layer_types=["full_attention"] * 32, sliding_window_pattern=3, model_type="gemma3_text")


GEMMA_4 = {
    "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_attention_heads": 32,
    "num_hidden_layers": 60, "num_key_value_heads": 16, "head_dim": 256, "sliding_window": 1024,
    "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "vocab_size": 262144,
}  # fmt: skip


def test_keys_of_single_layers_replace_those_of_all() -> None:
    listed = model_of_config(GEMMA_4 | {"global_head_dim": 512, "num_global_key_value_heads": 4})
    own = {f"{i:02}": {"head_dim": 512, "num_key_value_heads": 4} for i in range(5, 60, 6)}
    assert model_of_config(GEMMA_4 | {"per_layer_config": own}).layers == listed.layers
    assert model_of_config(GEMMA_4 | {"per_layer_config": {}}).layers[-1].width == 256
    for wrong, message in (
        ({"60": {}}, "must be an object with a key for some of the 60 layers"),
        ({"5": 512}, "the keys of each layer must be an object"),
        ({"5": {"skip": ["attention"]}}, "skip: this key is not known"),
    ):
        with pytest.raises(SpecError, match=message):
            model_of_config(GEMMA_4 | {"per_layer_config": wrong})


def test_layers_without_positions_are_those_without_chunks() -> None:
    text: dict[str, Any] = MAVERICK["text_config"]  # type: ignore[assignment]
    expected = kinds(model_of_config(text))
    assert kinds(model_of_config(text | {"no_rope_layer_interval": 4})) == expected
    assert kinds(model_of_config(text | {"no_rope_layers": []})) == expected
    with pytest.raises(SpecError, match="contradicts no_rope_layer_interval = 3"):
        model_of_config(text | {"no_rope_layers": [1, 1, 1, 0] * 12, "no_rope_layer_interval": 3})


def test_facts_of_layers_that_a_model_lacks_have_no_effect() -> None:
    mamba = {
        "model_type": "granitemoehybrid", "num_local_experts": 0, "num_experts_per_tok": 0,
        "shared_intermediate_size": 14336, "layer_types": ["mamba"] * 32, "mamba_n_heads": 128,
        "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4,
    }  # fmt: skip
    assert kinds(facts(**mamba)) == [(32, "state")]


DBRX = {
    "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
    "vocab_size": 100352, "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}  # fmt: skip
MPT = {
    "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "max_seq_len": 2048,
    "vocab_size": 50432, "expansion_ratio": 4,
    "attn_config": {"alibi": True, "attn_type": "multihead_attention"},
}  # fmt: skip
LING = {
    "model_type": "bailing_moe", "first_k_dense_replace": 1, "hidden_size": 4096, "intermediate_size": 9216,
    "moe_intermediate_size": 1024, "num_experts_per_tok": 8, "num_attention_heads": 32, "num_experts": 256,
    "num_hidden_layers": 32, "num_key_value_heads": 4, "head_dim": 128, "num_shared_experts": 1,
    "vocab_size": 157184,
}  # fmt: skip
MOONLIGHT = {
    "model_type": "deepseek_v3", "hidden_size": 2048, "intermediate_size": 11264,
    "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
    "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 163840, "tie_word_embeddings": False,
}  # fmt: skip
STEP_3 = {
    "model_type": "step3_vl",
    "text_config": {
        "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64, "num_attention_groups": 1,
        "num_hidden_layers": 61, "max_seq_len": 65536, "vocab_size": 128815, "moe_intermediate_size": 5120,
        "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "share_q_dim": 2048, "head_dim": 256,
        "moe_layers_enum": ",".join(map(str, range(4, 60))),
    },
}  # fmt: skip
STEP_3_5 = {
    "model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45,
    "max_position_embeddings": 262144, "vocab_size": 128896, "num_attention_heads": 64,
    "num_attention_groups": 8, "head_dim": 128, "moe_num_experts": 288, "moe_top_k": 8,
    "moe_intermediate_size": 1280, "share_expert_dim": 1280, "sliding_window": 512,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 12, "num_nextn_predict_layers": 3,
    "moe_layers_enum": ",".join(map(str, range(3, 45))),
    "attention_other_setting": {
        "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8,
        "head_dim": 128, "true_head_dim": 128,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions", "growing_numbers"),
    [  # sources: model cards; 2 x KV heads x width in each layer that grows
        (DBRX, 132, 40 * 2 * 8 * 128),
        (MPT, 6.7, 32 * 2 * 32 * 128),
        (LING, 103, 32 * 2 * 4 * 128),
        (LING | {"model_type": "bailing_moe_linear", "layer_group_size": 8}, 104, 4 * 2 * 4 * 128),
        (MOONLIGHT, 15.96, 0),
        (STEP_3, 316, 61 * 2 * 256),
        (STEP_3_5, 196, 12 * 2 * 8 * 128),
    ],
    ids=["dbrx", "mpt", "ling", "ring-linear", "moonlight", "step-3", "step-3.5"],
)
def test_sizes_in_nested_objects_are_read(
    config: dict[str, Any], billions: float, growing_numbers: int
) -> None:
    model = model_of_config(config)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    rows = [(layer.count, cache) for layer in model.layers for cache in layer.caches if cache.type == "grows"]
    assert sum(count * cache.numbers * cache.heads for count, cache in rows) == growing_numbers


@pytest.mark.parametrize(
    ("kind", "changes", "key", "value"),
    [  # values that the class supplies, so that files leave them out
        ("ernie4_5", {"num_attention_heads": 16}, "head_dim", 128),
        ("glm4_moe", {"n_routed_experts": 8, "moe_intermediate_size": 512}, "first_k_dense_replace", 1),
        ("hy_v3", {"num_experts": 8, "moe_intermediate_size": 512}, "mlp_layer_types",
         ["dense"] + ["sparse"] * 31),
        ("gemma4_unified_text", {}, "sliding_window", 1024),
        ("phi4_multimodal", {}, "num_key_value_heads", 8),
        ("mamba2", {"num_heads": 128, "head_dim": 64, "n_groups": 8}, "state_size", 128),
        ("qwen2_moe", {"num_experts": 8, "moe_intermediate_size": 512},
         "shared_expert_intermediate_size", 5632),
        ("gemma4_unified_text", {}, "hidden_size_per_layer_input", 0),
        ("deepseek_v3", DEEPSEEK | {"quantization_config": None}, "first_k_dense_replace", 3),
        ("deepseek_v2", DEEPSEEK | {"quantization_config": None}, "q_lora_rank", 1536),
    ],
)  # fmt: skip
def test_the_class_supplies_values_that_a_file_leaves_out(
    kind: str, changes: dict[str, Any], key: str, value: object
) -> None:
    base = {"first_k_dense_replace": 3} if kind == "deepseek_v2" else {}
    stated = LLAMA | changes | base | {"model_type": kind, key: value}
    absent = {name: item for name, item in stated.items() if name != key}
    assert model_of_config(absent).layers == model_of_config(stated).layers


def test_compressed_caches_are_read_only_with_their_sizes() -> None:
    with pytest.raises(SpecError, match="o_lora_rank: missing; compressed caches"):
        facts(compress_ratios=[4] * 32)


def test_unknown_keys_of_nested_objects_are_errors() -> None:
    with pytest.raises(SpecError, match=r"attn_config.heads = 3: this key is not known"):
        model_of_config(MPT | {"attn_config": {"heads": 3}})
    with pytest.raises(SpecError, match=r"attn_config.attn_type = multiquery.*: must be multihead_attention"):
        model_of_config(MPT | {"attn_config": {"attn_type": "multiquery_attention"}})
    with pytest.raises(SpecError, match=r"attn_config = 3: must be an object"):
        model_of_config(MPT | {"attn_config": 3})


def test_dense_layers_among_experts_are_found() -> None:
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
        ({"mlp_layer_types": ["dense"] * 5 + ["sparse"] * 27}, 5),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 16),
        ({"moe_layers_enum": "4,5,6"}, 29),
    ):
        model = facts(**moe, **change)
        assert sum(layer.count for layer in model.layers if layer.experts is None) == dense


def test_missing_experts_per_token_stop_only_token_times() -> None:
    model = facts(model_type="mixtral", num_local_experts=8)
    iterations = Iterations(model, load_catalogue().accelerator("H100"), Deployment())
    assert Memory(iterations).request_bytes(1000) > 0
    with pytest.raises(SpecError, match="num_experts_per_tok: missing; token times need it"):
        iterations.decode_ms(1, 1000)


def test_an_unknown_type_is_read_as_ordinary_layers_and_says_so() -> None:
    model = facts(model_type="newcomer")
    assert model.assumed
    assert model.notes == (
        "model_type 'newcomer' is not known; read as 32 layers: 32 with GQA 32/8 x 128, dense 14,336",
    )
    assert model.layers == facts().layers
    with pytest.raises(SpecError, match="auto_map names code of its own"):
        facts(model_type="newcomer", auto_map={"AutoModel": "modeling_newcomer.Newcomer"})
    with pytest.raises(
        SpecError, match=r"compress_ratios .* only for some model types; model_type 'newcomer'"
    ):
        facts(model_type="newcomer", compress_ratios=[4] * 32)


def test_unknown_keys_are_errors_with_ways_out() -> None:
    config = LLAMA | {"num_engrams": 12}
    with pytest.raises(
        SpecError,
        match=r"num_engrams = 12: .* --ignore-key num_engrams if it has no effect on the memory; or state",
    ):
        model_of_config(config)
    assert model_of_config(config, ignored=["num_engrams"]).layers == facts().layers
    known = model_of_config(config, sizes_known=True)
    assert known.notes == ("num_engrams = 12: this key is not known and may have an effect",)
    zamba = LLAMA | {"model_type": "zamba2"}
    with pytest.raises(
        SpecError, match=r"model_type = zamba2: only decoder models.* --cache-per-token BYTES"
    ):
        model_of_config(zamba)
    assert model_of_config(zamba, sizes_known=True).assumed


def test_all_unknown_keys_are_named_at_once() -> None:
    config = LLAMA | {"num_engrams": 12, "router_depth": 4, "attn_magic": True, "attn_scale": 0.1}
    with pytest.raises(
        SpecError, match="num_engrams = 12, router_depth = 4, attn_magic = True: these 3"
    ) as one:
        model_of_config(config)
    assert "--ignore-key num_engrams --ignore-key router_depth --ignore-key attn_magic if they" in str(
        one.value
    )
    broken = config | {"auto_map": {"a": "b"}, "model_type": "newcomer", "num_key_value_heads": 2.5}
    with pytest.raises(SpecError, match=r"num_key_value_heads = 2\.5") as other:
        model_of_config(broken)
    for name in (
        "auto_map",
        "num_engrams",
        "router_depth",
        "attn_magic",
        "--weight-size",
        "--cache-per-token",
    ):
        assert name in str(other.value)
    assert "attn_scale" not in str(other.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"attn_output_multiplier": 0.09, "max_attn_value": 30.0, "attn_logit_softcap": 30.0},  # Grok
        {
            "is_llama_config": True,
            "rope_interleaved": False,
            "transformers.js_config": {"dtype": "q4"},
        },  # SmolLM
        {"full_attn_mod": 1, "interpolate_factor": 1},  # Phi-4 mini
        {
            "use_flash_attn": True,
            "fused_rms_norm": True,
            "attn_backend": "fa3",
            "moe_implementation": "grouped",
        },
        {"mtp_loss_scaling_factor": 0.1, "embedding_scale": 64.0, "mask_token_id": 7, "resid_dropout": 0.1},
    ],
)
def test_scale_factors_and_kernels_are_harmless(keys: dict[str, Any]) -> None:
    assert facts(**keys).layers == facts().layers


@pytest.mark.parametrize("keys", [{"ffn_dim_multiplier": 1.3}, {"kv_scale_dim": 8}, {"expert_multiplier": 2}])
def test_factors_of_sizes_are_not_harmless(keys: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="not known and may change the memory"):
        facts(**keys)


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["total_ut_steps", "loop_num", "mean_recurrence", "layer_repeats"])
def test_keys_that_repeat_layers_are_never_offered_as_harmless(key: str) -> None:
    with pytest.raises(SpecError, match="multiplies the cache; state the sizes") as refused:
        facts(**{key: 4})
    assert "--ignore-key" not in str(refused.value)
    with pytest.raises(SpecError, match=f"--ignore-key {key}: .* multiplies the cache"):
        model_of_config(LLAMA | {key: 4}, ignored=[key])
    assert model_of_config(LLAMA | {key: 4}, ignored=[key], sizes_known=True).layers == facts().layers
    assert facts(**{key: 1}).layers == facts().layers


@pytest.mark.parametrize(
    "change",
    [
        {"index_topk": 1024, "model_type": "newcomer"},
        {"layer_types": ["full_attention", "sparse_block_attention"] * 16},
        {"num_hidden_layers": None},
        {"num_attention_heads": 0},
        {"text_config": 3},
        {"model_type": "t5", "is_encoder_decoder": True, "d_ff": 1},
        {"num_experts": 8, "num_experts_per_tok": 16, "moe_intermediate_size": 64},
    ],
)
def test_every_refusal_yields_to_stated_sizes(change: dict[str, Any]) -> None:
    config = LLAMA | change
    with pytest.raises(SpecError, match="--weight-size GB and --cache-per-token BYTES"):
        model_of_config(config)
    model = model_of_config(config, sizes_known=True)
    assert model.assumed
    assert (model.hidden, model.vocab) == (LLAMA["hidden_size"], LLAMA["vocab_size"])


# --- formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantization", "checkpoint", "size"),
    [
        ({"quant_method": "fp8"}, "fp8", 1),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 128**2),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 1),
        ({"quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}},
         "fp8", 1),
        ({"quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
         "int4", 0.5625),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, "fp4", 0.5625),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 0.5625),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "int3", 3 / 8 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"lm_head": {}}},
         "int4", 0.5 + 2.5 / 128),
        ({"quant_method": "quark", "exclude": ["lm_head"],
          "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, "mxfp4", 0.53125),
        ({"quant_method": "quark", "exclude": ["lm_head"],
          "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "group_size": None}}}, "fp8", 1),
    ],
)  # fmt: skip
def test_the_format_of_the_weights_is_read(
    quantization: dict[str, Any], checkpoint: str, size: float
) -> None:
    model = facts(quantization_config=quantization)
    assert (model.checkpoint, bytes_per_parameter(model)) == (checkpoint, {size})
    assert bytes_per_parameter(model, "embedding") == {2}


def test_formats_follow_groups_and_patterns() -> None:
    groups = {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
        "group_1": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    }
    quantization = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    model = facts(quantization_config=quantization)
    forms = {matrix.module.split(".")[0]: matrix.form for matrix in model.layers[0].matrices}
    assert forms == {"self_attn": "fp8", "mlp": "fp4"}
    ignored = quantization | {
        "ignore": ["lm_head", "model.layers.0.self_attn*", "model.layers.31.mlp.down_proj"]
    }
    first, middle, last = facts(quantization_config=ignored).layers
    assert (first.count, middle.count, last.count) == (1, 30, 1)
    assert [matrix.form for matrix in first.matrices] == ["bf16"] * 4 + ["fp4"] * 3
    assert [matrix.form for matrix in last.matrices] == ["fp8"] * 4 + ["fp4"] * 2 + ["bf16"]
    pattern = {"ignore": ["lm_head", "model.layers.3.mlp.shared_experts.up_proj"]}
    assert "names no module" in facts(quantization_config=quantization | pattern).unknown_weights


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config_groups": {"g": {"targets": ["re:.*attnn.*"], "weights": {"num_bits": 4, "type": "int"}}}},
         "'re:.*attnn.*' names no module"),
        ({"config_groups": {"g": {"weights": {"num_bits": 3, "type": "int"}}}}, "num_bits = 3"),
        ({"ignore": ["re:("]}, "not a regular expression"),
        ({"config_groups": {"g": {"targets": [], "weights": {"num_bits": 4, "type": "int"}}}},
         "targets = []: must name modules"),
        ({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": "x"}}}},
         "group_size = x: must be an integer"),
        ({"config_groups": None}, "config_groups: missing; no group states a format"),
        ({"quant_method": "awq", "config_groups": None}, "bits or w_bit: missing"),
        ({"quant_method": "bitsandbytes", "config_groups": None},
         "load_in_4bit: neither this nor load_in_8bit is true"),
        ({"quant_method": "quark", "config_groups": None,
          "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}},
          "layer_quant_config": {"*.k_proj": {"weight": {"dtype": "int8"}}}}, "weights of single layers"),
        ({"strange": 1}, "strange = 1: this key is not known"),
        ({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}},
          "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}},
         "layers.0.mlp.up_proj is in groups of different formats"),
    ],
)  # fmt: skip
def test_unknown_quantisation_stops_only_weights(change: dict[str, Any], message: str) -> None:
    base: dict[str, Any] = {"quant_method": "compressed-tensors", "config_groups": {
        "g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}}}  # fmt: skip
    if "quantized_layers" in change:
        change["config_groups"]["g"]["targets"] = ["re:.*mlp.*"]
    model = facts(quantization_config=base | change)
    with pytest.raises(SpecError, match=re.escape(message)):
        weight_format(model)
    assert weight_format(model, "fp8").name == "fp8"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "absent"}, "hidden_size or n_embd or d_model: missing"),
        ({"num_hidden_layers": 3.5}, "num_hidden_layers = 3.5: must be an integer"),
        ({"model_type": "bert"}, "model_type = bert: only decoder models"),
        ({"is_encoder_decoder": True}, "only decoder models"),
        ({"ssm_cfg": {}}, "ssm_cfg = .*: this key is not known"),
        ({"layer_types": ["full_attention", "conv"] * 16}, "layers of this type are not known"),
        ({"layer_types": ["full_attention", "banana"] * 16}, "the entry 'banana' is not understood"),
        ({"layer_types": ["full_attention"] * 31}, "31 entries, but the model has 32 layers"),
        ({"num_key_value_heads": 0}, "num_key_value_heads = 0: must be an integer of at least 1"),
        ({"num_kv_heads": 4}, "num_key_value_heads = 8: contradicts num_kv_heads = 4"),
        ({"kv_lora_rank": 512, "use_mla": False}, "kv_lora_rank = 512: contradicts use_mla"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        facts(**changes)


# --- folders ------------------------------------------------------------------------------------------

LLAMA_70B = LLAMA | {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "intermediate_size": 28672,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def folder(path: Path, **files: object) -> Path:
    """Write the files of a model and return its folder."""
    path.mkdir()
    for name, value in files.items():
        (path / f"{name.replace('_index', '.safetensors.index')}.json").write_text(json.dumps(value))
    return path


def test_a_file_or_its_folder_can_be_given(tmp_path: Path) -> None:
    path = folder(tmp_path / "my-model", config=LLAMA)
    for given in (path, path / "config.json", str(path)):
        model = read_model_config(given)
        assert (model.name, model.count) == ("my-model", 32)
    with pytest.raises(SpecError, match="no such file"):
        read_model_config(tmp_path / "other.json")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(SpecError, match="must be an object with keys, not a list"):
        read_model_config(tmp_path / "list.json")


@pytest.mark.parametrize(
    ("file", "values", "size_gb"),
    [
        ("hf_quant_config", {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, 72.7),
        ("quant_config", {"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}, 39.8),
        ("quantize_config", {"bits": 4, "group_size": 128, "desc_act": False}, 39.8),
    ],
)
def test_formats_beside_the_config_are_read(
    tmp_path: Path, file: str, values: dict[str, Any], size_gb: float
) -> None:
    """Sizes of a 70B model: 68.5e9 weights at 1 or 0.52 bytes, and 4.2 GB of embedding and head."""
    model = read_model_config(folder(tmp_path / "m", config=LLAMA_70B, **{file: values}))
    assert weights_gb(model) == pytest.approx(size_gb, abs=0.05)


def test_places_that_disagree_are_an_error_with_both_sizes(tmp_path: Path) -> None:
    config = LLAMA_70B | {"quantization_config": {"quant_method": "fp8"}}
    path = folder(tmp_path / "m", config=config, quant_config={"q_group_size": 128, "w_bit": 4})
    with pytest.raises(
        SpecError, match=r"gives weights of 72.6\d GB, but .*quant_config.json gives 39.7\d GB"
    ):
        weights_gb(read_model_config(path))


def test_a_name_that_states_a_format_needs_a_file_that_does(tmp_path: Path) -> None:
    model = read_model_config(folder(tmp_path / "Llama-3.1-70B-AWQ", config=LLAMA_70B))
    with pytest.raises(SpecError, match="the name says AWQ, but no file states a quantisation"):
        weights_gb(model)


def test_the_size_of_the_files_is_used_and_compared(tmp_path: Path) -> None:
    index: dict[str, Any] = {"metadata": {"total_size": 141_107_412_992}, "weight_map": {}}
    path = folder(tmp_path / "m", config=LLAMA_70B, model_index=index)
    memory = Memory(Iterations(read_model_config(path), load_catalogue().accelerator("H100"), Deployment()))
    assert memory.weight_bytes == 141_107_412_992
    assert memory.size_note is None
    index["metadata"] = {"total_size": 170e9}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    memory = Memory(Iterations(read_model_config(path), load_catalogue().accelerator("H100"), Deployment()))
    assert memory.size_note is not None
    assert "170 GB" in memory.size_note
    assert "141.1 GB (+20%)" in memory.size_note


def test_safetensors_headers_give_the_size(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", config=LLAMA)
    header = {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}, "__metadata__": {"format": "pt"}}
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    assert read_model_config(path).stored_bytes == 8
    (path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(SpecError, match="not a safetensors file"):
        read_model_config(path)
