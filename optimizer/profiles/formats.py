"""Weight and cache formats: their size and compute rate."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.profiles.facts import DenseTflops, ModelFacts
from optimizer.spec.messages import known_name

BYTES: Mapping[str, float] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 4.5 / 8,  # one 16-bit scale and zero for every 32 to 128 weights
    "fp4": 4.5 / 8,  # nvfp4: one fp8 scale for every 16 weights
    "mxfp4": 4.25 / 8,  # one 8-bit scale for every 32 weights
}
"""Bytes of one weight with its scales."""

EXPERTS_ONLY = frozenset({"int4", "fp4", "mxfp4"})
"""Formats in which checkpoints of a mixture store only the experts; the rest is 16-bit."""

_OTHER_WORDS: Mapping[str, str] = {
    "fp16": "bf16", "float16": "bf16", "bfloat16": "bf16", "half": "bf16", "16bit": "bf16", "w16a16": "bf16",
    "float8": "fp8", "fp8_e4m3": "fp8", "e4m3": "fp8", "w8a8": "int8",
    "awq": "int4", "gptq": "int4", "w4a16": "int4", "nvfp4": "fp4",
}  # fmt: skip
CACHE_BYTES: Mapping[str, int] = {"bf16": 2, "fp8": 1}
"""Bytes of one number in the cache."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Formats of the dense and the routed weights."""

    name: str
    dense: str
    """Format of the weights that every token uses, except the output head, which is 16-bit."""
    routed: str
    """Format of routed experts."""


def weight_format(model: ModelFacts, requested: str | None = None) -> WeightFormat:
    """Return the formats of a model's weights; by default as published.

    Raises:
        SpecError: the format is unknown.
    """
    name = model.checkpoint if requested is None else requested.strip().lower()
    name = known_name(_OTHER_WORDS.get(name, name), BYTES, "format of the weights")
    if name == "fp4" and model.checkpoint == "mxfp4":
        name = "mxfp4"
    return WeightFormat(name, "bf16" if model.experts and name in EXPERTS_ONLY else name, name)


def cache_bytes(requested: str) -> int:
    """Return the bytes of one number in the cache.

    Raises:
        SpecError: the format is unknown.
    """
    name = requested.strip().lower()
    return CACHE_BYTES[known_name(_OTHER_WORDS.get(name, name), CACHE_BYTES, "format of the cache")]


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
