"""Estimates the memory of a replica: weights, workspace and cache (docs/estimate.md, section 5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from optimizer.profiles.iterations import ACTIVATION_BYTES, Iterations
from optimizer.profiles.layers import Layer

GIB = 2**30
MIB = 2**20
GB = 10**9
_MAX_DEVIATION = 0.05
"""Relative difference of stored and counted weights up to which no note is shown."""
_USUAL_PER_TOKEN = 8
"""Number of experts per token that is assumed for the activations if a model does not state it."""
_USUAL_REQUESTS = 256
"""Limit of requests that is assumed for engines without a default."""


@dataclass(frozen=True)
class Memory:
    """Memory of one device of a replica [bytes]."""

    iterations: Iterations

    @cached_property
    def total_bytes(self) -> float:
        """Memory that the engine can use [bytes]."""
        deployment, device = self.iterations.deployment, self.iterations.accelerator
        share = deployment.memory_utilization or deployment.serving.utilization(device, deployment.tp)
        return float((deployment.memory_gib or device.device_memory_gib) * share * GIB)

    @cached_property
    def max_requests(self) -> int:
        """Maximum number of requests in the batch: as stated, or the engine's default."""
        deployment = self.iterations.deployment
        default = deployment.serving.max_requests(self.iterations.accelerator)
        return deployment.max_requests or default or _USUAL_REQUESTS

    @cached_property
    def weight_bytes(self) -> float:
        """Size of the weights on one device [bytes] (eq. E21): as stated, as in the files, or as counted."""
        stored, deployment = self.iterations.model.stored_bytes, self.iterations.deployment
        if deployment.weights_gb is not None:
            return deployment.weights_gb * GB / deployment.tp
        if stored is not None and (deployment.weights is None or self.iterations.format.published):
            return stored / deployment.tp
        return self.counted_bytes / deployment.tp

    @property
    def _padding_bytes(self) -> float:
        """Size of the rows with which the engine pads experts in mxfp4 on one device [bytes]."""
        deployment, hidden = self.iterations.deployment, self.iterations.model.hidden
        if deployment.weights_gb is not None or self.iterations.weights_unknown:
            return 0.0
        experts = (item for item in self.iterations.format.of("routed") if item.form == "mxfp4")
        rows: float = -hidden % deployment.serving.rule("mxfp4Rows") / hidden
        return rows * sum(item.parameters * item.size for item in experts) / deployment.tp

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
    def parts(self) -> Mapping[str, float]:
        """Memory of everything but the cache [bytes], by part (eq. E21 and E22)."""
        deployment, serving = self.iterations.deployment, self.iterations.deployment.serving
        if deployment.workspace_gb is not None:
            return {"weights": self.weight_bytes, "workspace": deployment.workspace_gb * GB}
        weights = self.weight_bytes + self._padding_bytes
        parts = {"weights": weights, "sampler": 0.0, "activations": 0.0, "graphs": 0.0}
        parts["runtime"] = (serving.rule("runtimeGiB")[deployment.tp > 1] + self._reserve_gib[1]) * GIB
        if serving.rule("outside"):
            return parts
        model, tokens = self.iterations.model, deployment.max_num_tokens
        rows = min(self.max_requests, tokens)
        parts["sampler"] = rows * model.vocab * serving.sampler_bytes[1]
        width = max(map(_width, model.layers), default=0)
        layer = max(2 * model.hidden + 2 * width / deployment.tp, 4 * model.hidden)
        output = tokens * model.hidden * ACTIVATION_BYTES
        parts["activations"] = max(tokens * layer * ACTIVATION_BYTES - parts["sampler"], output)
        if not deployment.eager:
            graphs = model.count * serving.graphs(self.max_requests)
            parts["graphs"] = graphs * serving.rule("graphMiB") * MIB
        return parts

    @cached_property
    def _reserve_gib(self) -> tuple[float, float, float]:
        """Further memory that the engine takes [GiB]: minimum, expected, maximum."""
        deployment = self.iterations.deployment
        mixture = "shared" if deployment.tp > 1 else "experts"
        reserve = deployment.serving.rule("reserveGiB")
        low, expected, high = reserve[mixture if self.iterations.model.experts else "dense"]
        return low, expected, high

    @cached_property
    def free_bytes(self) -> tuple[float, float, float]:
        """Memory for the cache [bytes]: minimum, expected, maximum (eq. E23); negative if it does not fit."""
        free = self.total_bytes - sum(self.parts.values())
        if "workspace" in self.parts:
            return free, free, free
        low, expected, high = self._reserve_gib
        least, sampler, most = self.iterations.deployment.serving.sampler_bytes
        per_byte = self.parts["sampler"] / sampler
        lacking = (high - expected) * GIB + (most - sampler) * per_byte
        return free - lacking, free, free + (expected - low) * GIB + (sampler - least) * per_byte

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
        return min(self.requests(self.free_bytes[1]), self.max_requests)

    def requests(self, free_bytes: float) -> int:
        """Return the number of requests of the deployment's length that fit."""
        return int(max(free_bytes, 0.0) // self.request_bytes(self.iterations.deployment.request_tokens))


def _width(layer: Layer) -> int:
    """Return the width of a token's activations in the feed-forward part of a layer."""
    experts = layer.experts
    routed = experts.ffn * (experts.per_token or min(_USUAL_PER_TOKEN, experts.count)) if experts else 0
    return layer.ffn + routed
