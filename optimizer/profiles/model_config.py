"""Reads a model from the config.json of its Hugging Face repository, and from other files in its folder.

The result is a list of layers. Every key is either used, known to be harmless, or an error that names it,
because an estimate for a guessed architecture would be worthless.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from optimizer.errors import SpecError
from optimizer.profiles.attention_parts import attention_of, matrices_of
from optimizer.profiles.block_configs import block_layer
from optimizer.profiles.checkpoint_files import json_object, side_files, stored_bytes
from optimizer.profiles.config_keys import (
    REQUIRED,
    STATED,
    Config,
    described,
    families,
    flattened,
    parts_table,
    readable_keys,
    repeats,
    without_null,
)
from optimizer.profiles.feed_forward_parts import feed_forward_of
from optimizer.profiles.layer_types import layer_count, layer_type
from optimizer.profiles.layers import Layer, Matrix, ModelFacts, grouped
from optimizer.profiles.quantisation import with_formats
from optimizer.quantities import counted
from optimizer.schema.messages import json_type

_WRAPPERS = ("text_config", "llm_config", "language_config")
_OUTER = ("tie_word_embeddings",)
"""Keys of the outer object that override the inner one, because the class of the entire model has the output
head.
"""
_QUANTISED = ("quantization_config", "compression_config")
_TOWERS = ("vision_config", "audio_config")
_BESIDE_THINKER = (
    "talker_config",
    "code2wav_config",
    "enable_audio_output",
    "enable_talker",
    "architectures",
)
_REFUSED = ("bert", "t5", "bart", "whisper", "clip", "rwkv", "recurrent", "xlstm", "zamba", "zaya", "mllama")
"""Parts of the names of unsupported model types: encoders, encoder-decoders and recurrent networks."""


def read_model_config(
    path: str | Path, ignored: Sequence[str] = (), *, sizes_known: bool = False
) -> ModelFacts:
    """Read a model from its folder or its config.json.

    Args:
        path: the folder or file; other files in the folder can state formats and sizes.
        ignored: keys to treat as having no effect.
        sizes_known: whether the sizes of weights and cache are stated elsewhere, so that unknown keys do not
            matter.

    Raises:
        SpecError: a file cannot be read, or a value cannot be interpreted.
    """
    file = Path(path)
    if file.is_dir():
        file /= "config.json"
    raw = json_object(file)
    whole = file.name == "config.json"
    name = file.resolve().parent.name if whole else file.stem
    model = model_of_config(
        raw,
        name,
        str(file),
        side_files(file.parent) if whole else {},
        ignored=ignored,
        sizes_known=sizes_known,
    )
    return replace(model, stored_bytes=stored_bytes(file.parent) if whole else None)


def model_of_config(
    raw: Mapping[str, Any],
    name: str = "model",
    source: str = "config.json",
    beside: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    ignored: Sequence[str] = (),
    sizes_known: bool = False,
) -> ModelFacts:
    """Return the architecture that a config.json describes.

    Args:
        raw: the parsed config.json.
        name: name of the model.
        source: name of the file, for messages.
        beside: contents of other files that state formats, by file name.
        ignored: keys to treat as having no effect.
        sizes_known: whether the sizes of weights and cache are stated elsewhere.

    Raises:
        SpecError: a key is missing, or a value is unknown.
    """
    try:
        text = _decoder(raw, source)
        for key in ignored:
            _check_ignored(key, text.pop(key, None), source, sizes_known=sizes_known)
        return _understood(text, name, source, beside or {}, ignored, sizes_known=sizes_known)
    except IgnoredKeyError:
        raise
    except SpecError as error:
        if sizes_known:
            return _not_understood(raw, name, source, str(error))
        other = "or " if "--ignore-key" in str(error) else ""
        raise SpecError(f"{error}; {other}state the sizes: {STATED}") from None


class IgnoredKeyError(SpecError):
    """Raised if a key that is to be ignored does not exist, or must not be ignored."""


def _check_ignored(key: str, value: object, source: str, *, sizes_known: bool) -> None:
    """Check that a key may be ignored.

    Raises:
        IgnoredKeyError: it does not exist, or it multiplies the cache and the sizes are unknown.
    """
    if value is None:
        raise IgnoredKeyError(f"--ignore-key {key}: {source} has no such key; do not ignore it")
    if repeats(key, value) and not sizes_known:
        raise IgnoredKeyError(
            f"--ignore-key {key}: {source}: {key} = {value} runs layers several times, which multiplies the "
            f"cache; state the sizes: {STATED}"
        )


def _understood(
    text: dict[str, Any],
    name: str,
    source: str,
    beside: Mapping[str, Mapping[str, Any]],
    ignored: Sequence[str],
    *,
    sizes_known: bool,
) -> ModelFacts:
    """Return the architecture that the keys of a decoder describe; arguments as for `model_of_config`.

    Raises:
        SpecError: the keys cannot be interpreted, or some are unknown and the sizes, too.
    """
    type_, family, problem = _family(text)
    try:
        config = _config(text, family, source)
        facts, unknown = _facts(config, name, beside)
    except SpecError as error:
        unread = Config(without_null(text), family, source).unknown((*_TOWERS, *_QUANTISED, *readable_keys()))
        also = [problem or type_, described(unread, text) if unread else ""]
        raise SpecError("; ".join([str(error), *filter(None, also)])) from None
    notes = [f"{type_}; read as {_in_words(facts)}"] if type_ else []
    notes += [f"read without {', '.join(sorted(ignored))}"] if ignored else []
    notes += [described(unknown, config.values)] if unknown and sizes_known else []
    if (problem or unknown) and not sizes_known:
        said = filter(None, [problem, described(unknown, config.values) if unknown else ""])
        raise SpecError(f"{source}: {'; '.join(said)}{_advice(text, problem, unknown)}")
    return replace(facts, notes=(*notes, *facts.notes), assumed=bool(type_))


def _advice(text: Mapping[str, Any], problem: str, unknown: Sequence[str]) -> str:
    """Return the keys to ignore if a model is an ordinary decoder; empty if that would be wrong."""
    several = [key for key in unknown if repeats(key, text.get(key))]
    if several:
        return f"; {' and '.join(several)} may run layers several times, which multiplies the cache"
    doubtful = [key for key in ("auto_map", "hidden_act") if f"{key} " in problem]
    if problem and not doubtful:  # the type itself is not supported
        return ""
    flags = " ".join(f"--ignore-key {key}" for key in (*doubtful, *unknown))
    they = "they have" if len(unknown) > 1 else "it has"
    reasons = ["the model is an ordinary decoder"] * bool(doubtful)
    reasons += [f"{they} no effect on the memory"] * bool(unknown)
    return f"; give {flags} if {' and '.join(reasons)}"


def _not_understood(raw: Mapping[str, Any], name: str, source: str, why: str) -> ModelFacts:
    """Return facts of a model whose layers are not understood, for a deployment with stated sizes."""
    inner = [raw[key] for key in _WRAPPERS if isinstance(raw.get(key), Mapping)]
    facts = {**raw, **(inner[0] if inner else {})}

    def size(fact: str) -> int | None:
        tables = parts_table()
        names = (*tables["facts"].get(fact, ()), *tables["first"].get(fact, ()))
        return next((facts[key] for key in names if type(facts.get(key)) is int and facts[key] > 0), None)

    return ModelFacts(
        name=name,
        layers=(Layer(parts=0, count=min(size("layers") or 1, 10_000)),),
        others=(),
        hidden=size("hidden") or 0,
        vocab=size("vocab") or 0,
        context=size("context"),
        unknown_weights="not understood",
        notes=(f"the layers are not understood, so only the stated sizes are used: {why}",),
        assumed=True,
        source=source,
        as_of="the file given",
    )


def _config(text: Mapping[str, Any], family: SimpleNamespace, source: str) -> Config:
    """Return the config with the defaults of its model family, and with the keys of single layers.

    Raises:
        SpecError: a key is missing, or cannot be interpreted for this family.
    """
    stated = {key: value for key, value in text.items() if key not in family.idle}
    if stated.get("no_rope_layers") == []:  # same as absent: every fourth layer
        del stated["no_rope_layers"]
    defaults = dict(family.defaults)
    if any(isinstance(stated.get(key), list) for key in ("mlp_layer_types", "moe_layer_freq")):
        defaults.pop("first_k_dense_replace", None)
    if "per_layer_config" in stated:  # it states each width that differs from head_dim
        defaults.pop("global_head_dim", None)
    config = Config(without_null(defaults | stated), family, source)
    config = replace(config, layers=layer_count(config))
    for fact in (*parts_table()["elsewhere"], *family.required):
        config.get(fact, REQUIRED if fact in family.required else None)
    for key, only in parts_table()["only"].items():
        if config.get(key, only) != only:
            raise config.error(key, f"must be {only}")
    refused = [key for key in config.values if key.partition(".")[0] in family.refused]
    if refused:
        others = f" (like {', '.join(refused[1:])})" if refused[1:] else ""
        raise config.error(refused[0], f"this key{others} is known only for some model types")
    return replace(config, own=_own_keys(config))


def _facts(
    config: Config, name: str, beside: Mapping[str, Mapping[str, Any]]
) -> tuple[ModelFacts, list[str]]:
    """Return the architecture of a decoder of a family, and its unknown keys."""
    layers = _layers(config)
    others = [*_ends(config), *_towers(config), *_speculation(config, layers[-1])]
    facts = ModelFacts(
        name=name,
        layers=grouped(layers),
        others=tuple(others),
        hidden=config.whole("hidden"),
        vocab=config.whole("vocab"),
        context=config.whole("context", None),
        source=config.source,
        as_of="the file given",
    )
    facts = with_formats(facts, config, layers, beside)
    notes = [
        f"{item.module}: not counted, its sizes are not stated" for item in others if not item.parameters
    ]
    return replace(facts, notes=(*facts.notes, *notes)), config.unknown(_TOWERS)


def _decoder(raw: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the keys of the decoder: those of the inner object, or else of the outer one.

    Raises:
        SpecError: the value for the inner object is not an object.
    """
    outer = dict(raw)
    if isinstance(thinker := outer.pop("thinker_config", None), Mapping):
        outer = {**{key: outer[key] for key in outer if key not in _BESIDE_THINKER}, **thinker}
    for wrapper in _WRAPPERS:
        inner = outer.pop(wrapper, None)
        if inner is not None and not isinstance(inner, Mapping):
            raise SpecError(f"{source}: {wrapper}: must be an object with keys, not {json_type(inner)}")
        outer |= {**(inner or {}), **{key: outer[key] for key in _OUTER if outer.get(key) is not None}}
    return flattened(outer, source, parts_table()["nested"])


def _own_keys(config: Config) -> Mapping[int, Mapping[str, Any]]:
    """Return the keys of single layers, by index of the layer.

    Raises:
        SpecError: the values are not objects, or belong to layers that do not exist.
    """
    key = "block_configs" if "block_configs" in config.values else "per_layer_config"
    own_keys = config.get(key, {})
    if key == "block_configs":
        if not isinstance(own_keys, list) or len(own_keys) != config.layers:
            raise config.error(key, f"must list {config.layers} blocks")
        own_keys = dict(enumerate(own_keys))
    numbers = {str(number) for number in range(config.layers)}
    if not isinstance(own_keys, Mapping) or {str(name).lstrip("0") or "0" for name in own_keys} - numbers:
        raise config.error(key, f"must be an object with a key for some of the {config.layers} layers")
    if not all(isinstance(value, Mapping) for value in own_keys.values()):
        raise config.error(key, "the keys of each layer must be an object")
    place = f"{config.source}: {key}"
    return {
        int(name): without_null(flattened(value, place, ("attention", "ffn")))
        for name, value in own_keys.items()
    }


def _family(text: Mapping[str, Any]) -> tuple[str, SimpleNamespace, str]:
    """Return a sentence on an unknown model type (empty if known), the family, and why it is a guess."""
    name = str(text.get("model_type") or "").lower()
    if name in families() and not text.get("is_encoder_decoder"):
        return "", families()[name], ""
    type_, problem = f"model_type {name!r} is not known" if name else "no model_type is stated", ""
    if text.get("is_encoder_decoder") or any(part in name for part in _REFUSED):
        key = "is_encoder_decoder" if text.get("is_encoder_decoder") else "model_type"
        problem = f"{key} = {text[key]}: only decoder models of the usual types are supported"
    elif text.get("auto_map") is not None:
        problem = f"{type_}, and auto_map names code of its own"
    elif str(text.get("hidden_act", "silu")) not in {"silu", "swish"}:
        problem = (
            f"{type_}, and hidden_act = {text['hidden_act']} leaves open whether parts have three matrices"
        )
    return type_, families()["_standard"], problem


def _layers(config: Config) -> list[Layer]:
    """Return all layers of the model, from first to last."""
    views = [config.at(index) for index in range(config.layers)]
    if "block_configs" in config.values:
        return list(map(block_layer, views))
    types = [(view, layer_type(view)) for view in views]
    return [attention_of(view, type_) + feed_forward_of(view, type_) for view, type_ in types]


def _ends(config: Config) -> Iterator[Matrix]:
    """Yield the weights outside of the layers, such as embedding and output head."""
    size = config.whole("hidden") * config.whole("vocab")
    yield Matrix("lm_head", size, "head")
    if not config.flag("tied", default=config.family.tied):
        yield Matrix("embed_tokens", size, "embedding")
    optional = {
        key: config.whole(key, 0, 0) for key in ("hidden_size_per_layer_input", "laurel_rank", "hc_mult")
    }
    words = config.whole("vocab_size_per_layer_input", config.whole("vocab"))
    more = optional | {"times": config.layers, "vocab_size_per_layer_input": words}
    more |= {"altup_more": config.whole("altup_num_inputs", 1) - 1, "hc_more": optional["hc_mult"] + 2}
    for matrix in matrices_of(config, "ends", "", more):
        yield replace(matrix, use="embedding") if matrix.module.startswith("embed") else matrix


def _towers(config: Config) -> Iterator[Matrix]:
    """Yield the weights of transformer layers in vision and audio towers."""
    for name in _TOWERS:
        tower = config.values.get(name)
        if not isinstance(tower, Mapping):
            continue

        def size(*keys: str, tower: Mapping[str, Any] = tower) -> int:
            return next((tower[key] for key in keys if isinstance(tower.get(key), int)), 0)

        width = size("hidden_size", "vt_hidden_size", "embed_dim", "width", "d_model")
        inner = size("intermediate_size", "vt_intermediate_size", "mlp_dim", "encoder_ffn_dim") or 4 * width
        layers = size("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers", "encoder_layers")
        three = "gemma4" in str(tower.get("model_type", "")) or tower.get("hidden_act") == "silu"
        merger = width * size("spatial_merge_size") ** 2 * bool(size("out_hidden_size"))
        parameters = layers * (4 * width**2 + (2 + three) * width * inner) + merger * (
            merger + size("out_hidden_size")
        )
        yield Matrix(f"{name.removesuffix('_config')}_tower", parameters, "tower")


def _speculation(config: Config, last: Layer) -> Iterator[Matrix]:
    """Yield the weights of layers for speculative decoding, each like the last layer.

    Engines load them only for speculative decoding.
    """
    number = config.whole("speculation", 0, 0)
    if config.flag("use_mtp", default=True) and number:
        size = sum(matrix.parameters for matrix in last.matrices) + 2 * config.whole("hidden") ** 2
        yield Matrix("mtp", number * size, "mtp")


def _in_words(facts: ModelFacts) -> str:
    layers = [f"{layer.count} with {layer.attention}, {layer.feed_forward}" for layer in facts.layers]
    return f"{counted(facts.count, 'layer')}: {'; '.join(layers)}"
