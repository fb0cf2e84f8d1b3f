"""Optional parts of an architecture in a config.json: experts, latent and linear attention, windows."""

from collections.abc import Sequence
from typing import Any

from optimizer.profiles.config_keys import Config

_FULL = {"full_attention", "attention", "chunked_attention", "global"}
_SLIDING = {"sliding_attention", "sliding_window_attention", "local"}
_LINEAR = {"linear_attention"}
ALTERNATING = frozenset({"gemma2", "gpt_oss"})
"""Model types in which every second layer has a window if the config lists no layers."""


def experts_of(config: Config) -> dict[str, Any] | None:
    """Return the mixture of experts, or None for a dense model.

    Raises:
        SpecError: one of its keys is missing or not understood.
    """
    count = config.whole(
        "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts", default=None
    )
    if not count or count == 1:
        return None
    ffn = config.whole(
        "moe_intermediate_size", "moe_ffn_hidden_size", "expert_intermediate_size", "intermediate_size"
    )
    shared = config.whole("shared_expert_intermediate_size", "shared_intermediate_size", default=None)
    if shared is None:
        number = config.whole("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0)
        shared = (ffn or 0) * (1 if config.kind.startswith("llama4") else number or 0)
    return {
        "count": count,
        "perToken": config.whole(
            "num_experts_per_tok", "experts_per_token", "moe_topk", "moe_top_k", "moe_k"
        ),
        "ffn": ffn,
        "sharedFfn": shared,
        "denseLayers": _dense_layers(config),
    }


def _dense_layers(config: Config) -> int:
    """Count the layers of a mixture without experts; model families encode this differently."""
    layers = config.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers") or 0
    listed = config.get("moe_layers", default=None)
    pattern = config.get("moe_layer_freq", default=1)
    step = config.whole("decoder_sparse_step", "interleave_moe_layer_step", default=1) or 1
    first = config.whole("first_k_dense_replace", "moe_layer_start_index", default=0) or 0
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return layers - len(listed)
    if isinstance(pattern, Sequence) and not isinstance(pattern, str):
        return layers - sum(map(bool, pattern))
    if not isinstance(pattern, int) or pattern < 1:
        raise config.not_understood("moe_layer_freq", pattern)
    only_dense = set(config.get("mlp_only_layers", default=()))
    mixed = [
        i
        for i in range(layers)
        if i >= first and i % pattern == 0 and (i + 1) % step == 0 and i not in only_dense
    ]
    return layers - len(mixed)


def latent_of(config: Config) -> dict[str, Any] | None:
    """Return latent attention, or None if the model has none."""
    if config.get("kv_lora_rank", default=None) is None:
        return None
    return {
        "kvRank": config.whole("kv_lora_rank"),
        "queryRank": config.whole("q_lora_rank", default=0),
        "ropeDim": config.whole("qk_rope_head_dim"),
        "nopeDim": config.whole("qk_nope_head_dim"),
        "valueDim": config.whole("v_head_dim"),
    }


def linear_of(config: Config) -> dict[str, Any] | None:
    """Return linear attention, or None if no layer uses it.

    Raises:
        SpecError: such layers exist, but their sizes are missing.
    """
    full, _, linear = _layers_by_kind(config)
    if not linear:
        return None
    return {
        "fullLayers": full,
        "keyHeads": config.whole("linear_num_key_heads"),
        "keyDim": config.whole("linear_key_head_dim"),
        "valueHeads": config.whole("linear_num_value_heads"),
        "valueDim": config.whole("linear_value_head_dim"),
    }


def window_of(config: Config) -> dict[str, Any] | None:
    """Return the sliding window, or None if there is none or it covers the context."""
    tokens = config.whole("sliding_window", default=None)
    if not tokens or config.get("use_sliding_window", default=not config.kind.startswith("qwen")) is False:
        return None
    context = config.whole("max_position_embeddings", default=None)
    if context is not None and tokens >= context:
        return None
    full, sliding, _ = _layers_by_kind(config)
    return {"tokens": tokens, "fullLayers": full} if sliding else None


def _layers_by_kind(config: Config) -> tuple[int, int, int]:
    """Count the layers with full, sliding and linear attention.

    Raises:
        SpecError: `layer_types` names an unknown kind.
    """
    layers = config.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers") or 0
    listed = config.get("layer_types", default=None)
    if listed is not None:
        for kind in listed:
            if kind not in _FULL | _SLIDING | _LINEAR:
                raise config.not_understood("layer_types", kind)
        counts = [sum(kind in kinds for kind in listed) for kinds in (_FULL, _SLIDING, _LINEAR)]
        return counts[0], counts[1], counts[2]
    interval = config.whole("full_attention_interval", default=None)
    if interval:
        return layers // interval, 0, layers - layers // interval
    pattern = config.whole("sliding_window_pattern", "_sliding_window_pattern", default=None)
    if config.kind in ALTERNATING:
        pattern = 2
    if pattern:
        return layers // pattern, layers - layers // pattern, 0
    if config.kind.startswith("qwen"):
        full = min(config.whole("max_window_layers", default=layers) or 0, layers)
        return full, layers - full, 0
    return (0, layers, 0) if config.get("sliding_window", default=None) else (layers, 0, 0)
