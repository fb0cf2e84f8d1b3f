"""Reads the attention of a layer, or its replacement, from a config.json and layer_parts.yaml."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, prod

from optimizer.profiles.config_keys import Config, parts_table
from optimizer.profiles.layer_types import window_tokens
from optimizer.profiles.layers import ALL_FORMATS, Cache, Layer, Matrix

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def attention_of(config: Config, type_: str) -> Layer:
    """Return the attention of the layer that `config` currently reads, given its type (`layer_type`).

    Raises:
        SpecError: a size is missing or cannot be interpreted.
    """
    if type_ in {"moe", "mlp"}:
        return Layer(parts=0)
    if type_ == "state":
        return _state(config)
    if type_.endswith(" + state"):
        return attention_of(config, type_.removesuffix(" + state")) + replace(_state(config), parts=0)
    if "o_lora_rank" in config.values:
        return _compressed(config, type_)
    if type_ in {"quarter", "heavy"}:
        raise config.error("o_lora_rank", "missing; compressed caches are known only with this key")
    if "kv_lora_rank" in config.values:
        return _latent(config)
    if not config.flag("use_mla", default=True):
        for name in ("query_rank", "rope", "nope"):  # no effect without latent attention
            config.key(name)
    elif config.family.latent:
        raise config.error("kv_lora_rank", "missing; this key is required unless use_mla is false")
    return _ordinary(config, type_)


def matrices_of(config: Config, part: str, place: str, more: Mapping[str, int]) -> list[Matrix]:
    """Return the weight matrices of a part that layer_parts.yaml describes.

    Args:
        config: the config.json.
        part: name of the part.
        place: name in checkpoints of the module that contains the matrices.
        more: sizes that the config does not state, by name.
    """
    matrices: list[Matrix] = []
    for line in parts_table()[part]["weights"]:
        name, *factors = line.split()
        parameters = prod(_factor(config, factor, more) for factor in factors)
        if parameters:
            matrices.append(Matrix(f"{place}.{name}" if place else name, parameters, "dense"))
    return matrices


def _factor(config: Config, name: str, more: Mapping[str, int]) -> int:
    if name.isdigit():
        return int(name)
    return int(more[name] if name in more else config.whole(name))


def kv_heads(config: Config) -> int:
    """Return the number of KV heads; if not stated, one for each query head, or one in total."""
    heads, stated = config.whole("heads"), config.whole("kv", None)
    new, grouped = config.flag("new_decoder_architecture"), config.flag("multi_query_attention", default=True)
    if config.flag("multi_query") and not new:
        return 1
    return int(heads if stated is None or not grouped else stated)


# --- ordinary attention ----------------------------------------------------------------------------------


def _ordinary(config: Config, type_: str) -> Layer:
    heads, kv, width, value = _sizes(config, type_)
    shared, equal = _shares(config), type_ == "full" and config.flag("attention_k_eq_v")
    query_rank = config.whole("share_q_dim", 0)
    gate = config.get("gate", False)
    gates = {False: 0, True: width, "per-element": width, "per-head": 1}
    if not isinstance(gate, bool | str) or gate not in gates:
        raise config.error(config.key("gate"), "must be true, false, per-head or per-element")
    gate_width = 1 if gate is True and "gating" in config.values else gates[gate]
    more = {"heads": heads, "kv": kv, "width": width, "value": value, "gate_width": gate_width}
    more |= {"query_rank": query_rank, "direct": not query_rank, "own": not shared, "separate": not equal}
    place = config.family.names.get("attention", "self_attn")
    matrices = matrices_of(config, "ordinary", place, more)
    limit = window_tokens(config) if type_ == "window" else None
    limit = config.whole("attention_chunk_size") if type_ == "chunk" else limit
    rows = Cache(type_ if limit else "grows", width + value, kv, limit=limit)
    topk, extra, weights = _block_index(config)
    caches = () if shared else (replace(rows, read=topk or None), *extra)
    word = "MHA" if kv == heads else "MQA" if kv == 1 else "GQA"
    text = f"{word} {heads}/{kv} x {width}" + (f", {value}" if value != width else "")
    text += ", shared cache" * shared + ", sparse" * bool(topk)
    matrices += weights
    return Layer(text, "", caches, tuple(matrices), heads, (width + value) / 2)


def _sizes(config: Config, type_: str) -> tuple[int, int, int, int]:
    """Return the numbers of query and KV heads and the widths of key and value, for a type of layer."""
    heads, kv, width = config.whole("heads"), kv_heads(config), _head_width(config)
    value = config.whole("v_head_dim", 0, 0) or width
    names = ("heads", "kv", "width", "value")
    own = {name: config.whole(f"window_{name}", 0, 0) for name in names} if type_ == "window" else {}
    wide, fewer = config.whole("full_width", 0), config.whole("full_kv", 0) * config.flag("attention_k_eq_v")
    if type_ == "full":
        own = {"width": wide, "value": wide, "kv": fewer}
    stated = {"heads": heads, "kv": kv, "width": width, "value": value}
    heads, kv, width, value = (own.get(name) or stated[name] for name in names)
    return heads, kv, width, value


def _head_width(config: Config) -> int:
    width = config.whole("width", 0, 0) or max(config.whole("hidden") // config.whole("heads"), 1)
    return int(width)


def _shares(config: Config) -> bool:
    """Return whether the layer uses the KV cache of an earlier layer."""
    last, factor = config.whole("num_kv_shared_layers", 0, 0), config.whole("cla_share_factor", 1)
    if last >= config.layers:
        raise config.error("num_kv_shared_layers", f"must be below the {config.layers} layers")
    return config.index >= config.layers - last or (config.flag("use_cla") and config.index % factor > 0)


def _block_index(config: Config) -> tuple[int, tuple[Cache, ...], list[Matrix]]:
    """Return the tokens that a sparse layer reads, its index caches and index weights (MiniMax-M3)."""
    if "sparse_attention_config.sparse_attention_freq" not in config.values:
        return 0, (), []
    sparse, values = (
        config.meaning("sparse_attention_config.sparse_attention_freq"),
        config.meaning("sparse_attention_config.sparse_disable_index_value"),
    )
    topk = config.whole("sparse_blocks") * config.whole("sparse_block")
    width, weights = config.whole("sparse_width"), matrices_of(config, "block_index", "self_attn", {})
    if not config.flag("sparse_attention_config.use_sparse_attention", default=True) or sparse == "full":
        return 0, (), []
    return topk, (Cache("index", width * (2 if values == "both" else 1)),), weights


# --- latent and compressed attention ---------------------------------------------------------------------


def _latent(config: Config) -> Layer:
    """Return multi-head latent attention: one compressed row per token, stored in full on each device."""
    if not config.flag("use_mla", default=True):
        raise config.error("kv_lora_rank", "contradicts use_mla = False")
    rank, rope, nope = config.whole("rank"), config.whole("rope"), config.whole("nope")
    query, value, heads = config.whole("query_rank", 0), config.whole("latent_value"), config.whole("heads")
    more = {"query_rank": query, "direct": not query, "gated": config.flag("mla_use_output_gate")}
    matrices = matrices_of(config, "latent", "self_attn", more)
    topk = config.whole("topk", 0)
    packed = (("fp8_ds_mla", rank + 4 * ceil(rank / 128) + 2.0 * rope),)
    caches = [Cache("latent", rank + rope, packed=packed, read=topk or None)]
    if topk:
        caches.append(_index_rows(config.whole("index_width")))
        if _own_index(config):
            matrices += matrices_of(config, "token_index", "self_attn", more)
    times = config.family.attentions
    return Layer(
        attention=f"{times} x " * (times > 1)
        + f"MLA {heads} x {rank} + {rope}"
        + f", top {topk}" * bool(topk),
        caches=tuple(caches) * times,
        matrices=tuple(matrices) * times,
        heads=heads,
        width=(nope + rope + value) / 2,
        absorbed=2 * rank + rope,
        parts=times,
    )


def _index_rows(width: int, every: int = 1) -> Cache:
    """Return the index cache of sparse attention, which is always fp8 with a 4-byte scale per 128 numbers."""
    size = width + 4.0 * ceil(width / 128)
    return Cache("index", width, every=every, packed=tuple((form, size) for form in ALL_FORMATS))


def _own_index(config: Config) -> bool:
    """Return whether the layer has its own index weights (GLM-5.2)."""
    every, offset = config.whole("index_topk_freq", 1), config.whole("index_skip_topk_offset", 2, 0)
    for key in ("indexer_types", "index_topk_pattern"):
        if key in config.values:
            return config.meaning(key) == "own"
    return bool(max(config.index - offset + 1, 0) % every == 0)


def _compressed(config: Config, type_: str) -> Layer:
    """Return DeepSeek-V4's attention: a window, and compressed rows of 4 or 128 tokens for key and value."""
    heads, width, rope, topk = (config.whole(name) for name in ("heads", "width", "rope", "topk"))
    place = config.family.names.get("attention", "attn")
    matrices = matrices_of(config, "compressed", place, {})
    if kv_heads(config) != 1:
        raise config.error(config.key("kv"), "must be 1: key and value are one row for all heads")
    packed = tuple((form, width + rope + 8.0) for form in ("fp8", "fp8_ds_mla"))
    caches = [Cache("window", width, limit=window_tokens(config), packed=packed)]
    if type_ in {"quarter", "heavy"}:
        matrices += matrices_of(config, type_, place, {})
        every, read = (4, 4 * topk) if type_ == "quarter" else (128, None)
        caches.append(Cache("compressed", width, every=every, packed=packed, read=read))
    if type_ == "quarter":
        caches.append(_index_rows(config.whole("index_width"), 4))
    text = f"MQA {heads}/1 x {width}" + {"quarter": ", 1/4 sparse", "heavy": ", 1/128"}.get(type_, "")
    return Layer(attention=text, caches=tuple(caches), matrices=tuple(matrices), heads=heads, width=width)


# --- states ----------------------------------------------------------------------------------------------


def _state(config: Config) -> Layer:
    """Return a layer that keeps a state of fixed size instead of a KV cache."""
    part = parts_table()[config.family.state]
    more = _state_sizes(config)
    kernel = config.whole("kernel") if "conv" in part else 1

    def numbers(key: str) -> int:
        return sum(
            prod(_factor(config, factor, more) for factor in line.split()) for line in part.get(key, ())
        )

    kept = numbers("state") * _state_bytes(config) + numbers("conv") * (kernel - 1) * 2
    groups = config.whole("groups") if "group" in part else 0
    cache = Cache("state", state_bytes=kept, groups=groups, group_bytes=numbers("group") * (kernel - 1) * 2)
    place = config.family.names.get("state", part["name"])
    shown = {name: _factor(config, name, more) for name in re.findall(r"{(\w+)", part["text"])}
    weights = matrices_of(config, config.family.state, place, more)
    return Layer(attention=part["text"].format(**shown), caches=(cache,), matrices=tuple(weights))


def _state_bytes(config: Config) -> int:
    """Return the size of a number in a state [bytes]: 4 unless the config states another; 4 for KDA."""
    stated = config.get("state_type", "float32")
    if not isinstance(stated, str) or stated not in _STATE_BYTES:
        raise config.error(config.key("state_type"), f"must be one of {', '.join(_STATE_BYTES)}")
    return 4 if config.family.state in {"kda", "lightning"} else _STATE_BYTES[stated]


def _state_sizes(config: Config) -> dict[str, int]:
    """Return, by name, the sizes of a state that must be computed from several keys."""
    state, hidden = config.family.state, config.whole("hidden")
    if state == "kda":
        full = config.flag("linear_attn_config.use_full_rank_gate")
        return {"full_rank": full, "low_rank": not full}
    if state == "lightning":
        return {"width": _head_width(config)}
    if state == "mamba1":
        rank = config.whole("state_rank", ceil(hidden / 16))
        return {"inner": config.whole("expand") * hidden, "state_rank": rank}
    if state != "mamba2":
        return {}
    inner_width, heads = config.whole("mamba_d_ssm", None), config.whole("state_heads")
    expanded = config.whole("expand", 2) * hidden
    if config.family.window == "state":  # its name in mamba2 is head_dim
        width = config.whole("head_dim")
    else:
        width = config.whole("state_width", (inner_width or expanded) // heads)
    if inner_width is not None and inner_width != heads * width:
        raise config.error("mamba_d_ssm", f"contradicts {heads} heads x {width}")
    return {"state_width": width}
