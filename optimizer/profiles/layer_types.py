"""Determines the type of attention of each layer of a config.json, and which layers have experts.

Each key that lists or counts layers is an entry of a table here or in layer_parts.yaml. If several keys are
given, they must agree.
"""

from collections.abc import Callable, Mapping
from typing import Any

from optimizer.profiles.config_keys import REQUIRED, Config, parts_table


def layer_count(config: Config) -> int:
    """Return the number of layers: as stated, else the length of a list with one entry per layer."""
    keys = ("block_configs", "layer_types", "layers_block_type", "hybrid_override_pattern")
    counts = [config.values[key] for key in keys if key in config.values]
    length = len(counts[0]) if counts and isinstance(counts[0], list | str) and counts[0] else REQUIRED
    count: int = config.whole("layers", length)
    if count > 10_000:
        raise config.error(config.key("layers"), "must be at most 10,000")
    return count


def layer_type(config: Config) -> str:
    """Return the type of the current layer, as in the table `types`: full, window, chunk, state, moe etc.

    Raises:
        SpecError: an entry is unknown, a list has the wrong length, or two keys disagree.
    """
    tables = parts_table()
    known_type = {key: config.meaning(key) for key in tables["lists"] if key in config.values}
    known_type |= {
        key: _RULES[rule](config, key) for key, rule in tables["rules"].items() if key in config.values
    }
    types = list(known_type.items()) or [("", _by_default(config))]
    for name, other in types[1:]:
        if other != types[0][1]:
            raise config.error(types[0][0], f"contradicts {name} = {str(config.values[name])[:60]}")
    family, type_ = config.family, types[0][1]
    if ("state" in type_ and not family.state) or (type_ in {"moe", "mlp"} and not family.one_part):
        raise config.error(types[0][0], "layers of this type are not known for this model type")
    if {"layer_types", "layers_block_type", "hybrid_layer_pattern"} & known_type.keys():
        config.key("window")  # layers are listed, so an additional window key needs no other rule
        if type_ == "window" and not config.flag("use_sliding_window", default=True):
            raise config.error("use_sliding_window", f"contradicts {types[0][0]}, which lists windows")
    return type_


def has_experts(config: Config) -> bool:
    """Return whether the current layer has experts according to all keys that state this.

    Raises:
        SpecError: a value cannot be interpreted.
    """
    i = config.index
    rules: Mapping[str, Callable[[str], bool]] = {
        "from": lambda key: i >= config.whole(key, minimum=0),
        "until": lambda key: config.whole(key, minimum=-1) in {-1, max(i, config.whole(key, minimum=-1))},
        "each": lambda key: (i + 1) % config.whole(key) == 0,
        "every": lambda key: i % config.whole(key) == config.whole("expert_layer_offset", 0, 0),
        "listed": lambda key: i in _numbers(config, key),
        "unlisted": lambda key: i not in _numbers(config, key),
        "words": lambda key: config.meaning(key) == "experts",
    }
    stated = {key: rule for key, rule in parts_table()["experts"].items() if key in config.values}
    listed = {"moe_layer_freq": "words"} if isinstance(config.values.get("moe_layer_freq"), list) else {}
    answers = [rules[rule](key) for key, rule in {**stated, **listed}.items()]
    return all(answers)


def window_tokens(config: Config) -> int:
    """Return the length of the sliding window [tokens]."""
    tokens: int = config.whole("window")
    both_directions = config.get("use_bidirectional_attention", None) == "all"
    return tokens // 2 + 1 if both_directions else tokens


def _spaced(config: Config, every: int, other: str) -> str:
    """Return "full" if the current layer is an `every`-th one, else `other`; with 0, no layer is full.

    The model family determines how layers are counted.
    """
    counted, i, last = config.family.counted, config.index, config.layers - 1
    place = last - i if counted == "fromEnd" else i + 1
    extra = {"first": 0, "last": last}.get(counted)
    return "full" if i == extra or (every and place % every == 0) else other


def _every(other: str) -> Callable[[Config, str], str]:
    """Return a rule for keys that hold n (every n-th layer is full) or a text (LLLG: local, global)."""

    def rule(config: Config, key: str) -> str:
        pattern = config.get(key)
        if not isinstance(pattern, str):
            return _spaced(config, config.whole(key, minimum=0), other)
        if not pattern or set(pattern) - set("LG"):
            raise config.error(key, "must be a number, or a text of L (local) and G (global)")
        return "full" if pattern[config.index % len(pattern)] == "G" else other

    return rule


def _periodic(config: Config, key: str) -> str:
    offset = config.whole("attn_layer_offset", minimum=0)
    return "full" if config.index % config.whole(key) == offset else "state"


def _chosen(config: Config, key: str) -> str:
    return "full" if config.index in _numbers(config, key) else "state"


def _both_lists(config: Config, key: str) -> str:
    """Return the current layer's type from two lists, counted from 1, that together name each layer once."""
    other = "linear_attn_config.kda_layers"
    full, states = (_numbers(config, name, 1) for name in (key, other))
    if full & states or len(full | states) != config.layers:
        raise config.error(other, f"does not complete full_attn_layers to the {config.layers} layers")
    return "full" if config.index + 1 in full else "state"


def _grouped(config: Config, key: str) -> str:
    """Return "full" for the last layer of each group, and after the last full group; else "state"."""
    size = config.whole(key)
    rest = config.index >= config.layers // size * size
    return "full" if rest or (config.index + 1) % size == 0 else "state"


def _numbers(config: Config, key: str, low: int = 0) -> set[int]:
    """Return the set of layer numbers, counted from `low`, in a list or a text with commas."""
    value: Any = config.get(key)
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else ["?"]
    numbers = {int(item) if str(item).strip().isdigit() else -1 for item in items}
    if not numbers <= set(range(low, config.layers + low)):
        raise config.error(key, f"must list layers from {low} to {config.layers + low - 1}")
    return numbers


def _by_default(config: Config) -> str:
    """Return the type of the current layer if no key lists layers: from the model family and the window."""
    family = config.family
    if "state" in family.window:
        return str(family.window)
    if (family.state and not family.every) or family.window == "listed":
        raise config.error(
            " or ".join(parts_table()["lists"]), "missing; no key says which layers have which attention"
        )
    if family.state or family.window == "chunk":
        return _spaced(config, family.every, "state" if family.state else "chunk")
    switched_on = config.flag("use_sliding_window", default=family.window != "above")
    tokens, context = config.whole("window", 0, 0), config.values.get("max_position_embeddings")
    if not switched_on or not tokens or (isinstance(context, int) and tokens >= context):
        return "full"
    if family.window == "above":
        return "full" if config.index < config.whole("max_window_layers", minimum=0) else "window"
    if family.window in {"all", "window"}:
        return _spaced(config, family.every, "window")
    raise config.error(
        config.key("window"),
        "no key says which layers have this window; give layer_types, or --ignore-key if none has",
    )


_RULES: Mapping[str, Callable[[Config, str], str]] = {
    "each n-th, else a state": _every("state"),
    "each n-th, else a window": _every("window"),
    "each n-th, else a chunk": _every("chunk"),
    "by an offset": _periodic,
    "listed": _chosen,
    "two lists": _both_lists,
    "groups": _grouped,
}
"""Functions that read the keys in the table `rules`, which state the layers with full attention, by rule."""
