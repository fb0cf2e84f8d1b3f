"""Reads models whose config.json lists a block for each layer (nemotron-nas)."""

from dataclasses import replace

from optimizer.profiles.attention_parts import attention_of
from optimizer.profiles.config_keys import Config
from optimizer.profiles.feed_forward_parts import dense
from optimizer.profiles.layers import Layer, Matrix


def block_layer(config: Config) -> Layer:
    """Return the layer that the current block describes.

    Raises:
        SpecError: the block cannot be interpreted.
    """
    group, window = (config.whole(f"attention.{key}", None) for key in ("n_heads_in_group", "window_length"))
    multiple, heads, hidden = config.get("ffn.ffn_mult", 0), config.whole("heads"), config.whole("hidden")
    layer, ffn = _replaced(config, "attention"), _replaced(config, "ffn")
    if layer is None:
        if group is None or heads % group:
            raise config.error("attention.n_heads_in_group", f"must divide the {heads} query heads")
        sizes = {**config.values, "num_key_value_heads": heads // group, "sliding_window": window}
        layer = attention_of(replace(config, values=sizes), "window" if window else "full")
    if ffn is None:
        if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple <= 1000:
            raise config.error("ffn.ffn_mult", "must be a number above 0")
        ffn = dense(config, -(-int(2 * multiple * hidden / 3) // 256) * 256)
    return layer + ffn


def _replaced(config: Config, part: str) -> Layer | None:
    """Return the layer that replaces a part: an empty one, or a square matrix; None if the part exists."""
    no_op, linear = config.flag(f"{part}.no_op"), config.flag(f"{part}.replace_with_linear")
    if no_op:
        return Layer(parts=0)
    if not linear:
        return None
    words = ("linear", "") if part == "attention" else ("", "linear")
    return Layer(*words, matrices=(Matrix("linear", config.whole("hidden") ** 2, "dense"),))
