"""Read a model from the config.json of its Hugging Face repository.

Each fact is searched under all names that its key has had. Anything unknown is an error that names the key,
because an estimate for a guessed architecture would be worthless.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError
from optimizer.profiles.config_keys import Config
from optimizer.profiles.config_parts import experts_of, latent_of, linear_of, window_of
from optimizer.profiles.facts import ModelFacts
from optimizer.spec.files import json_value, read_text
from optimizer.spec.messages import kind_of, validated

UNGATED = frozenset({
    "opt", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "gpt_neo", "bloom", "falcon", "phi", "mpt",
    "starcoder2", "nemotron", "persimmon", "codegen",
})  # fmt: skip
"""Model types whose feed-forward layers have two matrices."""
TIED = frozenset({
    "opt", "gpt2", "gpt_bigcode", "bloom", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "mpt",
    "cohere", "cohere2", "starcoder2", "granite",
})  # fmt: skip
"""Model types whose output head shares the embedding weights by default."""
FOUR_TIMES = frozenset({"gpt2", "gpt_bigcode", "bloom", "falcon", "gptj", "mpt"})
"""Model types whose feed-forward layer is four times as wide as the model by default."""
NOT_TRANSFORMERS = (
    "mamba",
    "rwkv",
    "jamba",
    "zamba",
    "recurrent",
    "bert",
    "t5",
    "bart",
    "whisper",
    "clip",
    "lfm",
)
"""Substrings of model types that are not decoders with attention in every layer."""
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "sliding_window_pattern": 6,
    },
    "gemma2": {"head_dim": 256},
}  # fmt: skip
"""Defaults of the library's classes for keys missing in published configs."""


def read_model_config(path: str | Path) -> ModelFacts:
    """Read the config.json of a model, from the file or its folder.

    Raises:
        SpecError: the file cannot be read, or a value is not understood.
    """
    file = Path(path)
    if file.is_dir():
        file /= "config.json"
    raw = json_value(read_text(file), str(file))
    if not isinstance(raw, Mapping):
        raise SpecError(f"{file}: must be an object with keys, not {kind_of(raw)}")
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return model_of_config(raw, name=name, source=str(file))


def model_of_config(raw: Mapping[str, Any], name: str = "model", source: str = "config.json") -> ModelFacts:
    """Return the architecture that a config.json describes.

    Args:
        raw: the parsed config.json.
        name: name of the model.
        source: the file, for messages.

    Raises:
        SpecError: a key is missing, or a value is not understood.
    """
    inner = next((raw[key] for key in ("text_config", "llm_config", "language_config") if raw.get(key)), None)
    text = {**raw, **inner} if isinstance(inner, Mapping) else dict(raw)
    kind = str(text.get("model_type", "")).lower()
    values = {**_DEFAULTS.get(kind, {}), **{key: value for key, value in text.items() if value is not None}}
    config = Config(values, kind, source)
    _refuse_other_kinds(config)
    facts = _sizes(config) | {
        "name": name,
        "checkpoint": _checkpoint(config),
        "experts": experts_of(config),
        "latent": latent_of(config),
        "linear": linear_of(config),
        "window": window_of(config),
        "queryGate": bool(config.get("attn_output_gate", default=kind == "qwen3_next")),
        "sparseTopK": config.whole("index_topk", default=None),
        "note": "text part only" if isinstance(inner, Mapping) else "",
        "source": source,
        "asOf": "the file given",
    }
    return validated(ModelFacts, facts, f"{source}: ")


def _refuse_other_kinds(config: Config) -> None:
    if config.get("is_encoder_decoder", default=False) or any(
        part in config.kind for part in NOT_TRANSFORMERS
    ):
        raise SpecError(
            f"{config.source}: model_type {config.kind!r} is not understood: only decoders with attention are"
        )
    for key in config.values:
        if key.startswith(("ssm_", "mamba_", "rwkv_")) or key in {
            "cross_attention_layers",
            "hybrid_override_pattern",
        }:
            raise SpecError(f"{config.source}: {key}: layers of this kind are not understood")


def _sizes(config: Config) -> dict[str, Any]:
    """Return the sizes common to all decoders."""
    kind = config.kind
    hidden = config.whole("hidden_size", "n_embd", "d_model")
    heads = config.whole("num_attention_heads", "n_head", "n_heads")
    if hidden is None or heads is None:
        raise AssertionError  # both are required
    experts = experts_of(config)
    everywhere = experts is not None and not experts.get("denseLayers")
    ffn = config.whole(
        "intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "ffn_size",
        default=4 * hidden if kind in FOUR_TIMES else 0 if everywhere else Config.REQUIRED,
    )  # fmt: skip
    if kind == "qwen" and ffn:
        ffn //= 2  # the first Qwen counts gate and up together
    return {
        "layers": config.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        "hidden": hidden,
        "heads": heads,
        "kvHeads": _kv_heads(config, heads),
        "headDim": config.whole("head_dim", "kv_channels", "v_head_dim", default=max(hidden // heads, 1)),
        "ffn": 0 if everywhere else ffn,
        "gated": kind not in UNGATED,
        "vocab": config.whole("vocab_size", "padded_vocab_size"),
        "tied": bool(config.get("tie_word_embeddings", default=kind in TIED)),
        "context": config.whole(
            "max_position_embeddings", "n_positions", "seq_length", "n_ctx", "max_seq_len",
            "max_sequence_length", default=2048,
        ),
    }  # fmt: skip


def _kv_heads(config: Config, heads: int) -> int:
    """Return the number of key-value heads; by default one per query head, or one in total."""
    if config.kind == "falcon" and not config.get("new_decoder_architecture", default=False):
        return 1 if config.get("multi_query", default=True) else heads
    if config.get("multi_query", default=False):
        return 1
    found = config.whole(
        "num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_kv_heads", default=heads
    )
    return heads if found is None else found


_METHODS: Mapping[str, str] = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "deepspeedfp": "fp8", "nvfp4": "fp4",
    "modelopt_fp4": "fp4",
}  # fmt: skip
_BITS: Mapping[tuple[int, str], str] = {
    (8, "float"): "fp8", (8, "int"): "int8", (4, "int"): "int4", (4, "float"): "fp4",
}  # fmt: skip


def _checkpoint(config: Config) -> str:
    """Return the format of the weights from `quantization_config`."""
    quantization = config.get("quantization_config", "compression_config", default=None)
    if not quantization:
        return "bf16"
    if not isinstance(quantization, Mapping):
        raise config.not_understood("quantization_config", quantization)
    method = str(quantization.get("quant_method", "")).lower()
    weights = _group_weights(quantization)
    if weights.get("num_bits"):
        found = _BITS.get((weights["num_bits"], str(weights.get("type", "int"))))
    elif method in _METHODS:
        found = _METHODS[method]
    elif method.startswith("modelopt"):
        found = {"FP8": "fp8", "NVFP4": "fp4"}.get(str(quantization.get("quant_algo", "")).upper())
    elif method == "bitsandbytes":
        found = "int4" if quantization.get("load_in_4bit") else "int8"
    else:
        bits = quantization.get("bits", quantization.get("w_bit"))
        found = _BITS.get((bits, "int")) if isinstance(bits, int) else None
    if found is None:
        raise config.not_understood("quantization_config", method or "without quant_method")
    return found


def _group_weights(quantization: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the weight settings of the first compressed-tensors group, if any."""
    groups = quantization.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}
