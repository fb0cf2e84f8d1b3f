"""Computes the time of one iteration from layers and data sheet, as components of α, β and γ.

Times are in ms. Equation numbers are those of docs/estimate.md.
"""

from dataclasses import dataclass
from functools import cached_property

from optimizer.errors import SpecError
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.facts import AcceleratorFacts
from optimizer.profiles.formats import WeightFormat, cache_format, reached_tflops, weight_format
from optimizer.profiles.layers import Cache, Layer, ModelFacts

ACTIVATION_BYTES = 2


@dataclass(frozen=True)
class Iterations:
    """Components of the iteration time of a model on `tp` devices of an accelerator."""

    model: ModelFacts
    accelerator: AcceleratorFacts
    deployment: Deployment
    efficiency: Efficiency = Efficiency()  # noqa: RUF009  immutable

    @cached_property
    def format(self) -> WeightFormat:
        """Weights of the deployment, by use and format."""
        return weight_format(self.model, self.deployment.weights)

    @property
    def weights_unknown(self) -> bool:
        """Whether the formats of the weights are unknown: those published are, and none is requested."""
        return bool(self.model.unknown_weights) and self.deployment.weights is None

    @cached_property
    def cache(self) -> str:
        """Number format of the KV cache: the requested one, else that of the checkpoint, else 16-bit."""
        return cache_format(self.deployment.cache or self.model.cache or "bf16")

    @cached_property
    def _bytes_per_ms(self) -> float:
        return self.accelerator.device_bandwidth_gb_per_s * 1e6

    def flop_per_ms(self, name: str) -> float:
        """Return the arithmetic rate that one device reaches for weights of a format [flop/ms] (eq. E6)."""
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
        """Fixed time of an iteration [ms]: host, kernel launches, all-reduce latencies (eq. E7)."""
        efficiency = self.efficiency
        layer_ms = efficiency.eager_layer_ms if self.deployment.eager else efficiency.layer_ms
        launches = sum(layer.count * layer.parts * _launches(layer) for layer in self.model.layers) / 2
        time = efficiency.step_ms + layer_ms * launches
        if self.deployment.tp > 1:
            pcie = self.accelerator.over_pcie
            time += self._parts * (efficiency.all_reduce_pcie_ms if pcie else efficiency.all_reduce_ms)
        return time

    @cached_property
    def _parts(self) -> int:
        """Number of sub-layers; each has an all-reduce."""
        return sum(layer.count * layer.parts for layer in self.model.layers)

    @cached_property
    def weights_ms(self) -> float:
        """Time to read the dense weights and the output head, once per iteration [ms] (eq. E8)."""
        size = self.format.bytes_of("dense", "head")
        return size / (self.deployment.tp * self._bytes_per_ms * self.efficiency.weight_bandwidth)

    @cached_property
    def experts_ms(self) -> float:
        """Time to read all routed experts [ms] (eq. E9)."""
        size = self.format.bytes_of("routed")
        return size / (self.deployment.tp * self._bytes_per_ms * self.efficiency.expert_bandwidth)

    @cached_property
    def expert_share(self) -> float:
        """Fraction of the routed experts that a token uses; 0 for a dense model.

        Raises:
            SpecError: the config does not state the number of experts per token.
        """
        experts = self.model.experts
        if experts is None:
            return 0.0
        if experts.per_token is None:
            raise SpecError(
                f"{self.model.name}: num_experts_per_tok: missing; token times need it, --memory does not"
            )
        return experts.per_token / experts.count

    def touched(self, tokens: float) -> float:
        """Return the expected fraction of routed experts that a number of tokens use together (eq. E10)."""
        return float(1 - (1 - self.expert_share) ** tokens) if self.model.experts else 0.0

    # --- cost of a token ---------------------------------------------------------------------------------

    @cached_property
    def token_ms(self) -> float:
        """Time of arithmetic and all-reduce traffic for one input or output token [ms] (eq. E12)."""
        tp = self.deployment.tp
        time = sum(
            2 * item.parameters / (tp * self.flop_per_ms(item.form)) for item in self.format.of("dense")
        )
        for item in self.format.of("routed"):
            rate = self.flop_per_ms(item.form) * self.efficiency.experts
            time += 2 * item.parameters * self.expert_share / (tp * rate)
        if tp > 1:
            traffic = self._parts * self.model.hidden * ACTIVATION_BYTES * 2 * (tp - 1) / tp
            time += traffic / (self.accelerator.link_gb_per_s * 1e6 * self._link_share)
        return time

    @cached_property
    def _link_share(self) -> float:
        if self.accelerator.over_pcie:
            return float(self.efficiency.link_pcie * (2 / self.deployment.tp) ** 0.5)
        return self.efficiency.link

    @cached_property
    def answer_ms(self) -> float:
        """Additional time of an output token [ms]: host, output head, states of layers (eq. E13)."""
        head = sum(
            2 * item.parameters / (self.deployment.tp * self.flop_per_ms(item.form))
            for item in self.format.of("head")
        )
        rate = self._bytes_per_ms * self.efficiency.cache_bandwidth
        return self.efficiency.sequence_ms + head + 2 * self.state_bytes / rate

    def window_ms(self, context: float) -> float:
        """Return the time to read the cache of window layers for one output token [ms] (eq. E14)."""
        read = sum(
            min(context, cache.limit) * layer.count * self.row_bytes(cache)
            for cache, layer in self.row_caches
            if cache.limit is not None
        )
        return read / (self._bytes_per_ms * self.efficiency.cache_bandwidth)

    def prompt_attention_ms(self, context: float) -> float:
        """Return the attention time of a prompt token [ms], averaged over a prompt (eq. E15)."""
        work = sum(
            4 * layer.heads * layer.width * mean_seen(context, _most(cache)) / cache.every * layer.count
            for cache, layer in self.row_caches
            if cache.type != "index"
        )
        return work / (self.deployment.tp * self._attention_flop_per_ms)

    # --- cost of a cached token -------------------------------------------------------------------------

    @cached_property
    def row_caches(self) -> list[tuple[Cache, Layer]]:
        """Caches with rows for tokens, each with its group of equal layers."""
        return [(cache, layer) for cache, layer in self.model.caches if cache.type != "state"]

    def row_bytes(self, cache: Cache) -> float:
        """Return the size of a row of a layer's cache on one device [bytes] (eq. E16)."""
        return cache.row_bytes(self.cache, self.deployment.tp)

    @cached_property
    def state_bytes(self) -> float:
        """Size of the states of one request on one device [bytes]."""
        tp = self.deployment.tp
        states = ((cache, layer) for cache, layer in self.model.caches if cache.type == "state")
        return sum(layer.count * cache.fixed_bytes(tp) for cache, layer in states)

    def cache_ms(self, context: float) -> float:
        """Return the time to read one cached token for an output token [ms] at a context length (eq. E17)."""
        time = 0.0
        for cache, layer in self.row_caches:
            if cache.limit is None:
                own = (
                    layer.count
                    * self.row_bytes(cache)
                    / (self._bytes_per_ms * self.efficiency.cache_bandwidth)
                )
                if cache.type == "latent":
                    work = 2 * layer.heads * layer.absorbed * layer.count
                    own += work / (self.deployment.tp * self._attention_flop_per_ms)
                time += own / cache.every * min(1.0, (cache.read or context) / context)
        return time

    # --- entire iterations -------------------------------------------------------------------------------

    def decode_ms(self, requests: float, context: float) -> float:
        """Return the time of an iteration that decodes one token of each request [ms] (eq. E18)."""
        each = self.token_ms + self.answer_ms + self.window_ms(context) + context * self.cache_ms(context)
        read = self.weights_ms + self.experts_ms * self.touched(requests)
        return self.fixed_ms + read + requests * each

    def prompt_ms(self, prompts: float, tokens: float, context: float) -> float:
        """Return the time of an iteration of complete prompts [ms] (eq. E19).

        Args:
            prompts: number of prompts in the iteration; each yields its first output token.
            tokens: total number of tokens of the prompts.
            context: mean context of a prompt token: half a prompt [tokens].
        """
        read = self.weights_ms + self.experts_ms * self.touched(tokens)
        work = tokens * (self.token_ms + self.prompt_attention_ms(context)) + prompts * self.answer_ms
        return self.fixed_ms + read + work

    def loop_ms(self, requests: float) -> float:
        """Return the time per output token in a closed loop with `requests` always in flight [ms] (eq. E20).

        A request with O output tokens takes O iterations, of which the first computes its prompt. So on
        average a fraction (O-1)/O of the requests decode, and each other request adds one prompt between the
        tokens of a request. A prompt is computed together with decodes: it adds its work, not a separate
        iteration.
        """
        prompt, answer = self.deployment.in_tokens, self.deployment.out_tokens
        steps = max(answer - 1, 1.0)
        decoding = requests * steps / (steps + 1)
        whole_ms = self.prompt_ms(1, prompt, prompt / 2)
        added_ms = whole_ms - self.decode_ms(0, prompt) - self.experts_ms * self.touched(decoding)
        return self.decode_ms(decoding, prompt + answer / 2) + (requests - 1) / steps * added_ms


def mean_seen(context: float, limit: float | None) -> float:
    """Return the mean attention span of a prompt's tokens [tokens], each capped at a limit (eq. E15).

    A token at position x attends to min(x, limit) tokens; positions are uniform from 0 to twice `context`.
    """
    prompt = 2 * context
    if limit is None or prompt <= limit:
        return context
    return limit - limit * limit / (2 * prompt)


def _most(cache: Cache) -> float | None:
    """Return the maximum number of tokens in a cache that a token attends to; None if unlimited."""
    limits = [limit for limit in (cache.limit, cache.read) if limit is not None]
    return min(limits, default=None)


def _launches(layer: Layer) -> int:
    """Return how often the kernels of a layer are launched; a token-selecting index is a second attention."""
    return 2 if any(cache.type == "index" for cache in layer.caches) else 1
