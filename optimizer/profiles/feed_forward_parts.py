"""Reads the feed-forward part of a layer (dense, or routed and shared experts) from a config.json."""

from optimizer.profiles.config_keys import REQUIRED, Config
from optimizer.profiles.layer_types import has_experts
from optimizer.profiles.layers import Experts, Layer, Matrix


def feed_forward_of(config: Config, type_: str) -> Layer:
    """Return the feed-forward part of the layer that `config` currently reads.

    Args:
        config: the config.json.
        type_: type of the layer (`layer_type`); relevant if each layer has only one part.

    Raises:
        SpecError: a size is missing or cannot be interpreted.
    """
    family, experts, width = config.family, _experts(config), _dense_width(config)
    shared, listed = _shared_width(config, experts), has_experts(config)
    if family.window == "state" or (family.one_part and type_ not in {"moe", "mlp"}):
        return Layer(parts=0)
    if type_ == "moe" if family.one_part else listed and experts:
        if experts is None:
            raise config.error("num_experts", "missing; there are layers with experts")
        return _mixture(config, experts, shared, width)
    if experts is None and shared and "shared_intermediate_size" in config.values:
        width = shared  # granite models without experts have only the shared part
    return dense(config, width)


def dense(config: Config, width: int) -> Layer:
    """Return a dense feed-forward part.

    Raises:
        SpecError: the width is 0, which means that it is not stated.
    """
    if not width:
        raise config.error("intermediate_size", "missing; there are layers without experts")
    return Layer(
        feed_forward=f"dense {width:,}", matrices=_matrices(config, "dense", "mlp", width), ffn=width
    )


def _mixture(config: Config, experts: Experts, shared: int, width: int) -> Layer:
    names, hidden, inner = config.family.names, config.whole("hidden"), config.whole("expert_inner", None)
    place = names.get("experts", "mlp")
    below = f"{place}." if place else ""
    rows = experts.count + config.whole("zero_expert_num", 0, 0)
    matrices = [Matrix(names.get("router", "mlp.gate"), hidden * rows, "dense")]
    matrices += [Matrix(f"{below}{name}", hidden * inner, "dense") for name in ("fc1", "fc2") if inner]
    matrices += _matrices(config, "shared", "mlp.shared_experts", shared)
    size = experts.count * (inner or hidden) * experts.ffn
    matrices += [Matrix(f"{below}experts.0.{name}", size, "routed") for name in _names(config)]
    text = f"{experts.count} experts of {experts.ffn:,}" + f", shared {shared:,}" * bool(shared)
    if config.family.dense_parts:  # in addition to each layer's experts
        matrices += _matrices(config, "dense", "mlp", width) * config.family.dense_parts
        text, shared = f"{text}, dense {width:,}", shared + width
    return Layer(feed_forward=text, matrices=tuple(matrices), ffn=shared, experts=experts)


def _experts(config: Config) -> Experts | None:
    per_token = config.whole("per_token", None, 0) or None
    count = config.whole("experts", 0 if per_token is None else REQUIRED, 0)
    switched_on = config.flag("enable_moe_block", default=True)
    if count <= 1 or not switched_on:
        return None
    if per_token is not None and per_token > count:
        raise config.error(config.key("per_token"), f"exceeds the {count} experts")
    other = config.whole("intermediate_size") if config.family.wide_experts else REQUIRED
    return Experts(count, per_token, config.whole("expert_width", other))


def _shared_width(config: Config, experts: Experts | None) -> int:
    number, width = config.whole("shared_experts", 0, 0), config.whole("shared_width", None, 0)
    if width is None:
        width = number * (experts.ffn if experts else 0)
    return int(width) if config.flag("use_mixed_mlp_moe", default=True) else 0


def _dense_width(config: Config) -> int:
    """Return the width of a dense feed-forward part; 0 if it is not stated."""
    default = 4 * config.whole("hidden") if config.flag("four_times") else 0
    width = int(config.whole("dense_width", default))
    if config.flag("block_auto_adjust_ff_dim"):
        factor = config.get("block_ffn_dim_multiplier", 1.0)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 100:
            raise config.error("block_ffn_dim_multiplier", "must be a number above 0")
        multiple = config.whole("block_multiple_of", 256)
        width = -(-int(factor * int(2 * width / 3)) // multiple) * multiple
    wide, shared = config.flag("use_double_wide_mlp"), config.whole("num_kv_shared_layers", 0, 0)
    width *= 2 if wide and config.index >= config.layers - shared else 1
    return width // 2 if config.flag("gate_and_up") else width


def _names(config: Config) -> tuple[str, ...]:
    return ("gate_proj", "up_proj", "down_proj") if config.family.gated else ("up_proj", "down_proj")


def _matrices(config: Config, part: str, place: str, width: int) -> tuple[Matrix, ...]:
    size, place = config.whole("hidden") * width, config.family.names.get(part, place)
    return tuple(Matrix(f"{place}.{name}", size, "dense") for name in _names(config) if width)
