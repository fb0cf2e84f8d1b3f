"""The format of every module, from each place where a checkpoint states formats.

Takes `quantization_config` of the config.json and the files beside it. Places that disagree are an error, as
is a method, a group or a target that is not understood.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.errors import SpecError
from optimizer.profiles.config_keys import Config, without_null, yaml_table
from optimizer.profiles.layers import Layer, Matrix, ModelFacts, grouped
from optimizer.profiles.module_names import ModulePatterns

Form = tuple[str, float]
"""A format and its bytes per parameter, with scales."""
_NAMED = re.compile(
    r"(?:^|[^a-z0-9])(nvfp4|mxfp4|fp8|awq|gptq|int[48]|w4a16|w8a8|bnb|nf4)(?:[^a-z0-9]|$)", re.IGNORECASE
)
_Weights = tuple[tuple[Layer, ...], tuple[Matrix, ...]]


@dataclass(frozen=True)
class _Scheme:
    """What one place states."""

    place: str
    base: Form | None
    """Format of linear modules that no group names; None if 16-bit."""
    groups: Sequence[tuple[ModulePatterns, Form]]
    """Modules of each group."""
    ignored: ModulePatterns
    head: bool = False
    """Whether the output head is one of the linear modules."""
    routed: Form | None = None
    """Format of routed experts, if it differs."""

    def form(self, name: str, matrix: Matrix, *, tied: bool) -> Form | None:
        """Return the format of a module; None if it is 16-bit."""
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


def with_formats(
    facts: ModelFacts, config: Config, layers: Sequence[Layer], beside: Mapping[str, Mapping[str, Any]]
) -> ModelFacts:
    """Return the facts with the format of every module; what is not understood is kept as the reason.

    Args:
        facts: the facts, with 16-bit weights.
        config: the config.json.
        layers: all layers, in order.
        beside: files beside it that state formats, by name.
    """
    plain, places = _plain(config), _places(config, beside)
    caches = [form for values in places.values() if (form := _cache(values))]
    notes = (
        (f"the checkpoint asks for an {caches[0]} cache, which is used without --cache",) if caches else ()
    )
    facts = replace(facts, cache=next(iter(caches), None), notes=notes)
    try:
        found, others = _agreed(facts, config, layers, plain, places)
    except SpecError as error:
        return replace(facts, unknown_weights=str(error))
    sizes: dict[str, int] = {}
    for layer in found:
        for matrix in layer.matrices:
            sizes[matrix.form] = sizes.get(matrix.form, 0) + matrix.parameters * (matrix.form != plain[0])
    most = max(sizes, key=lambda form: sizes[form], default=plain[0])
    return replace(
        facts, layers=grouped(found), others=others, checkpoint=most if sizes.get(most) else plain[0]
    )


def _agreed(
    facts: ModelFacts, config: Config, layers: Sequence[Layer], plain: Form, places: Mapping[str, Config]
) -> _Weights:
    """Return layers and other weights with their formats, on which all places agree."""
    tables, stated = yaml_table("quantisation.yaml"), _NAMED.search(facts.name)
    expert_type = config.get("expert_dtype", "bf16")
    if not isinstance(expert_type, str) or expert_type not in tables["experts"]:
        raise config.error("expert_dtype", f"must be one of {', '.join(tables['experts'])}")
    routed = _form(tables["experts"][expert_type])
    if not places and stated:
        raise SpecError(
            f"{config.source}: the name says {stated[1]}, but no file states a quantisation; give the folder "
            "with all its files, or --weights FORMAT"
        )
    schemes = [_scheme(values, routed) for values in places.values()]
    schemes = schemes or [_Scheme(config.source, None, (), ModulePatterns([]), routed=routed)]
    results = [_applied(scheme, layers, facts.others, plain) for scheme in schemes]
    for scheme in schemes:
        for names in (*(names for names, _ in scheme.groups), scheme.ignored):
            names.check(scheme.place, len(layers))
    experts_apart = any("moe_quant_algo" in values.values for values in places.values())
    for scheme, other in zip(schemes[1:], results[1:], strict=True):
        if other != results[0] and not experts_apart:
            sizes = [_gigabytes(result) for result in (results[0], other)]
            raise SpecError(
                f"{schemes[0].place} gives weights of {sizes[0]:.4g} GB, but {scheme.place} gives "
                f"{sizes[1]:.4g} GB; remove the wrong one, or give --weight-size GB"
            )
    return results[0]


def _plain(config: Config) -> Form:
    """Return the format of what is not quantised."""
    table = yaml_table("quantisation.yaml")["plain"]
    stated = str(config.get("weights_type", "auto")).removeprefix("torch.")
    if stated not in table:
        raise config.error(config.key("weights_type"), f"must be one of {', '.join(table)}")
    return str(table[stated][0]), float(table[stated][1])


def _form(entry: Any) -> Form | None:
    return None if entry is None else (str(entry[0]), float(entry[1]))


def _places(config: Config, beside: Mapping[str, Mapping[str, Any]]) -> dict[str, Config]:
    """Return everything that states formats, by its place."""
    found = {}
    for key in ("quantization_config", "compression_config"):
        if config.get(key, None) is not None:
            found[f"{config.source}: {key}"] = config.inner(key).values
    for name, value in beside.items():
        inner = value.get("quantization", value)
        if not isinstance(inner, Mapping):
            raise SpecError(f"{name}: quantization: must be an object")
        place = f"{config.source.rpartition('/')[0]}/{name}".removeprefix("/")
        found[place] = {"quant_method": yaml_table("quantisation.yaml")["files"][name], **without_null(inner)}
    return {place: Config(values, config.family, place) for place, values in found.items()}


def _scheme(values: Config, routed: Form | None) -> _Scheme:
    """Return what one place states.

    Raises:
        SpecError: it is not understood.
    """
    tables = yaml_table("quantisation.yaml")
    method = str(values.get("quant_method", "modelopt" if "quant_algo" in values.values else "")).lower()
    algorithm, experts = str(values.get("quant_algo", "") or ""), values.get("moe_quant_algo", None)
    ignored = [pattern for key in tables["lists"] for pattern in _strings(values, key, ())]
    groups, base, head = [*_groups(values), *_quantised_layers(values)], None, method in tables["with_head"]
    if experts is not None:  # the method is that of everything else
        base, routed, groups, ignored = _by_method(values, method), _algorithm(values, str(experts)), [], []
    elif groups:
        if algorithm.upper() not in {"", "MIXED_PRECISION", *tables["algorithms"]}:
            raise values.error("quant_algo", "this algorithm is not understood")
    elif method.startswith("modelopt"):
        base = _algorithm(values, algorithm or method.rpartition("_")[2].replace("fp4", "nvfp4"))
        if not any(key in values.values for key in tables["lists"]):
            raise values.error(
                "quant_algo", "no list says which modules stay in 16 bit; give --weight-size GB"
            )
    else:
        base, head = _by_method(values, method), values.flag("lm_head")
    if method in tables["experts_only"]:
        base, routed = None, base
    linear = {form for targets, form in groups if "Linear" in targets}
    if len(linear) > 1:
        raise values.error("config_groups", "two groups have the target Linear")
    named = [
        (ModulePatterns([item for item in targets if item != "Linear"]), form) for targets, form in groups
    ]
    ignored += _exceptions(values)
    values.finish(tables["idle"].split())
    return _Scheme(values.source, next(iter(linear), base), named, ModulePatterns(ignored), head, routed)


def _strings(values: Config, key: str, default: Sequence[str]) -> Sequence[str]:
    found = values.get(key, default)
    if not isinstance(found, list | tuple) or not all(isinstance(item, str) for item in found):
        raise values.error(key, "must be a list of names of modules")
    return found


def _groups(values: Config) -> Iterator[tuple[Sequence[str], Form]]:
    """Yield targets and format of each of the `config_groups`."""
    if not values.get("config_groups", None):
        return
    groups, sparse = values.inner("config_groups"), values.get("sparsity_config", None)
    if isinstance(sparse, Mapping) and sparse.get("format", "dense") != "dense":
        raise values.error("sparsity_config", "sparse weights are not understood")
    for key in groups.values:
        group = groups.inner(key)
        yield _strings(group, "targets", ["Linear"]), _weights(group.inner("weights"))
        group.finish(("input_activations", "output_activations", "format"))


def _weights(weights: Config) -> Form:
    """Return the format of a group's weights."""
    bits, kind = weights.get("num_bits"), str(weights.get("type", "int"))
    size, strategy = weights.values.get("group_size"), weights.values.get("strategy")
    size = size if isinstance(size, int) and size > 0 else 0
    zeros = 0.5 * (weights.get("symmetric", True) is False)
    weights.finish(yaml_table("quantisation.yaml")["weights_idle"].split())
    blocks, in_groups = (
        strategy == "block" or "block_structure" in weights.values,
        strategy == "group" and size,
    )
    forms: Mapping[tuple[object, str], Form] = {
        (8, "float"): ("fp8", 1 + (4 / 128**2 if blocks else 1 / size if in_groups else 0)),
        (8, "int"): ("int8", 1 + (2 / size if size else 0)),
        (4, "float"): ("mxfp4" if size == 32 else "fp4", 0.5 + 1 / (size or 16)),
        (4, "int"): ("int4", 0.5 + ((2 + zeros) / size if size else 0)),
    }
    if not isinstance(bits, int) or (bits, kind) not in forms:
        raise weights.error("num_bits", f"with type {kind!r} is not understood")
    return forms[bits, kind]


def _quantised_layers(values: Config) -> list[tuple[Sequence[str], Form]]:
    """Return the modules of each algorithm of `quantized_layers` (ModelOpt)."""
    raw = values.get("quantized_layers", {})
    if not isinstance(raw, Mapping):
        raise values.error("quantized_layers", "must be an object")
    found: dict[str, list[str]] = {}
    for name, entry in raw.items():
        found.setdefault(str(entry.get("quant_algo")) if isinstance(entry, Mapping) else "", []).append(name)
    return [(names, _algorithm(values, algorithm)) for algorithm, names in found.items()]


def _algorithm(values: Config, name: str) -> Form:
    form, size = (
        _form(yaml_table("quantisation.yaml")["algorithms"].get(name.upper())),
        values.values.get("group_size"),
    )
    if form is None:
        raise values.error("quant_algo", f"{name[:40]!r} is not understood")
    return ("int4", 0.5 + 2 / size) if form[0] == "int4" and isinstance(size, int) and size > 0 else form


def _by_method(values: Config, method: str) -> Form:
    """Return the format of linear modules by a method that names a single one."""
    tables = yaml_table("quantisation.yaml")
    form, bits = _form(tables["methods"].get(method)), values.values.get("bits", values.values.get("w_bit"))
    block = values.get("weight_block_size", None)
    if form and block:
        if not (
            isinstance(block, list)
            and len(block) == 2
            and all(isinstance(item, int) and item > 0 for item in block)
        ):
            raise values.error("weight_block_size", "must be two integers of at least 1")
        return form[0], form[1] + 4 / (block[0] * block[1])
    size = values.values.get("q_group_size", values.values.get("group_size", 128))
    if method in tables["grouped_methods"] and isinstance(bits, int) and bits in {4, 8}:
        form = f"int{bits}", bits / 8 + (2.5 / size if isinstance(size, int) and size > 0 else 0.0)
    if method == "bitsandbytes":
        scales = 1 / 64 if values.flag("bnb_4bit_use_double_quant") else 4 / 64
        form = ("int4", 0.5 + scales) if values.flag("load_in_4bit") else ("int8", 1.0)
    if form is None:
        key = "quant_method" if bits is None else "bits"
        raise values.error(key, f"the method {method or 'without a name'} is not understood")
    return form


def _exceptions(values: Config) -> Iterator[str]:
    """Yield patterns of single modules that stay in 16 bit (GPTQModel, AutoRound)."""
    for key in ("dynamic", "extra_config"):
        for pattern, entry in values.inner(key).values.items() if key in values.values else ():
            bits = entry.get("bits") if isinstance(entry, Mapping) else None
            if bits != 16 and not pattern.startswith("-:"):
                raise values.error(key, f"the entry {pattern[:40]!r} is not understood; only 16 bit is")
            yield re.sub(r"^[-+]:", "re:", pattern)


def _cache(values: Config) -> str | None:
    """Return the cache format that a place asks for."""
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        stated = values.get(key, None)
        if isinstance(stated, Mapping):
            stated = (
                "FP8" if (stated.get("num_bits"), stated.get("type")) == (8, "float") else str(dict(stated))
            )
        if stated and str(stated).upper() != "FP8":
            raise values.error(key, "this format is not understood; only FP8 is")
        if stated:
            return "fp8"
    return None


def _applied(scheme: _Scheme, layers: Sequence[Layer], others: Sequence[Matrix], plain: Form) -> _Weights:
    """Return layers and other weights with their formats."""
    tied = not any(matrix.module == "embed_tokens" for matrix in others)

    def stored(matrix: Matrix, place: str) -> Matrix:
        form, size = scheme.form(place + matrix.module, matrix, tied=tied) or plain
        return replace(matrix, form=form, size=size)

    found = (
        replace(layer, matrices=tuple(stored(matrix, f"layers.{i}.") for matrix in layer.matrices))
        for i, layer in enumerate(layers)
    )
    return tuple(found), tuple(stored(matrix, "") for matrix in others)


def _gigabytes(weights: _Weights) -> float:
    matrices = [matrix for layer in weights[0] for matrix in layer.matrices] + list(weights[1])
    return sum(matrix.parameters * matrix.size for matrix in matrices if matrix.use != "mtp") / 1e9
