"""Serving engines: their names, versions and defaults, from engines.yaml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from optimizer.errors import SpecError
from optimizer.profiles.config_keys import yaml_table
from optimizer.profiles.facts import AcceleratorFacts
from optimizer.schema.messages import known_name

DEFAULT = "vllm"
"""Engine that is assumed if none is stated."""
_OTHER = "other"
"""Entry whose rules apply to engines without their own."""
_MANY_DEVICES = 4
_LARGE_GIB = 60.0
_EARLY = "early"
"""Version of an engine of a model's first weeks, whichever it is."""
_WRITTEN = re.compile(
    rf"(?:.*/)?([a-z][a-z.-]*[a-z])(?:[\s:=@_-]+(?:v?(\d+(?:\.\d+)*)\S*|({_EARLY})))?", re.IGNORECASE
)
"""Name and version: ``vllm:0.11``, ``vLLM 0.11.0rc1``, ``vllm/vllm-openai:v0.11.0``, ``sglang:early``."""


@dataclass(frozen=True, slots=True)
class ServingEngine:
    """A serving engine of a version."""

    name: str
    """Name in engines.yaml."""
    version: tuple[int, ...]
    """Numbers of the version; without the last ones, the last version that has the first ones."""
    early: bool = False
    """Whether the engine is stated to be of a model's first weeks."""
    stated: bool = True
    """Whether somebody stated the engine; else it is an assumption."""

    def __str__(self) -> str:
        """Format the engine as flags state it: ``vllm:0.11``."""
        return f"{self.name}:{_EARLY if self.early else '.'.join(map(str, self.version))}"

    def is_early(self, released: str) -> bool:
        """Return whether the engine was published at most a month after a model, given its month if known."""
        own = self.rule("released")
        if self.early or not (released and own):
            return self.early
        (year, month), (model_year, model_month) = (map(int, text.split("-")) for text in (own, released))
        return bool(12 * (year - model_year) + month - model_month <= 1)

    def max_requests(self, device: AcceleratorFacts) -> int | None:
        """Return the default limit of requests in the batch on a device; None if the engine has none."""
        limits: list[int] | None = self.rule("maxRequests")
        if limits is None:
            return None
        large = self.rule("large") or {"fromGiB": 0, "except": "none"}
        is_large = device.device_memory_gib >= large["fromGiB"] and large["except"] not in device.name.lower()
        return limits[0] if is_large else limits[1]

    def utilization(self, device: AcceleratorFacts, tp: int) -> float:
        """Return the default share of the memory of a device, as one of `tp`, that the engine uses."""
        fractions, gib = self.rule("fractions"), device.device_memory_gib
        if fractions is None:
            return float(self.rule("utilization"))
        _, chunk, few, many = next(row for row in fractions if gib < row[0])
        kept_mib = 512 + 1.5 * chunk + 2 * (few if tp < _MANY_DEVICES else many) + 128 * tp
        kept_gib = max(kept_mib / 1024, 10.0 if gib > _LARGE_GIB else 0.0)
        return float(round((gib - kept_gib) / gib, 3))

    def graphs(self, max_requests: int) -> int:
        """Return the number of CUDA graphs that vLLM captures for mixed iterations and for decoding.

        Sizes are 1, 2, 4, multiples of 8 up to 256, and of 16 up to 512; graphs of mixed iterations reach to
        twice the limit of requests.
        """
        sizes = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]
        reached = [size for most in (max_requests, 2 * max_requests) for size in sizes if size <= most]
        return len(reached)

    @property
    def sampler_bytes(self) -> tuple[float, float, float]:
        """Memory of the sampler per request and vocabulary entry [bytes]: minimum, expected, maximum.

        An engine with two model runners takes more with the first one, whose rules apply if it is stated. If
        no engine is stated, the runner is not known either, and the mean of both is expected.
        """
        first = self.rule("samplerBytes")
        second = self.rule("samplerSecond") or first
        return min(first, second), first if self.stated else (first + second) / 2, max(first, second)

    def rule(self, name: str) -> Any:
        """Return the rule of the latest version up to this one: of the engine, its base, or `other`."""
        bases = [(base, self.version) for base in (self.name, _table()[self.name].get("base")) if base]
        for engine, version in (*bases, (_OTHER, ())):
            entries = _table()[engine].get("since", {})
            known = sorted((_numbers(since), since) for since in entries)
            for numbers, since in reversed(known):
                if numbers[: len(version)] <= version and name in entries[since]:
                    return entries[since][name]
        return None


@cache
def read_engine(text: str | None = None) -> ServingEngine:
    """Return the engine that a text names, such as ``vllm:0.11``; without a version, the assumed one.

    Args:
        text: name and version; None selects `DEFAULT`.

    Raises:
        SpecError: the engine is unknown, or the text has another form.
    """
    match = _WRITTEN.fullmatch((text or DEFAULT).strip())
    if match is None:
        raise SpecError(f"engine: {text!r}: must be a name and a version, such as vllm:0.11 or sglang:0.5")
    names = {name: known for known, entry in _table().items() for name in (known, *entry["names"])}
    name = names[known_name(match[1].lower(), names, "engine")]
    version = _numbers(match[2] or _table()[name]["version"])
    return ServingEngine(name, version, bool(match[3]), stated=text is not None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _table() -> Mapping[str, Any]:
    return yaml_table("engines.yaml")
