"""Models whose config.json lists a block for each layer (nemotron-nas)."""

from dataclasses import replace

from optimizer.profiles.attention_parts import attention_of
from optimizer.profiles.config_keys import Config
from optimizer.profiles.feed_forward_parts import dense
from optimizer.profiles.layers import Layer, Matrix

_IDLE = (
    "num_sink_tokens", "sparsify", "unshifted_sink", "use_prefill_window_in_sink_attention",
    "parallel_blocks",
)  # fmt: skip


def block_layer(config: Config) -> Layer:
    """Return the layer of the block that the config is read for.

    Raises:
        SpecError: the block is not understood.
    """
    blocks, name = config.get("block_configs"), f"block_configs[{config.index}]"
    if not isinstance(blocks, list) or len(blocks) != config.layers:
        raise config.error("block_configs", f"must list {config.layers} blocks")
    block = replace(config, values={name: blocks[config.index]}, used=set()).inner(name)
    attention, below = block.inner("attention"), block.inner("ffn")
    group, window = attention.whole("n_heads_in_group", None), attention.whole("window_length", None)
    multiple, heads, hidden = below.get("ffn_mult", 0), config.whole("heads"), config.whole("hidden")
    layer, ffn = _replaced(attention, "linear", hidden), _replaced(below, "", hidden)
    if layer is None:
        if group is None or heads % group:
            raise attention.error("n_heads_in_group", f"must divide the {heads} query heads")
        sizes = {**config.values, "num_key_value_heads": heads // group, "sliding_window": window}
        layer = attention_of(replace(config, values=sizes), "window" if window else "full")
    if ffn is None:
        if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple <= 1000:
            raise below.error("ffn_mult", "must be a number above 0")
        ffn = dense(config, -(-int(2 * multiple * hidden / 3) // 256) * 256)
    for part in (block, attention, below):
        part.finish(_IDLE)
    return layer + ffn


def _replaced(block: Config, text: str, hidden: int) -> Layer | None:
    """Return what stands in place of a part: nothing, or a square matrix; None if the part is there."""
    no_op, linear = block.flag("no_op"), block.flag("replace_with_linear")
    if not no_op and not linear:
        return None
    if no_op:
        return Layer(parts=0)
    return Layer(text, "" if text else "linear", matrices=(Matrix("linear", hidden**2, "dense"),))
