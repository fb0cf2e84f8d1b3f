"""A model as a list of layers, each with its cache, weights and arithmetic.

The total weights, the cache, the largest batch and the token times are sums over these layers. Equation
numbers are those of docs/estimate.md.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

CACHE_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_ds_mla": 1.0}
"""Size of one number in the cache [bytes], by format; `fp8_ds_mla` packs the rows of a latent cache
differently.
"""
ALL_FORMATS = tuple(CACHE_BYTES)


@dataclass(frozen=True, slots=True)
class Cache:
    """A part of the cache of one layer: rows for tokens, or a state of fixed size."""

    type: str
    """Type of the cache: grows, window, chunk, latent, index, compressed or state."""
    numbers: int = 0
    """Number of values in a row, or in one head of a row if there are heads."""
    heads: int = 0
    """Number of KV heads, which devices divide, or copy if there are fewer heads; 0 if each device has entire
    rows.
    """
    limit: int | None = None
    """Maximum number of tokens that are kept; None for all."""
    every: int = 1
    """Number of tokens that share one row."""
    packed: tuple[tuple[str, float], ...] = ()
    """Size of a row [bytes] in cache formats that store numbers in different sizes, as (format, size)."""
    read: int | None = None
    """Maximum number of tokens that an output token reads; None for all."""
    state_bytes: float = 0.0
    """Size of a request's state, which is divided among devices [bytes]."""
    groups: int = 0
    """Number of groups of a Mamba-2 convolution, which are copied if devices cannot divide them."""
    group_bytes: float = 0.0
    """Size of the state of one group of a Mamba-2 convolution [bytes]."""

    def row_bytes(self, cache: str, tp: int) -> float:
        """Return the size of a row on one of `tp` devices in a cache format [bytes] (eq. E16)."""
        packed = dict(self.packed)
        if cache in packed:
            return packed[cache]
        return max(-(-self.heads // tp), 1) * self.numbers * CACHE_BYTES[cache]

    def fixed_bytes(self, tp: int) -> float:
        """Return the size of a request's state on one device [bytes], for a number of devices."""
        groups = self.groups if self.groups % tp == 0 else tp
        return (self.state_bytes + groups * self.group_bytes) / tp

    def rows(self, tokens: float) -> float:
        """Return the number of rows that are kept for a request with a number of tokens."""
        return min(tokens, self.limit or tokens) / self.every


@dataclass(frozen=True, slots=True)
class Matrix:
    """The weights of a module, in the format of the checkpoint."""

    module: str
    """Name of the module in the checkpoint, below its layer."""
    parameters: int
    use: str
    """Use of the weights. dense: read in every iteration; routed: read if a token selects them; head: output
    head; embedding: looked up; tower and mtp: stored in addition to the decoder.
    """
    form: str = "bf16"
    """Number format of the weights."""
    size: float = 2.0
    """Size of a parameter with its share of scales [bytes]."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a mixture of experts."""

    count: int
    """Number of routed experts."""
    per_token: int | None
    """Number of routed experts used per token; None if not stated."""
    ffn: int
    """Width of a routed expert."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a model, or a group of equal layers."""

    attention: str = ""
    """Description of the attention."""
    feed_forward: str = ""
    """Description of the feed-forward part."""
    caches: tuple[Cache, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    heads: int = 0
    """Number of query heads."""
    width: float = 0.0
    """Mean width of a head's query and value, which determines the arithmetic of a prompt."""
    absorbed: int = 0
    """Number of values of a cached row that each head multiplies in decoding, if attention uses compressed
    rows.
    """
    ffn: int = 0
    """Width of the feed-forward part that every token uses."""
    experts: Experts | None = None
    parts: int = 1
    """Number of sub-layers; each ends with an all-reduce if several devices share the model."""
    count: int = 1
    """Number of equal layers."""

    def __add__(self, other: "Layer") -> "Layer":
        """Return a layer that has the parts of both layers."""
        values = {name: getattr(self, name) for name in self.__slots__}
        for name in ("caches", "matrices", "heads", "width", "absorbed", "ffn", "parts"):
            values[name] += getattr(other, name)
        for name in ("attention", "feed_forward"):
            values[name] = " + ".join(filter(None, (values[name], getattr(other, name))))
        return Layer(**values | {"experts": self.experts or other.experts})

    @property
    def kv_heads(self) -> int:
        """Number of KV heads of the layer; 0 if devices do not divide its cache by heads."""
        return max((cache.heads for cache in self.caches), default=0)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The architecture of a model: layers, other weights, sizes."""

    name: str
    layers: tuple[Layer, ...]
    """Groups of equal layers, in the order in which they first occur."""
    others: tuple[Matrix, ...]
    """Weights outside the layers."""
    hidden: int
    """Hidden size of the model."""
    vocab: int
    """Vocabulary size [tokens]."""
    context: int | None
    """Maximum context length [tokens]; None if not stated."""
    checkpoint: str = "bf16"
    """Number format of the published weights."""
    cache: str | None = None
    """Cache format that the checkpoint states; None if it states none."""
    stored_bytes: float | None = None
    """Size of the published files [bytes]; None if unknown."""
    unknown_weights: str = ""
    """Reason why the size of the published weights is unknown; empty if it is known."""
    notes: tuple[str, ...] = ()
    """Sentences on the interpretation of the model, and on omitted parts."""
    assumed: bool = False
    """Whether the model type is unknown, so that its layers are an assumption."""
    released: str = ""
    """Month in which the model was published, such as 2025-08; empty if unknown."""
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
        """Largest number of query heads of any layer; 0 if no layer has attention."""
        return max((layer.heads for layer in self.layers), default=0)

    @property
    def experts(self) -> Experts | None:
        """Experts of the model; None for a dense model."""
        return next((layer.experts for layer in self.layers if layer.experts), None)

    @property
    def matrices(self) -> list[tuple[Matrix, int]]:
        """Weights of all modules, each with the number of layers that have it."""
        inside = [(matrix, layer.count) for layer in self.layers for matrix in layer.matrices]
        return inside + [(matrix, 1) for matrix in self.others]

    @property
    def parameters(self) -> int:
        """Number of parameters of the decoder, without towers and layers for speculative decoding."""
        beside = {"tower", "mtp"}
        return sum(times * matrix.parameters for matrix, times in self.matrices if matrix.use not in beside)

    @property
    def caches(self) -> list[tuple[Cache, Layer]]:
        """Caches of all layers, each with its group of equal layers."""
        return [(cache, layer) for layer in self.layers for cache in layer.caches]

    def cache_types(self) -> frozenset[str]:
        """Return the types of all caches in the layers."""
        return frozenset(cache.type for cache, _ in self.caches)


def grouped(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Merge equal layers to groups, in the order in which they first occur."""
    return tuple(replace(layer, count=count) for layer, count in Counter(layers).items())
