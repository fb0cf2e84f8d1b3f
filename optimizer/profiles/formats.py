"""Number formats of weights and cache: their sizes and arithmetic rates."""

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
"""Size of one weight with its share of scales [bytes], by requested format."""

EXPERTS_ONLY = frozenset({"int4", "fp4", "mxfp4"})
"""Formats in which checkpoints of mixtures store only the experts; other weights are 16-bit."""

_OTHER_WORDS: Mapping[str, str] = {
    "fp16": "bf16", "float16": "bf16", "bfloat16": "bf16", "half": "bf16", "16bit": "bf16", "w16a16": "bf16",
    "float8": "fp8", "fp8_e4m3": "fp8", "e4m3": "fp8", "w8a8": "int8",
    "awq": "int4", "gptq": "int4", "w4a16": "int4", "nvfp4": "fp4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WeightClass:
    """All weights of one use in one format."""

    use: str
    """Use of the weights, as in `Matrix.use`."""
    form: str
    """Name of the format."""
    size: float
    """Size of a parameter [bytes]."""
    parameters: int
    """Number of parameters in all layers together."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Formats of a model's weights in a deployment."""

    name: str
    """Name of the requested format, or of the format of most published weights."""
    classes: tuple[WeightClass, ...]
    """All weights, grouped by use and format."""
    published: bool
    """Whether the weights are as published, so that the size of the files applies."""

    def of(self, *uses: str) -> tuple[WeightClass, ...]:
        """Return the weights of the given uses."""
        return tuple(item for item in self.classes if item.use in uses)

    def bytes_of(self, *uses: str) -> float:
        """Return the size of the weights of the given uses [bytes]."""
        return sum(item.parameters * item.size for item in self.of(*uses))

    def form(self, use: str) -> str:
        """Return the format of most weights of a use; empty if there are none."""
        return max(self.of(use), key=lambda item: item.parameters, default=WeightClass(use, "", 0.0, 0)).form


def weight_format(model: ModelFacts, requested: str | None = None) -> WeightFormat:
    """Return the formats of a model's weights; by default as published.

    Raises:
        SpecError: the requested format is unknown, or none is requested and the published one is unknown.
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
        form, size = format_of(matrix, model, None if published else name)
        counts[matrix.use, form, size] = counts.get((matrix.use, form, size), 0) + times * matrix.parameters
    classes = tuple(WeightClass(*key, number) for key, number in counts.items() if number)
    return WeightFormat(name, classes, published)


def format_of(matrix: Matrix, model: ModelFacts, name: str | None) -> tuple[str, float]:
    """Return the format, and the bytes per parameter, of a module as published (None), or in a format.

    In a requested format the output head, the embedding and the towers stay in 16 bit.
    """
    if name is None:
        return matrix.form, matrix.size
    dense = "bf16" if model.experts and name in EXPERTS_ONLY else name
    form = {"dense": dense, "routed": name}.get(matrix.use, "bf16")
    return form, BYTES[form]


def cache_format(requested: str) -> str:
    """Return the name of a cache format as used in this package.

    Raises:
        SpecError: the format is unknown.
    """
    name = requested.strip().lower()
    return known_name(_OTHER_WORDS.get(name, name), CACHE_BYTES, "format of the cache")


def reached_tflops(rates: DenseTflops, name: str, shares: Mapping[str, float]) -> float:
    """Return the rate that multiplications with weights of a format reach [TFLOPS] (eq. E6).

    If the device does not compute in the format, or would be slower in it, weights are unpacked to 16 bit.

    Args:
        rates: dense arithmetic rates of the device.
        name: weight format.
        shares: reached share of the dense rate, by format: `bf16`, `fp8`, `fp4`.
    """
    eight = rates.fp8 if name == "fp8" else rates.int8 or rates.fp8
    own = {"fp8": eight, "int8": eight, "fp4": rates.fp4, "mxfp4": rates.fp4}.get(name)
    share = shares["fp4"] if name in {"fp4", "mxfp4"} else shares["fp8"]
    sixteen = rates.bf16 * shares["bf16"]
    return sixteen if own is None else max(sixteen, own * share)
