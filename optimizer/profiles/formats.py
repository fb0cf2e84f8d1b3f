"""Weight and cache formats: their size and compute rate."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.errors import SpecError
from optimizer.profiles.facts import DenseTflops
from optimizer.profiles.layers import CACHE_BYTES, Matrix, ModelFacts
from optimizer.schema.messages import known_name

BYTES: Mapping[str, float] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 4.5 / 8,  # one 16-bit scale and zero for every 32 to 128 weights
    "fp4": 4.5 / 8,  # nvfp4: one fp8 scale for every 16 weights
    "mxfp4": 4.25 / 8,  # one 8-bit scale for every 32 weights
}
"""Bytes of one weight with its scales, by requested format."""

EXPERTS_ONLY = frozenset({"int4", "fp4", "mxfp4"})
"""Formats in which checkpoints of a mixture store only the experts; the rest is 16-bit."""

_OTHER_WORDS: Mapping[str, str] = {
    "fp16": "bf16", "float16": "bf16", "bfloat16": "bf16", "half": "bf16", "16bit": "bf16", "w16a16": "bf16",
    "float8": "fp8", "fp8_e4m3": "fp8", "e4m3": "fp8", "w8a8": "int8",
    "awq": "int4", "gptq": "int4", "w4a16": "int4", "nvfp4": "fp4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WeightClass:
    """Weights of one use in one format."""

    use: str
    """Use, as of `Matrix`."""
    form: str
    """Format."""
    size: float
    """Bytes of a parameter."""
    parameters: int
    """Number of parameters, in all layers."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Formats of a model's weights as deployed."""

    name: str
    """The requested format, or that of most published weights."""
    classes: tuple[WeightClass, ...]
    """All weights, by use and format."""
    published: bool
    """Whether the weights are as published, so that the size of the files is theirs."""

    def of(self, *uses: str) -> tuple[WeightClass, ...]:
        """Return the weights of some uses."""
        return tuple(item for item in self.classes if item.use in uses)

    def bytes_of(self, *uses: str) -> float:
        """Return the size of the weights of some uses [bytes]."""
        return sum(item.parameters * item.size for item in self.of(*uses))

    def form(self, use: str) -> str:
        """Return the format of most weights of a use; empty if there are none."""
        return max(self.of(use), key=lambda item: item.parameters, default=WeightClass(use, "", 0.0, 0)).form


def weight_format(model: ModelFacts, requested: str | None = None) -> WeightFormat:
    """Return the formats of a model's weights; by default as published.

    Raises:
        SpecError: the format is unknown, or the published one is requested but unknown.
    """
    name = model.checkpoint if requested is None else requested.strip().lower()
    name = _OTHER_WORDS.get(name, name)
    if requested is not None:
        name = known_name(name, BYTES, "format of the weights")
    if name == "fp4" and model.checkpoint == "mxfp4":
        name = "mxfp4"
    published = name == model.checkpoint and not (requested and model.unknown_weights)
    if published and model.unknown_weights:
        raise SpecError(model.unknown_weights)
    counts: dict[tuple[str, str, float], int] = {}
    for matrix, times in model.matrices:
        form, size = (matrix.form, matrix.size) if published else _asked(matrix, name, model)
        counts[matrix.use, form, size] = counts.get((matrix.use, form, size), 0) + times * matrix.parameters
    classes = tuple(WeightClass(*key, number) for key, number in counts.items() if number)
    return WeightFormat(name, classes, published)


def _asked(matrix: Matrix, name: str, model: ModelFacts) -> tuple[str, float]:
    """Return the format of a module in a requested format: head, embedding and towers stay in 16 bit."""
    dense = "bf16" if model.experts and name in EXPERTS_ONLY else name
    form = {"dense": dense, "routed": name}.get(matrix.use, "bf16")
    return form, BYTES[form]


def cache_format(requested: str) -> str:
    """Return the name of a cache format.

    Raises:
        SpecError: the format is unknown.
    """
    name = requested.strip().lower()
    return known_name(_OTHER_WORDS.get(name, name), CACHE_BYTES, "format of the cache")


def reached_tflops(rates: DenseTflops, name: str, shares: Mapping[str, float]) -> float:
    """Return the reached rate of multiplications with weights of a format [TFLOPS] (eq. E6).

    Weights are unpacked to 16 bit if the device does not compute in their format, or would be slower in it.

    Args:
        rates: dense rates of the device.
        name: weight format.
        shares: reached share of the dense rate, by `bf16`, `fp8`, `fp4`.
    """
    eight = rates.fp8 if name == "fp8" else rates.int8 or rates.fp8
    own = {"fp8": eight, "int8": eight, "fp4": rates.fp4, "mxfp4": rates.fp4}.get(name)
    share = shares["fp4"] if name in {"fp4", "mxfp4"} else shares["fp8"]
    sixteen = rates.bf16 * shares["bf16"]
    return sixteen if own is None else max(sixteen, own * share)
