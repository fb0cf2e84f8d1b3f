"""Estimates the memory of a replica: weights, workspace and cache (docs/estimate.md, section 5)."""

from dataclasses import dataclass
from functools import cached_property

from optimizer.profiles.iterations import ACTIVATION_BYTES, Iterations
from optimizer.profiles.layers import Layer

GIB = 2**30
GB = 10**9
_RUNTIME_GIB = 0.8
"""Memory for driver context, communication buffers and captured graphs [GiB]."""
_EXPERTS_GIB = (2.0, 5.0, 8.0)
"""Additional workspace of mixtures of experts [GiB]: minimum, expected, maximum."""
_DENSE_GIB = (-0.6, 0.0, 2.0)
"""Additional workspace of dense models [GiB]: minimum, expected, maximum."""
_MAX_DEVIATION = 0.05
"""Relative difference of stored and counted weights up to which no note is shown."""
_USUAL_PER_TOKEN = 8
"""Number of experts per token that is assumed for the workspace if a model does not state it."""
_LOGIT_BYTES = 6
"""Size of a logit [bytes], which is stored in 16 and in 32 bit."""


@dataclass(frozen=True)
class Memory:
    """Memory of one device of a replica [bytes]."""

    iterations: Iterations

    @cached_property
    def total_bytes(self) -> float:
        """Memory that the engine can use [bytes]."""
        deployment = self.iterations.deployment
        device = self.iterations.accelerator.device_memory_gib
        return (deployment.memory_gib or device) * deployment.memory_utilization * GIB

    @cached_property
    def weight_bytes(self) -> float:
        """Size of the weights on one device [bytes] (eq. E21): as stated, as in the files, or as counted."""
        stored, deployment = self.iterations.model.stored_bytes, self.iterations.deployment
        if deployment.weights_gb is not None:
            return deployment.weights_gb * GB / deployment.tp
        if stored is not None and (deployment.weights is None or self.iterations.format.published):
            return stored / deployment.tp
        return self.counted_bytes / deployment.tp

    @cached_property
    def counted_bytes(self) -> float:
        """Size of the weights of all devices together [bytes], counted from the layers."""
        return self.iterations.format.bytes_of("dense", "routed", "head", "embedding", "tower")

    @property
    def size_note(self) -> str | None:
        """Sentence on files that differ from the counted weights by over 5 %, or are unclear; else None."""
        model, deployment = self.iterations.model, self.iterations.deployment
        if model.stored_bytes is None or deployment.weights_gb is not None or deployment.weights is not None:
            return None
        if self.iterations.weights_unknown:
            return f"the files have {model.stored_bytes / GB:.4g} GB, which are used; {model.unknown_weights}"
        beside = self.iterations.format.bytes_of("mtp")
        low, high = self.counted_bytes, self.counted_bytes + beside
        nearest = min(max(model.stored_bytes, low), high)
        if abs(model.stored_bytes / nearest - 1) <= _MAX_DEVIATION:
            return None
        return (
            f"the files have {model.stored_bytes / GB:.4g} GB, which are used, but the layers give "
            f"{low / GB:.4g} GB ({model.stored_bytes / low - 1:+.0%}): the model may not be understood"
        )

    @cached_property
    def work_bytes(self) -> float:
        """Size of the activations of the largest iteration, and of logits [bytes] (eq. E22)."""
        model, deployment = self.iterations.model, self.iterations.deployment
        width = max(map(_width, model.layers), default=0)
        layer = max(2 * model.hidden + 2 * width / deployment.tp, 4 * model.hidden)
        logits = min(deployment.max_requests, deployment.max_num_tokens) * model.vocab * _LOGIT_BYTES
        return deployment.max_num_tokens * layer * ACTIVATION_BYTES + logits

    @cached_property
    def free_bytes(self) -> tuple[float, float, float]:
        """Memory for the cache [bytes]: minimum, expected, maximum (eq. E23); negative if it does not fit."""
        given_gb = self.iterations.deployment.workspace_gb
        if given_gb is not None:
            free = self.total_bytes - self.weight_bytes - given_gb * GB
            return free, free, free
        used = self.weight_bytes + self.work_bytes + _RUNTIME_GIB * GIB
        extra = _EXPERTS_GIB if self.iterations.model.experts else _DENSE_GIB
        high, expected, low = (self.total_bytes - used - more * GIB for more in extra)
        return low, expected, high

    def request_bytes(self, tokens: float) -> float:
        """Return the size of cache and states of one request with a number of tokens [bytes] (eq. E24)."""
        iterations = self.iterations
        if iterations.deployment.cache_per_token is not None:
            return tokens * iterations.deployment.cache_per_token
        rows = sum(
            layer.count * cache.rows(tokens) * iterations.row_bytes(cache)
            for cache, layer in iterations.row_caches
        )
        return rows + iterations.state_bytes

    def tokens(self, free_bytes: float) -> float:
        """Return the number of cached tokens that fit if all requests have the deployment's length."""
        length = self.iterations.deployment.request_tokens
        return max(free_bytes, 0.0) / self.request_bytes(length) * length

    @cached_property
    def max_batch(self) -> int:
        """Number of requests of the deployment's length that are expected to fit, at most its maximum."""
        return min(self.requests(self.free_bytes[1]), self.iterations.deployment.max_requests)

    def requests(self, free_bytes: float) -> int:
        """Return the number of requests of the deployment's length that fit."""
        return int(max(free_bytes, 0.0) // self.request_bytes(self.iterations.deployment.request_tokens))


def _width(layer: Layer) -> int:
    """Return the width of a token's activations in the feed-forward part of a layer."""
    experts = layer.experts
    routed = experts.ffn * (experts.per_token or min(_USUAL_PER_TOKEN, experts.count)) if experts else 0
    return layer.ffn + routed
