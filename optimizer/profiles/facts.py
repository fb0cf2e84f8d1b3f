"""Catalogue entries: data sheets of accelerators and architectures of models, with sources."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import Document, Name

Positive = Annotated[float, Field(gt=0, le=1e15)]
Dimension = Annotated[int, Field(ge=1, le=10**9)]
Size = Annotated[int, Field(ge=0, le=10**9)]
Checkpoint = Literal["bf16", "fp8", "int8", "int4", "fp4", "mxfp4"]

IDLE_SHARE = 0.12
"""Idle power as a share of the power limit if it was not measured; measured shares are 0.04 to 0.15."""
_FOUND_BY_CATALOGUE = Field("", max_length=253)


class Sourced(Document):
    """A catalogue entry: its names and the sources of its values."""

    name: str = _FOUND_BY_CATALOGUE
    """The catalogue's name."""
    aliases: tuple[Name, ...] = Field((), strict=False)
    """Alternative names."""
    note: str = ""
    """Note for users of the entry."""
    source: Name
    """Source of the values, except those in `otherSources`."""
    as_of: Name = Field(alias="asOf")
    """Date of the values."""
    checked_against: str = Field("", alias="checkedAgainst")
    """A second source used to verify the values."""
    conflicts: tuple[str, ...] = Field((), strict=False)
    """Values on which the second source differs."""
    other_sources: dict[str, str] = Field(default={}, alias="otherSources")
    """Sources of individual values, by field."""


class DenseTflops(Document):
    """Arithmetic rate without sparsity, by format [TFLOPS]."""

    bf16: Positive
    """16-bit rate [TFLOPS]."""
    fp8: Positive | None = None
    """fp8 rate [TFLOPS]; absent if the device has no native fp8."""
    int8: Positive | None = None
    """int8 rate [TFLOPS], if it differs from fp8."""
    fp4: Positive | None = None
    """fp4 rate [TFLOPS]; absent if the device has no native fp4."""


class AcceleratorFacts(Sourced):
    """The data sheet of an accelerator."""

    vendor: Name
    """Vendor."""
    generation: Name
    """Generation, in lower case."""
    devices: Dimension = 1
    """Devices per card as seen by the runtime; a tensor-parallel degree counts devices."""
    memory_gb: Positive = Field(alias="memoryGB")
    """Memory as sold [GB]."""
    memory_gib: Positive = Field(alias="memoryGiB")
    """Memory reported by the runtime [GiB]."""
    bandwidth_gb_per_s: Positive = Field(alias="bandwidthGBPerS")
    """Memory bandwidth [GB/s]."""
    dense_tflops: DenseTflops = Field(alias="denseTflops")
    """Arithmetic rates [TFLOPS]."""
    link_gb_per_s: Positive = Field(alias="linkGBPerS")
    """Link to the other devices of a node, one direction [GB/s]."""
    link_kind: Name = Field(alias="linkKind")
    """Kind of the link."""
    power_w: Positive | None = Field(None, alias="powerW")
    """Power limit [W]; an estimate if its source says so."""
    idle_power_w: Positive | None = Field(None, alias="idlePowerW")
    """Measured power when idle [W]."""

    @property
    def idle_w(self) -> float | None:
        """Power when idle [W]: measured, else a share of the power limit; None if neither is known."""
        if self.idle_power_w is not None or self.power_w is None:
            return self.idle_power_w
        return IDLE_SHARE * self.power_w

    @property
    def device_memory_gib(self) -> float:
        """Memory of one device [GiB]."""
        return self.memory_gib / self.devices

    @property
    def device_bandwidth_gb_per_s(self) -> float:
        """Memory bandwidth of one device [GB/s]."""
        return self.bandwidth_gb_per_s / self.devices

    @property
    def over_pcie(self) -> bool:
        """Whether devices reach each other over PCIe only."""
        return self.link_kind.startswith("pcie")


class Experts(Document):
    """A mixture of experts in the feed-forward layers."""

    count: Dimension
    """Number of routed experts per layer."""
    per_token: Dimension = Field(alias="perToken")
    """Number of routed experts used per token."""
    ffn: Dimension
    """Width of a routed expert."""
    shared_ffn: Size = Field(0, alias="sharedFfn")
    """Width of the shared experts, which every token uses."""
    dense_layers: Size = Field(0, alias="denseLayers")
    """Number of layers without experts; their width is the model's `ffn`."""


class LatentAttention(Document):
    """Multi-head latent attention (DeepSeek): the cache holds one compressed vector per token and layer."""

    kv_rank: Dimension = Field(alias="kvRank")
    """Rank of the compressed keys and values."""
    query_rank: Size = Field(0, alias="queryRank")
    """Rank of the compressed queries; 0: not compressed."""
    rope_dim: Dimension = Field(alias="ropeDim")
    """Head dimension with rotary position embedding."""
    nope_dim: Dimension = Field(alias="nopeDim")
    """Head dimension without position embedding."""
    value_dim: Dimension = Field(alias="valueDim")
    """Dimension of a value head."""


class Window(Document):
    """Sliding-window attention in some or all layers."""

    tokens: Dimension
    """Window length [tokens]."""
    full_layers: Size = Field(alias="fullLayers")
    """Number of layers without a window."""


class LinearAttention(Document):
    """Linear attention in some layers: a fixed-size state per request instead of a cache."""

    full_layers: Size = Field(alias="fullLayers")
    """Number of layers with ordinary attention."""
    key_heads: Dimension = Field(alias="keyHeads")
    """Number of key heads."""
    key_dim: Dimension = Field(alias="keyDim")
    """Dimension of a key head."""
    value_heads: Dimension = Field(alias="valueHeads")
    """Number of value heads."""
    value_dim: Dimension = Field(alias="valueDim")
    """Dimension of a value head."""


class ModelFacts(Sourced):
    """The architecture of a model, in the terms of its config.json."""

    repository: str = ""
    """Repository of the weights."""
    parameters_b: Positive | None = Field(None, alias="parametersB")
    """Declared parameters [10⁹]; absent for a model read from a config.json."""
    layers: Dimension
    """Number of layers."""
    hidden: Dimension
    """Width of the model."""
    heads: Dimension
    """Number of query heads."""
    kv_heads: Dimension = Field(alias="kvHeads")
    """Number of heads of keys and values."""
    head_dim: Dimension = Field(alias="headDim")
    """Dimension of a head."""
    ffn: Size
    """Width of a dense feed-forward layer; 0 if every layer has experts."""
    gated: bool
    """Whether a feed-forward layer has three matrices (gate, up, down) instead of two."""
    vocab: Dimension
    """Vocabulary size [tokens]."""
    tied: bool
    """Whether the output head shares the embedding weights."""
    context: Dimension
    """Maximum context [tokens]."""
    checkpoint: Checkpoint
    """Format of the published weights."""
    experts: Experts | None = None
    """Mixture of experts."""
    latent: LatentAttention | None = None
    """Latent attention."""
    window: Window | None = None
    """Sliding windows."""
    linear: LinearAttention | None = None
    """Linear attention."""
    query_gate: bool = Field(default=False, alias="queryGate")
    """Whether attention is followed by a gate as wide as the queries."""
    sparse_top_k: Dimension | None = Field(None, alias="sparseTopK")
    """Maximum number of cached tokens read by sparse attention; absent without it."""

    @model_validator(mode="after")
    def _layers_add_up(self) -> Self:
        counted = {
            "experts.denseLayers": self.experts.dense_layers if self.experts else 0,
            "window.fullLayers": self.window.full_layers if self.window else 0,
            "linear.fullLayers": self.linear.full_layers if self.linear else 0,
        }
        for path, count in counted.items():
            if count > self.layers:
                raise PydanticCustomError(
                    "layers", "{path} is {count}, but the model has {layers} layers",
                    {"path": path, "count": count, "layers": self.layers},
                )  # fmt: skip
        if self.experts and self.experts.per_token > self.experts.count:
            raise PydanticCustomError("experts", "experts.perToken exceeds experts.count")
        if self.window and self.linear:
            raise PydanticCustomError(
                "layers", "models with both window and linear attention are not supported"
            )
        if not self.ffn and not (self.experts and not self.experts.dense_layers):
            raise PydanticCustomError("ffn", "ffn is 0, but there are layers without experts")
        return self

    @property
    def growing_layers(self) -> int:
        """Number of layers whose cache grows with the entire context."""
        part = self.window or self.linear
        return part.full_layers if part else self.layers

    @property
    def window_layers(self) -> int:
        """Number of layers whose cache stops growing at the window."""
        return self.layers - self.window.full_layers if self.window else 0

    @property
    def linear_layers(self) -> int:
        """Number of layers with a state of fixed size."""
        return self.layers - self.linear.full_layers if self.linear else 0
