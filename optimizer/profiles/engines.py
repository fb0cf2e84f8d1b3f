"""Serving engines: their names, versions and defaults, from engines.yaml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.errors import SpecError
from optimizer.profiles.config_keys import yaml_table
from optimizer.profiles.facts import AcceleratorFacts
from optimizer.schema.messages import known_name

DEFAULT = "vllm"
"""Engine that is assumed if none is stated."""
_WRITTEN = re.compile(r"(?:.*/)?([a-z][a-z.-]*[a-z])(?:[\s:=@_-]+v?(\d+(?:\.\d+)*)\S*)?", re.IGNORECASE)
"""Name and version: ``vllm:0.11``, ``vLLM 0.11.0rc1``, ``vllm/vllm-openai:v0.11.0``, ``sglang==0.5``."""


@dataclass(frozen=True, slots=True)
class ServingEngine:
    """A serving engine of a version."""

    name: str
    """Name in engines.yaml."""
    version: tuple[int, ...]
    """Numbers of the version; without the last ones, the last version that has the first ones."""

    def __str__(self) -> str:
        """Format the engine as flags state it: ``vllm:0.11``."""
        return f"{self.name}:{'.'.join(map(str, self.version))}"

    def max_requests(self, device: AcceleratorFacts) -> int | None:
        """Return the default limit of requests in the batch on a device; None if the engine has none."""
        limits, large = self.rule("maxRequests"), _table()[self.name].get("large")
        if limits is None or large is None:
            return limits and int(limits[0])
        is_large = device.device_memory_gib >= large["fromGiB"] and large["except"] not in device.name.lower()
        return int(limits[0] if is_large else limits[1])

    def rule(self, name: str) -> Any:
        """Return a rule of the latest entry of `since` up to this version; None if no entry has it."""
        entries = {_numbers(since): rules for since, rules in _table()[self.name].get("since", {}).items()}
        known = [since for since in entries if since[: len(self.version)] <= self.version]
        return next((entries[since][name] for since in sorted(known)[::-1] if name in entries[since]), None)


def read_engine(text: str | None = None) -> ServingEngine:
    """Return the engine that a text names, such as ``vllm:0.11``; without a version, the assumed one.

    Args:
        text: name and version; None selects `DEFAULT`.

    Raises:
        SpecError: the engine is unknown, or the text has another form.
    """
    found = _WRITTEN.fullmatch((text or DEFAULT).strip())
    if found is None:
        raise SpecError(f"engine: {text!r}: must be a name and a version, such as vllm:0.11 or sglang:0.5")
    names = {name: known for known, entry in _table().items() for name in (known, *entry["names"])}
    name = names[known_name(found[1].lower(), names, "engine")]
    return ServingEngine(name, _numbers(found[2] or _table()[name]["version"]))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _table() -> Mapping[str, Any]:
    return yaml_table("engines.yaml")
