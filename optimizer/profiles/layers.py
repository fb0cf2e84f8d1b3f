"""A model as a list of layers: the cache, the weights and the arithmetic of each.

Everything else in the package (weights, cache, largest batch, token times) is a sum over these layers.
Equation numbers are those of docs/estimate.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

CACHE_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_ds_mla": 1.0}
"""Bytes of one number in the cache; `fp8_ds_mla` packs the rows of a latent cache differently."""
ALL_FORMATS = tuple(CACHE_BYTES)


@dataclass(frozen=True, slots=True)
class Cache:
    """A part of the cache of one layer: rows for tokens, or a state of fixed size."""

    type: str
    """grows, window, chunk, latent, index, compressed or state."""
    numbers: int = 0
    """Numbers of a row, of one head if there are heads."""
    heads: int = 0
    """KV heads, divided among devices and copied if there are fewer; 0: each device holds the entire row."""
    limit: int | None = None
    """Maximum number of tokens kept; None if all."""
    every: int = 1
    """Number of tokens per row."""
    packed: tuple[tuple[str, float], ...] = ()
    """Bytes of a row in the cache formats that do not store each number in the same size."""
    read: int | None = None
    """Maximum number of tokens that an output token reads; None if all."""
    state_bytes: float = 0.0
    """State of a request, divided among devices [bytes]."""
    groups: int = 0
    """Groups of a Mamba-2 convolution, copied if they do not divide among devices."""
    group_bytes: float = 0.0
    """State of one of these groups [bytes]."""

    def row_bytes(self, cache: str, tp: int) -> float:
        """Return the bytes of a row on one device (eq. E16)."""
        packed = dict(self.packed)
        if cache in packed:
            return packed[cache]
        return max(-(-self.heads // tp), 1) * self.numbers * CACHE_BYTES[cache]

    def fixed_bytes(self, tp: int) -> float:
        """Return the state of a request on one device [bytes]."""
        groups = self.groups if self.groups % tp == 0 else tp
        return (self.state_bytes + groups * self.group_bytes) / tp

    def rows(self, tokens: float) -> float:
        """Return the rows kept of a request."""
        return min(tokens, self.limit or tokens) / self.every


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weights of a module, in the format of the checkpoint."""

    module: str
    """Name in the checkpoint, below the layer."""
    parameters: int
    use: str
    """dense: read in every iteration; routed: read if a token selects them; head; embedding: looked up; tower
    and mtp: stored in addition to the decoder.
    """
    form: str = "bf16"
    """Format."""
    size: float = 2.0
    """Bytes of a parameter, with its scales."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts."""

    count: int
    """Number of routed experts."""
    per_token: int | None
    """Number of routed experts used per token; None if not stated."""
    ffn: int
    """Width of a routed expert."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, or several equal ones."""

    attention: str = ""
    """Attention, as text."""
    feed_forward: str = ""
    """Feed-forward part, as text."""
    caches: tuple[Cache, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    heads: int = 0
    """Query heads."""
    width: float = 0.0
    """Mean width of a head's query and value, for the arithmetic of a prompt."""
    absorbed: int = 0
    """Numbers of a cached row multiplied per head in decoding, if attention works on compressed rows."""
    ffn: int = 0
    """Width of the feed-forward part that every token uses."""
    experts: Experts | None = None
    parts: int = 1
    """Sub-layers; each ends with an all-reduce if devices share the model."""
    count: int = 1
    """Number of layers of this type."""

    def __add__(self, other: "Layer") -> "Layer":
        """Return the layer that has the parts of both."""
        values = {name: getattr(self, name) for name in self.__slots__}
        for name in ("caches", "matrices", "heads", "width", "absorbed", "ffn", "parts"):
            values[name] += getattr(other, name)
        for name in ("attention", "feed_forward"):
            values[name] = " + ".join(filter(None, (values[name], getattr(other, name))))
        return Layer(**values | {"experts": self.experts or other.experts})

    @property
    def kv_heads(self) -> int:
        """KV heads of the layer; 0 if devices do not divide its cache by heads."""
        return max((cache.heads for cache in self.caches), default=0)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The architecture of a model."""

    name: str
    layers: tuple[Layer, ...]
    """Groups of equal layers, in the order in which they first occur."""
    others: tuple[Matrix, ...]
    """Weights outside the layers."""
    hidden: int
    """Width of the model."""
    vocab: int
    """Vocabulary size [tokens]."""
    context: int | None
    """Maximum context [tokens]; None if not stated."""
    checkpoint: str = "bf16"
    """Format of the published weights."""
    cache: str | None = None
    """Cache format that the checkpoint asks for."""
    stored_bytes: float | None = None
    """Size of the published files [bytes]; None if unknown."""
    unknown_weights: str = ""
    """Reason why the size of the published weights is unknown; empty if it is known."""
    notes: tuple[str, ...] = ()
    """Interpretation of the model, and omitted parts."""
    assumed: bool = False
    """Whether the model type is unknown, so that its layers are an assumption."""
    note: str = ""
    source: str = ""
    as_of: str = ""
    checked_against: str = ""

    @property
    def count(self) -> int:
        """Number of layers."""
        return sum(layer.count for layer in self.layers)

    @property
    def heads(self) -> int:
        """Query heads of the layer that has most; 0 if none has attention."""
        return max(layer.heads for layer in self.layers)

    @property
    def experts(self) -> Experts | None:
        """The mixture of experts; None for a dense model."""
        return next((layer.experts for layer in self.layers if layer.experts), None)

    @property
    def matrices(self) -> list[tuple[Matrix, int]]:
        """All weights, each with the number of layers that have it."""
        inside = [(matrix, layer.count) for layer in self.layers for matrix in layer.matrices]
        return inside + [(matrix, 1) for matrix in self.others]

    @property
    def parameters(self) -> int:
        """Parameters of the decoder, without towers and layers for speculative decoding."""
        beside = {"tower", "mtp"}
        return sum(times * matrix.parameters for matrix, times in self.matrices if matrix.use not in beside)

    def cache_types(self) -> frozenset[str]:
        """Return the types of cache that any layer has."""
        return frozenset(cache.type for layer in self.layers for cache in layer.caches)


def grouped(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Merge equal layers, in the order in which they first occur."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(replace(layer, count=count) for layer, count in counts.items())
