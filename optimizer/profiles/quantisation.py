"""Determines the number format of every module from all places where a checkpoint states formats.

These are `quantization_config` in the config.json, and files in its folder. Contradictions are errors, and so
are unknown methods, groups and targets.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from optimizer.errors import SpecError
from optimizer.profiles.config_keys import Config, without_null, yaml_table
from optimizer.profiles.layers import Layer, Matrix, ModelFacts, grouped
from optimizer.profiles.module_names import ModulePatterns

Form = tuple[str, float]
"""A number format: its name, and its size per parameter with scales [bytes]."""
_NAMED = re.compile(
    r"(?:^|[^a-z0-9])(nvfp4|mxfp4|fp8|awq|gptq|int[48]|w4a16|w8a8|bnb|nf4)(?:[^a-z0-9]|$)", re.IGNORECASE
)


@dataclass(frozen=True)
class _Scheme:
    """The formats of modules that one part of a checkpoint states."""

    place: str
    base: Form | None = None
    """Format of linear modules that are in no group; None for 16-bit."""
    groups: Sequence[tuple[ModulePatterns, Form]] = ()
    """Modules and format of each group."""
    ignored: ModulePatterns = ModulePatterns([])  # noqa: RUF009  no pattern, which never changes
    head: bool = False
    """Whether the output head counts as a linear module."""
    routed: Form | None = None
    """Format of routed experts, if it differs from `base`; else None."""

    def form(self, name: str, matrix: Matrix, *, tied: bool) -> Form | None:
        """Return the format of a module; None for 16-bit."""
        named = {form for names, form in self.groups if names.match(name)}
        if len(named) > 1:
            raise SpecError(f"{self.place}: {name} is in groups of different formats; remove the wrong one")
        ignored = self.ignored.match(name)
        if self.routed is not None and matrix.use == "routed":
            return self.routed
        if ignored or matrix.use in {"tower", "mtp"}:
            return None
        router = matrix.module.rpartition(".")[2] in {"gate", "router"}
        linear = matrix.use in {"dense", "routed"} or (matrix.use == "head" and self.head and not tied)
        return next(iter(named), self.base if linear and not router else None)

    def applied(self, facts: ModelFacts, layers: Sequence[Layer], plain: Form) -> ModelFacts:
        """Return the facts with the formats of this scheme for all weights.

        Raises:
            SpecError: a pattern matches no module.
        """
        tied = not any(matrix.module == "embed_tokens" for matrix in facts.others)

        def stored(matrix: Matrix, place: str) -> Matrix:
            form, size = self.form(place + matrix.module, matrix, tied=tied) or plain
            return replace(matrix, form=form, size=size)

        applied = [
            replace(layer, matrices=tuple(stored(matrix, f"layers.{i}.") for matrix in layer.matrices))
            for i, layer in enumerate(layers)
        ]
        others = tuple(stored(matrix, "") for matrix in facts.others)
        for names in (*(names for names, _ in self.groups), self.ignored):
            names.check(self.place, len(layers))
        return replace(facts, layers=grouped(applied), others=others)


def with_formats(
    facts: ModelFacts, config: Config, layers: Sequence[Layer], beside: Mapping[str, Mapping[str, Any]]
) -> ModelFacts:
    """Return the facts with the format of every module; if it is unknown, `unknown_weights` has the reason.

    Args:
        facts: the facts, with 16-bit weights.
        config: the config.json.
        layers: all layers, in order.
        beside: contents of files in its folder that state formats, by file name.
    """
    plain, places = _plain(config), _places(config, beside)
    cache = next((form for values in places if (form := _cache(values))), None)
    notes = (f"the checkpoint asks for an {cache} cache, which is used without --cache",) if cache else ()
    facts = replace(facts, cache=cache, notes=notes)
    try:
        facts = _agreed(facts, config, layers, plain, places)
    except SpecError as error:
        return replace(facts, unknown_weights=f"{error}; give --weight-size GB or --weights FORMAT instead")
    sizes: Counter[str] = Counter({plain[0]: 0})
    for matrix, times in facts.matrices:
        if matrix.use in {"dense", "routed"} and matrix.form != plain[0]:
            sizes[matrix.form] += times * matrix.parameters
    return replace(facts, checkpoint=max(sizes, key=sizes.__getitem__))


def _agreed(
    facts: ModelFacts, config: Config, layers: Sequence[Layer], plain: Form, places: Sequence[Config]
) -> ModelFacts:
    """Return the facts with the formats of all weights; all parts of the checkpoint must agree on them."""
    expert_types, stated = yaml_table("quantisation.yaml")["experts"], _NAMED.search(facts.name)
    expert_type = config.get("expert_dtype", "bf16")
    if not isinstance(expert_type, str) or expert_type not in expert_types:
        raise config.error("expert_dtype", f"must be one of {', '.join(expert_types)}")
    routed = _form(expert_types[expert_type])
    if not places and stated:
        raise SpecError(
            f"{config.source}: the name says {stated[1]}, but no file states a quantisation; give the folder "
            "with all its files"
        )
    schemes = [_scheme(values, routed) for values in places] or [_Scheme(config.source, routed=routed)]
    results = [scheme.applied(facts, layers, plain) for scheme in schemes]
    experts_apart = any("moe_quant_algo" in values.values for values in places)
    for scheme, other in zip(schemes[1:], results[1:], strict=True):
        if other != results[0] and not experts_apart:
            sizes = [_gigabytes(result) for result in (results[0], other)]
            raise SpecError(
                f"{schemes[0].place} gives weights of {sizes[0]:.4g} GB, but {scheme.place} gives "
                f"{sizes[1]:.4g} GB; remove the wrong one"
            )
    return results[0]


def _plain(config: Config) -> Form:
    """Return the format of modules that are not quantised, from the config's data type."""
    stated = str(config.get("weights_type", "auto")).removeprefix("torch.")
    types = yaml_table("quantisation.yaml")["plain"]
    if stated not in types:
        raise config.error(config.key("weights_type"), f"must be one of {', '.join(types)}")
    return str(types[stated][0]), float(types[stated][1])


def _places(config: Config, beside: Mapping[str, Mapping[str, Any]]) -> list[Config]:
    """Return the parts of a checkpoint that state formats, each as a config."""
    keys = ("quantization_config", "compression_config")
    places = [config.inner(key) for key in keys if config.get(key, None) is not None]
    for name, value in beside.items():
        inner = value.get("quantization", value)
        if not isinstance(inner, Mapping):
            raise SpecError(f"{name}: quantization: must be an object")
        place = f"{config.source.rpartition('/')[0]}/{name}".removeprefix("/")
        method = {"quant_method": yaml_table("quantisation.yaml")["files"][name]}
        places.append(Config(method | without_null(inner), config.family, place))
    return places


def _scheme(values: Config, routed: Form | None) -> _Scheme:
    """Read the formats that one part of a checkpoint states.

    Raises:
        SpecError: a format is unknown.
    """
    tables = yaml_table("quantisation.yaml")
    method = str(values.get("quant_method", "modelopt" if "quant_algo" in values.values else "")).lower()
    experts, groups = values.get("moe_quant_algo", None), [*_groups(values), *_quantised_layers(values)]
    ignored = [pattern for key in tables["lists"] for pattern in _strings(values, key, ())]
    linear = {form for targets, form in groups if "Linear" in targets}
    if len(linear) > 1:
        raise values.error("config_groups", "two groups have the target Linear")
    base = next(iter(linear), None) if groups else _base(values, method)
    if experts is not None:  # the method applies to all other modules
        base, routed, groups, ignored = _base(values, method), _algorithm(values, str(experts)), [], []
    elif groups and str(values.get("quant_algo", "")).upper() not in {
        "",
        "MIXED_PRECISION",
        *tables["forms"],
    }:
        raise values.error("quant_algo", "this algorithm is not understood")
    if method in tables["experts_only"]:
        base, routed = None, base
    named = [
        (ModulePatterns([item for item in targets if item != "Linear"]), form) for targets, form in groups
    ]
    ignored += _exceptions(values)
    head = method in tables["with_head"] or values.flag("lm_head")
    values.finish(tables["idle"].split())
    return _Scheme(values.source, base, named, ModulePatterns(ignored), head, routed)


def _strings(values: Config, key: str, default: Sequence[str]) -> Sequence[str]:
    strings = values.get(key, default)
    if not isinstance(strings, list | tuple) or not all(isinstance(item, str) for item in strings):
        raise values.error(key, "must be a list of names of modules")
    return strings


def _form(name: str, size: int | None = None) -> Form | None:
    """Look up a format in the table `forms`; return None if it has no such name.

    Args:
        name: name of the format in checkpoints, in any case.
        size: number of weights with a common scale; None if not stated, 0 or less for entire rows.
    """
    forms = yaml_table("quantisation.yaml")["forms"]
    entry = forms.get(f"{name} {size}".upper(), forms.get(name.upper()))
    if entry is None:
        return None
    form, bits, scale, usual = (*entry, 0, 0)[:4]
    number = usual if size is None else size
    return form, bits / 8 + (scale / number if number > 0 else 0)


def _groups(values: Config) -> Iterator[tuple[Sequence[str], Form]]:
    """Yield the target modules and the format of each of the `config_groups`."""
    if not values.get("config_groups", None):
        return
    groups, sparse = values.inner("config_groups"), values.get("sparsity_config", None)
    if isinstance(sparse, Mapping) and sparse.get("format", "dense") != "dense":
        raise values.error("sparsity_config", "sparse weights are not understood")
    for key in groups.values:
        group = groups.inner(key)
        targets, weights = _strings(group, "targets", ["Linear"]), group.inner("weights")
        if not targets:
            raise group.error("targets", "must name modules")
        type_ = weights.get("type", "int")
        name = f"{type_}{weights.get('num_bits')}"
        strategy, zeros = weights.values.get("strategy"), weights.get("symmetric", True) is False
        blocks = strategy == "block" or "block_structure" in weights.values
        name += " block" * blocks + " zeros" * zeros + " group" * (strategy == "group" and "float8" in name)
        form = _form(name, weights.whole("scale_group", None, -1))
        if form is None:
            raise weights.error("num_bits", f"with type {str(type_)[:20]!r} is not understood")
        for part, idle in ((weights, "weights_idle"), (group, "groups_idle")):
            part.finish(yaml_table("quantisation.yaml")[idle].split())
        yield targets, form


def _quantised_layers(values: Config) -> list[tuple[Sequence[str], Form]]:
    """Return the modules and the format of each algorithm in `quantized_layers` (ModelOpt)."""
    raw = values.get("quantized_layers", {})
    if not isinstance(raw, Mapping):
        raise values.error("quantized_layers", "must be an object")
    quantised_layers: dict[str, list[str]] = {}
    for name, entry in raw.items():
        quantised_layers.setdefault(
            str(entry.get("quant_algo")) if isinstance(entry, Mapping) else "", []
        ).append(name)
    return [(names, _algorithm(values, algorithm)) for algorithm, names in quantised_layers.items()]


def _algorithm(values: Config, name: str) -> Form:
    form = _form(name, values.whole("scale_group", None, -1))
    if form is None:
        raise values.error("quant_algo", f"{name[:40]!r} is not understood")
    return form


def _base(values: Config, method: str) -> Form | None:
    """Return the format of linear modules if no group states it."""
    if method.startswith("modelopt"):
        algorithm = values.get("quant_algo") if method == "modelopt" else values.get("quant_algo", method)
        if not any(key in values.values for key in yaml_table("quantisation.yaml")["lists"]):
            raise values.error("quant_algo", "no list says which modules stay in 16 bit")
        return _algorithm(values, str(algorithm))
    name, size = _by_method(values, method)
    form = _form(name, size)
    if form is None and method == "compressed-tensors":
        raise values.error("config_groups", "missing; no group states a format")
    if form is None:
        key = values.key("weight_bits") if name.startswith("grouped") else "quant_method"
        raise values.error(key, f"the format {name or 'without a name'} is not understood")
    return form


def _by_method(values: Config, method: str) -> tuple[str, int | None]:
    """Return the name of a method's format, and the number of weights with a common scale."""
    block = values.get("weight_block_size", None)
    if method == "quark":
        own = values.inner("layer_quant_config") if "layer_quant_config" in values.values else None
        if own and any("weight" in own.inner(name).values for name in own.values):
            raise values.error("layer_quant_config", "weights of single layers are not understood")
        weights = values.inner("global_quant_config").inner("weight")
        if _form(f"quark {weights.get('dtype')}") is None:
            raise weights.error("dtype", "this format is not understood")
        return f"quark {weights.get('dtype')}", weights.whole("scale_group", None, -1)
    if method == "bitsandbytes":
        four, eight = values.flag("load_in_4bit"), values.flag("load_in_8bit")
        if not four and not eight:
            raise values.error("load_in_4bit", "neither this nor load_in_8bit is true")
        double = values.flag("bnb_4bit_use_double_quant")
        return ("nf4 double" if double else "nf4") if four else "int8", None
    if method in yaml_table("quantisation.yaml")["grouped_methods"]:
        return f"grouped {values.get('weight_bits')}", values.whole("scale_group", None, -1)
    if not block:
        return method, None
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)):
        raise values.error("weight_block_size", "must be two integers of at least 1")
    return f"{method} block", prod(block)


def _exceptions(values: Config) -> Iterator[str]:
    """Yield patterns of single modules that stay in 16 bit (GPTQModel, AutoRound)."""
    for key in ("dynamic", "extra_config"):
        for pattern, entry in values.inner(key).values.items() if key in values.values else ():
            bits = entry.get("bits") if isinstance(entry, Mapping) else None
            if entry == {} and not pattern.startswith("-:"):
                continue  # same as all others
            if bits != 16 and not pattern.startswith("-:"):
                raise values.error(key, f"the entry {pattern[:40]!r} is not understood; only 16 bit is")
            yield re.sub(r"^[-+]:", "re:", pattern)


def _cache(values: Config) -> str | None:
    """Return the KV cache format that a part of the configuration states; None if it states none."""
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        stated = values.get(key, None)
        if isinstance(stated, Mapping):
            eight = (stated.get("num_bits"), stated.get("type")) == (8, "float")
            stated = "FP8" if eight else str(dict(stated))
        if stated and str(stated).upper() != "FP8":
            raise values.error(key, "this format is not understood; only FP8 is")
        if stated:
            return "fp8"
    return None


def _gigabytes(facts: ModelFacts) -> float:
    stored = (times * item.parameters * item.size for item, times in facts.matrices if item.use != "mtp")
    return sum(stored) / 1e9
