"""Memory of a replica: weights, workspace and cache (docs/estimate.md, section 5)."""

from dataclasses import dataclass
from functools import cached_property

from optimizer.profiles.formats import BYTES
from optimizer.profiles.iterations import ACTIVATION_BYTES, Iterations

GIB = 2**30
GB = 10**9
_RUNTIME_GIB = 0.8
"""Driver context, communication buffers, captured graphs."""
_EXPERTS_GIB = (2.0, 5.0, 8.0)
"""Additional workspace of mixtures of experts: minimum, expected, maximum."""
_DENSE_GIB = (-0.6, 0.0, 2.0)
"""Additional workspace of dense models: minimum, expected, maximum."""
_LOGIT_BYTES = 6
"""Bytes of a logit, stored in 16 and in 32 bit."""


@dataclass(frozen=True)
class Memory:
    """Memory of one device of a replica [bytes]."""

    iterations: Iterations

    @cached_property
    def total_bytes(self) -> float:
        """Memory that the engine may use."""
        deployment = self.iterations.deployment
        device = self.iterations.accelerator.device_memory_gib
        return (deployment.memory_gib or device) * deployment.memory_utilization * GIB

    @cached_property
    def weight_bytes(self) -> float:
        """Weights on one device (eq. E21)."""
        parameters, form, deployment = (
            self.iterations.parameters,
            self.iterations.format,
            self.iterations.deployment,
        )
        if deployment.weights_gb is not None:
            return deployment.weights_gb * GB / deployment.tp
        size = parameters.dense * BYTES[form.dense] + parameters.routed * BYTES[form.routed]
        size += (parameters.head + parameters.embedding) * BYTES["bf16"]
        return size / deployment.tp

    @cached_property
    def work_bytes(self) -> float:
        """Activations of the largest iteration and logits (eq. E22)."""
        model, deployment = self.iterations.model, self.iterations.deployment
        width = model.ffn
        if model.experts:
            width = max(width, model.experts.ffn * model.experts.per_token + model.experts.shared_ffn)
        layer = max(2 * model.hidden + 2 * width / deployment.tp, 4 * model.hidden)
        logits = min(deployment.max_requests, deployment.max_num_tokens) * model.vocab * _LOGIT_BYTES
        return deployment.max_num_tokens * layer * ACTIVATION_BYTES + logits

    @cached_property
    def free_bytes(self) -> tuple[float, float, float]:
        """Memory for the cache: minimum, expected, maximum (eq. E23); negative if the model does not fit."""
        given_gb = self.iterations.deployment.workspace_gb
        if given_gb is not None:
            free = self.total_bytes - self.weight_bytes - given_gb * GB
            return free, free, free
        used = self.weight_bytes + self.work_bytes + _RUNTIME_GIB * GIB
        extra = _EXPERTS_GIB if self.iterations.model.experts else _DENSE_GIB
        high, expected, low = (self.total_bytes - used - more * GIB for more in extra)
        return low, expected, high

    def request_bytes(self, tokens: float) -> float:
        """Return the size of the cache and state of one request of a given length (eq. E24)."""
        model = self.iterations.model
        held = model.growing_layers * tokens
        if model.window:
            held += model.window_layers * min(tokens, model.window.tokens)
        return held * self.iterations.layer_cache_bytes + self.iterations.state_bytes

    def tokens(self, free_bytes: float) -> float:
        """Return the number of cached tokens that fit, in requests of the deployment's length."""
        length = self.iterations.deployment.request_tokens
        return max(free_bytes, 0.0) / self.request_bytes(length) * length

    def requests(self, free_bytes: float) -> int:
        """Return the number of requests of the deployment's length that fit."""
        return int(max(free_bytes, 0.0) // self.request_bytes(self.iterations.deployment.request_tokens))
