"""Computes how many requests fit in the memory of a replica: reserved, paged, and with shared prefixes.

docs/memory.md explains these terms. Equation numbers are those of docs/math.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor

from optimizer.errors import SpecError
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.memory import Memory
from optimizer.quantities import counted, precise

MAX_TP = 64
"""Largest tensor parallel size that is tried."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Settings of the KV cache of an engine."""

    block_tokens: int = 16
    """Number of tokens in a block of the cache; requests occupy full blocks."""
    max_tokens: float | None = None
    """Maximum request length [tokens], for which engines without paging reserve memory; None selects the
    model's context length.
    """
    prefix_tokens: float = 0.0
    """Number of tokens at the start of the input that requests share."""
    prefix_requests: int | None = None
    """Number of requests that share a prefix; None if all do."""


@dataclass(frozen=True)
class CacheCapacity:
    """Computes the number of requests that fit in the KV cache of a replica at the same time."""

    memory: Memory
    settings: CacheSettings = CacheSettings()

    def __post_init__(self) -> None:
        """Check the lengths against each other.

        Raises:
            SpecError: a request exceeds the maximum length, the maximum length exceeds the context, or the
                prefix exceeds the input.
        """
        model, deployment = self.memory.iterations.model, self.memory.iterations.deployment
        if model.context is not None and self.reserved_tokens > model.context:
            raise SpecError(
                f"max-length: {precise(self.reserved_tokens)} tokens exceed the context of {model.name}, "
                f"{model.context:,} tokens; give at most that"
            )
        if deployment.request_tokens > self.reserved_tokens:
            raise SpecError(
                f"in-tokens, out-tokens: {precise(deployment.in_tokens)} + {precise(deployment.out_tokens)} "
                f"tokens exceed the maximum length of a request, {precise(self.reserved_tokens)} tokens; "
                f"{model.name} has a context of {self.reserved_tokens:,}"
            )
        if self.settings.prefix_tokens > deployment.in_tokens:
            raise SpecError(
                f"prefix-tokens: {precise(self.settings.prefix_tokens)} exceed in-tokens, "
                f"{precise(deployment.in_tokens)}; a prefix is part of the input"
            )

    @property
    def reserved_tokens(self) -> float:
        """Tokens that a request occupies without paging: the maximum length, or its own if none is known."""
        iterations = self.memory.iterations
        return self.settings.max_tokens or iterations.model.context or iterations.deployment.request_tokens

    @property
    def paged_tokens(self) -> float:
        """Tokens in the full blocks that a request occupies at the end of its output (eq. 195)."""
        block = self.settings.block_tokens
        return block * ceil(self.memory.iterations.deployment.request_tokens / block)

    @property
    def average_tokens(self) -> float:
        """Tokens in the full blocks that a request occupies, averaged over its output (eq. 196)."""
        deployment = self.memory.iterations.deployment
        return deployment.in_tokens + deployment.out_tokens / 2 + self.settings.block_tokens / 2

    @property
    def shared_tokens(self) -> float:
        """Tokens in the full blocks of the shared prefix; only full blocks can be shared."""
        block = self.settings.block_tokens
        return block * floor(self.settings.prefix_tokens / block)

    def request_bytes(self, tokens: float) -> float:
        """Return the cache size per request on one device with a shared prefix [bytes] (eq. 197)."""
        shared = self._shared_bytes
        sharing = self.settings.prefix_requests
        return self.held_bytes(tokens) - shared + (shared / sharing if sharing else 0.0)

    def held_bytes(self, tokens: float) -> float:
        """Return the cache size on one device of a request that shares no prefix [bytes].

        With a prefix cache it includes a second copy of the states.
        """
        copies = self.memory.iterations.state_bytes if self.settings.prefix_tokens else 0.0
        return self.memory.request_bytes(tokens) + copies

    def requests(self, free_bytes: float, tokens: float, *, paged: bool = True) -> int:
        """Return the number of requests that fit at once (eq. 198); without paging, they share no prefix.

        Args:
            free_bytes: memory for the cache on one device [bytes].
            tokens: number of tokens that each request occupies.
            paged: whether the cache is paged, so that requests can share the blocks of a prefix.
        """
        shared = self._shared_bytes if paged else 0.0
        own = (self.held_bytes(tokens) if paged else self.memory.request_bytes(tokens)) - shared
        if free_bytes < shared + own:
            return 0
        sharing = self.settings.prefix_requests if shared else None
        if sharing is None:
            return int((free_bytes - shared) // own)
        groups, rest = divmod(free_bytes, shared + sharing * own)
        return int(groups) * sharing + max(0, int((rest - shared) // own))

    @property
    def _shared_bytes(self) -> float:
        """Cache size of the prefix on one device [bytes], without the states that each request has."""
        return self.memory.request_bytes(self.shared_tokens) - self.memory.request_bytes(0.0)

    @property
    def sharing_gain(self) -> float:
        """Factor by which sharing the prefix increases the number of requests, averaged over outputs."""
        held = self.average_tokens
        return self.held_bytes(held) / self.request_bytes(held)

    @cached_property
    def problem(self) -> str | None:
        """Sentence on why no request fits; None if at least one fits."""
        iterations = self.memory.iterations
        split = split_problem(iterations.model, iterations.deployment.tp)
        if split is not None:
            return split
        if self.requests(self.memory.free_bytes[1], self.paged_tokens):
            return None
        needed, usable = self.memory.weight_bytes, self.memory.total_bytes
        other = usable - needed - self.memory.free_bytes[1]
        request = self.held_bytes(self.paged_tokens)
        parts = f"weights {_gb(needed)} + workspace {_gb(other)} + one request {_gb(request)}"
        return f"{parts} exceed the usable {_gb(usable)} GB of a device"

    def least_tp(self, devices: int = 1) -> "CacheCapacity | None":
        """Return the capacity on the fewest cards on which a request fits; None if 64 devices are too few.

        Args:
            devices: number of devices per card.
        """
        return next((other for other in self._larger(devices) if other.problem is None), None)

    def _larger(self, devices: int) -> Iterator["CacheCapacity"]:
        iterations = self.memory.iterations
        for tp in range(devices, MAX_TP + 1, devices):
            deployment = replace(iterations.deployment, tp=tp)
            yield CacheCapacity(Memory(replace(iterations, deployment=deployment)), self.settings)


def split_problem(model: ModelFacts, tp: int) -> str | None:
    """Return the reason why engines cannot split a model over `tp` devices; None if they can.

    Devices divide the query heads. They also divide the KV heads, or copy them if there are fewer heads than
    devices.
    """
    if model.heads % tp:
        return f"{counted(model.heads, 'attention head')} do not split by {tp}"
    for kv in {layer.kv_heads for layer in model.layers if layer.kv_heads}:
        if kv % tp and tp % kv:
            return f"{counted(kv, 'KV head')} neither split by {tp} nor can be copied evenly to {tp} devices"
    return None


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f}"
