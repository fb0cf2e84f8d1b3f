"""The time of one iteration from architecture and data sheet: the components of α, β and γ.

Times are in ms. Equation numbers are those of docs/estimate.md.
"""

from dataclasses import dataclass
from functools import cached_property

from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.facts import AcceleratorFacts, ModelFacts
from optimizer.profiles.formats import BYTES, WeightFormat, cache_bytes, reached_tflops, weight_format
from optimizer.profiles.parameters import ParameterCounts, count_parameters

ACTIVATION_BYTES = 2
STATE_BYTES = 4
"""Linear attention keeps its state in fp32."""


@dataclass(frozen=True)
class Iterations:
    """Iteration times of a model on `tp` devices of an accelerator."""

    model: ModelFacts
    accelerator: AcceleratorFacts
    deployment: Deployment
    efficiency: Efficiency = Efficiency()  # noqa: RUF009  immutable

    @cached_property
    def parameters(self) -> ParameterCounts:
        """Parameters of the model."""
        return count_parameters(self.model)

    @cached_property
    def format(self) -> WeightFormat:
        """Weight formats."""
        return weight_format(self.model, self.deployment.weights)

    @cached_property
    def _bytes_per_ms(self) -> float:
        return self.accelerator.device_bandwidth_gb_per_s * 1e6

    def _flop_per_ms(self, name: str) -> float:
        """Return the reached rate of one device for weights of a format (eq. E6)."""
        shares = self.efficiency.shares(self.accelerator.generation)
        rate = reached_tflops(self.accelerator.dense_tflops, name, shares)
        return rate * 1e9 / self.accelerator.devices

    @cached_property
    def _attention_flop_per_ms(self) -> float:
        rate = self.accelerator.dense_tflops.bf16 / self.accelerator.devices
        return rate * 1e9 * self.efficiency.attention

    # --- cost of every iteration -------------------------------------------------------------------------

    @cached_property
    def fixed_ms(self) -> float:
        """Fixed time of an iteration: host, kernel launches, all-reduce latencies (eq. E7)."""
        efficiency, layers = self.efficiency, self.model.layers
        layer_ms = efficiency.eager_layer_ms if self.deployment.eager else efficiency.layer_ms
        if self.model.sparse_top_k is not None:  # the index that selects tokens is a second attention
            layer_ms *= 2
        time = efficiency.step_ms + layer_ms * layers
        if self.deployment.tp > 1:
            pcie = self.accelerator.over_pcie
            time += 2 * layers * (efficiency.all_reduce_pcie_ms if pcie else efficiency.all_reduce_ms)
        return time

    @cached_property
    def weights_ms(self) -> float:
        """Time to read the dense weights and the output head, once per iteration (eq. E8)."""
        size = self.parameters.dense * BYTES[self.format.dense] + self.parameters.head * BYTES["bf16"]
        return size / (self.deployment.tp * self._bytes_per_ms * self.efficiency.weight_bandwidth)

    @cached_property
    def experts_ms(self) -> float:
        """Time to read all routed experts (eq. E9)."""
        size = self.parameters.routed * BYTES[self.format.routed]
        return size / (self.deployment.tp * self._bytes_per_ms * self.efficiency.expert_bandwidth)

    def touched(self, tokens: float) -> float:
        """Return the expected fraction of routed experts used by a number of tokens (eq. E10)."""
        experts = self.model.experts
        if experts is None:
            return 0.0
        return float(1 - (1 - experts.per_token / experts.count) ** tokens)

    # --- cost of a token ---------------------------------------------------------------------------------

    @cached_property
    def token_ms(self) -> float:
        """Arithmetic and all-reduce traffic of one input or output token (eq. E12)."""
        tp, parameters, experts = self.deployment.tp, self.parameters, self.model.experts
        time = 2 * parameters.dense / (tp * self._flop_per_ms(self.format.dense))
        if experts:
            share = experts.per_token / experts.count
            rate = self._flop_per_ms(self.format.routed) * self.efficiency.experts
            time += 2 * parameters.routed * share / (tp * rate)
        if tp > 1:
            traffic = 2 * self.model.layers * self.model.hidden * ACTIVATION_BYTES * 2 * (tp - 1) / tp
            time += traffic / (self.accelerator.link_gb_per_s * 1e6 * self._link_share)
        return time

    @cached_property
    def _link_share(self) -> float:
        if self.accelerator.over_pcie:
            return float(self.efficiency.link_pcie * (2 / self.deployment.tp) ** 0.5)
        return self.efficiency.link

    @cached_property
    def answer_ms(self) -> float:
        """Additional time of an output token: host, output head, state of linear attention (eq. E13)."""
        head = 2 * self.parameters.head / (self.deployment.tp * self._flop_per_ms("bf16"))
        rate = self._bytes_per_ms * self.efficiency.cache_bandwidth
        return self.efficiency.sequence_ms + head + 2 * self.state_bytes / rate

    def window_ms(self, context: float) -> float:
        """Return the time to read the cache of window layers for one output token (eq. E14)."""
        if self.model.window is None:
            return 0.0
        read = min(context, self.model.window.tokens) * self.model.window_layers * self.layer_cache_bytes
        return read / (self._bytes_per_ms * self.efficiency.cache_bandwidth)

    def prompt_attention_ms(self, context: float) -> float:
        """Return the attention time of a prompt token, averaged over a prompt (eq. E15)."""
        model, latent = self.model, self.model.latent
        seen = mean_seen(context, model.sparse_top_k) * model.growing_layers
        if model.window:
            seen += mean_seen(context, model.window.tokens) * model.window_layers
        dimension = (latent.nope_dim + latent.rope_dim + latent.value_dim) / 2 if latent else model.head_dim
        work = 4 * model.heads * dimension * seen
        return work / (self.deployment.tp * self._attention_flop_per_ms)

    # --- cost of a cached token -------------------------------------------------------------------------

    @cached_property
    def layer_cache_bytes(self) -> float:
        """Bytes of one token in the cache of one layer on one device (eq. E16)."""
        size = cache_bytes(self.deployment.cache)
        if self.model.latent:
            return float((self.model.latent.kv_rank + self.model.latent.rope_dim) * size)
        heads = -(-self.model.kv_heads // self.deployment.tp)
        return float(2 * heads * self.model.head_dim * size)

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of the linear-attention state of one request on one device."""
        linear = self.model.linear
        if linear is None:
            return 0.0
        state = linear.value_heads * linear.key_dim * linear.value_dim * STATE_BYTES
        return self.model.linear_layers * state / self.deployment.tp

    def cache_ms(self, context: float) -> float:
        """Return the time per cached token that an output token reads, at a context length (eq. E17)."""
        model = self.model
        time = model.growing_layers * self.layer_cache_bytes
        time /= self._bytes_per_ms * self.efficiency.cache_bandwidth
        if model.latent:
            work = 2 * model.heads * (2 * model.latent.kv_rank + model.latent.rope_dim) * model.growing_layers
            time += work / (self.deployment.tp * self._attention_flop_per_ms)
        if model.sparse_top_k is not None:
            time *= min(1.0, model.sparse_top_k / context)
        return time

    # --- entire iterations -------------------------------------------------------------------------------

    def decode_ms(self, requests: float, context: float) -> float:
        """Return the time of an iteration that decodes one token of each request (eq. E18)."""
        each = self.token_ms + self.answer_ms + self.window_ms(context) + context * self.cache_ms(context)
        read = self.weights_ms + self.experts_ms * self.touched(requests)
        return self.fixed_ms + read + requests * each

    def prompt_ms(self, prompts: float, tokens: float, context: float) -> float:
        """Return the time of an iteration of complete prompts (eq. E19).

        Args:
            prompts: prompts in the iteration; each yields its first output token.
            tokens: total tokens of the prompts.
            context: mean context of a token, half a prompt [tokens].
        """
        read = self.weights_ms + self.experts_ms * self.touched(tokens)
        work = tokens * (self.token_ms + self.prompt_attention_ms(context)) + prompts * self.answer_ms
        return self.fixed_ms + read + work


def mean_seen(context: float, limit: float | None) -> float:
    """Return the mean attention span of a prompt's tokens, each capped at a limit (eq. E15).

    A token at position x attends to min(x, limit) tokens; positions are uniform from 0 to twice `context`.
    """
    prompt = 2 * context
    if limit is None or prompt <= limit:
        return context
    return limit - limit * limit / (2 * prompt)
