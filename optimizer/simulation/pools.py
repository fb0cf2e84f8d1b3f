"""Simulates disaggregated serving: prefill replicas, the transfer of the KV cache, and decode replicas.

A prefill replica holds the KV cache of a prompt until the first step of the decode replica that took it. So
with limited memory, full decode replicas stop prefill replicas.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray, frozen
from optimizer.errors import AnalysisError
from optimizer.simulation.engine import PER_REQUEST, SimulatedRun, check_progress, simulate
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.live.prefills import LivePrefills
from optimizer.simulation.replicas import SimulatedReplica, TokenReplica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import overload_of

BYTES_PER_MS = 1e6
"""1 GB/s in bytes per ms."""
MAX_PASSES = 2000
"""Maximum number of passes over both pools until the times at which KV caches are freed no longer change."""


class Transfer(NamedTuple):
    """Handover of a KV cache, over a link of each prefill replica."""

    bandwidth: float
    """Bandwidth of the link [GB/s]."""
    kv_bytes: float
    """Size of the KV cache of a token [bytes]."""
    layers: int
    """Number of layers that are sent one by one during the prefill; 1 sends all at its end."""
    fixed_ms: float
    """Time of each handover in addition to the transfer [ms]."""


@dataclass(frozen=True, slots=True)
class PooledRun(SimulatedRun):
    """Results of R requests in two pools."""

    prefilled_ms: FloatArray
    """End of the prefill [ms]."""
    received_ms: FloatArray
    """Time at which the decode replica has the KV cache [ms]."""

    @property
    def prefill_ms(self) -> FloatArray:
        """Time from arrival to the end of the prefill [ms]."""
        return self.prefilled_ms - self.sent_ms

    @property
    def handover_ms(self) -> FloatArray:
        """Time from the end of the prefill until the decode replica has the KV cache [ms]."""
        return self.received_ms - self.prefilled_ms

    @property
    def first_step_ms(self) -> FloatArray:
        """Time from the handover to the first token [ms]."""
        return self.first_ms - self.received_ms


@dataclass(frozen=True, slots=True)
class PrefillReplica:
    """A prefill replica alone."""

    times: IterationCoefficients
    budget: int
    kv_tokens: int

    def live(self, levels: int, rng: np.random.Generator) -> LivePrefills:  # noqa: ARG002
        """Return an empty live replica, which does not distinguish priorities."""
        return LivePrefills(self.times, self.budget, self.kv_tokens)


@dataclass(frozen=True, slots=True)
class PooledReplicas(SimulatedReplica):
    """Prefill replicas with their links, and decode replicas; prompts reach decode replicas at random."""

    times: IterationCoefficients
    """Iteration law of the prefill replicas."""
    decode_times: IterationCoefficients
    """Iteration law of the decode replicas."""
    budget: int
    """Token budget of a prefill replica."""
    prefill_kv_tokens: int
    """Capacity of the KV cache of a prefill replica [tokens]."""
    limits: Limits
    """Limits of a decode replica."""
    prefill_replicas: int
    decode_replicas: int
    round_robin: bool
    """Whether prefill replicas get prompts in turn; otherwise at random."""
    seeded: bool
    """Whether the prefill replica sends the first token."""
    transfer: Transfer
    only_steady: bool = False
    """Whether to ignore that decode replicas hold prefill replicas back if a queue grows without bound."""

    @property
    def prefill(self) -> PrefillReplica:
        """One prefill replica."""
        return PrefillReplica(self.times, self.budget, self.prefill_kv_tokens)

    @property
    def decode(self) -> TokenReplica:
        """One decode replica."""
        return TokenReplica(self.decode_times, self.limits)

    def with_chances(self, requests: Requests, seed: np.random.SeedSequence) -> Requests:
        """Draw the replicas that compute and decode each request."""
        (own,) = seed.spawn(1)
        rng, count = np.random.default_rng(own), len(requests)
        prefill = rng.integers(0, self.prefill_replicas, count)
        if self.round_robin:
            prefill = np.arange(count) % self.prefill_replicas
        return replace(requests, assigned=np.stack((prefill, rng.integers(0, self.decode_replicas, count))))

    def run(self, requests: Requests) -> PooledRun:
        """Run requests through both pools; repeat while decode replicas hold prefill replicas back.

        Later requests never change earlier times, so the passes settle one request after the other.

        Raises:
            AnalysisError: an iteration would take no time, an output is too long, or memory is too small.
        """
        assert requests.arrival_ms is not None
        assert requests.assigned is not None
        work = PromptWork.of(requests)
        prefilled_ms = self._prefilled(requests, work, np.zeros(len(requests)))
        for _ in range(MAX_PASSES):
            received_ms = self._received(requests, work, prefilled_ms)
            decoded = self._decoded(requests, work, received_ms)
            joined = self._joined(requests, prefilled_ms, received_ms, decoded)
            if self.prefill_kv_tokens >= UNLIMITED or (self.only_steady and overload_of(joined)):
                return joined
            freed_ms = np.fmax(decoded.first_ms, received_ms)  # NaN: too long for a decode replica
            before, prefilled_ms = prefilled_ms, self._prefilled(requests, work, freed_ms)
            if (before == prefilled_ms).all():
                return joined
        raise AnalysisError(
            f"the KV cache of prefill replicas, {self.prefill_kv_tokens} tokens, is so small that decode "
            "replicas hold them back all the time; raise kvCapacity, or add decode replicas"
        )

    def _prefilled(self, requests: Requests, work: "PromptWork", freed_ms: FloatArray) -> FloatArray:
        """Return the end of each prefill [ms]."""
        from optimizer.simulation.machine.prefills import run_prefills

        assert requests.arrival_ms is not None
        assert requests.assigned is not None
        end_ms = np.empty(len(requests))
        for replica in range(self.prefill_replicas):
            mine = np.flatnonzero(requests.assigned[0] == replica)
            arrays = requests.arrival_ms[mine], work.computed[mine], work.cached[mine], freed_ms[mine]
            ends, held = np.empty(len(mine)), (np.empty(len(mine) + 1), np.empty(len(mine) + 1))
            takes_time = run_prefills(self.times, self.budget, self.prefill_kv_tokens, arrays, held, ends)
            check_progress(is_stuck=not takes_time)
            end_ms[mine] = ends
        return end_ms

    def _received(self, requests: Requests, work: "PromptWork", prefilled_ms: FloatArray) -> FloatArray:
        """Return the times at which decode replicas have the KV caches [ms]."""
        from optimizer.simulation.machine.prefills import run_link

        assert requests.assigned is not None
        spent_ms, received_ms = self.transfer_ms(work), np.empty(len(requests))
        for replica in range(self.prefill_replicas):
            mine = np.flatnonzero(requests.assigned[0] == replica)
            ends = np.empty(len(mine))
            run_link(prefilled_ms[mine], spent_ms[mine], ends)
            received_ms[mine] = ends + self.transfer.fixed_ms
        return received_ms

    def transfer_ms(self, work: "PromptWork") -> FloatArray:
        """Return the transfer time left at the end of the prefill of each prompt [ms] (eq. 296)."""
        per_token = self.transfer.kv_bytes / (self.transfer.bandwidth * BYTES_PER_MS)
        whole, last = (work.computed + work.cached) * per_token, 1 / self.transfer.layers
        if last == 1:
            return np.asarray(whole)
        return np.asarray(np.maximum(whole * last, whole - (1 - last) * self._alone_ms(work)))

    def _alone_ms(self, work: "PromptWork") -> FloatArray:
        """Return the time of the prefill of each prompt alone [ms]."""
        from optimizer.simulation.machine.prefills import run_prefills

        count = len(work.computed)
        spaced_ms: FloatArray = np.arange(count, dtype=np.float64) * 1e9
        held, ends = (np.empty(count + 1), np.empty(count + 1)), np.empty(count)
        arrays = spaced_ms, work.computed, work.cached, np.zeros(count)
        run_prefills(self.times, self.budget, UNLIMITED, arrays, held, ends)
        return ends - spaced_ms

    def _decoded(self, requests: Requests, work: "PromptWork", received_ms: FloatArray) -> SimulatedRun:
        """Return the run of all decode replicas, with the requests in their original order.

        The prompt of a request is its last token, or its first output token if that is known.
        """
        assert requests.assigned is not None
        sent = {name: np.full(len(requests), np.nan) for name in PER_REQUEST}
        busy_ms, batch_ms, iterations = 0.0, 0.0, 0
        context = work.computed + work.cached + self.seeded
        out_tokens = requests.out_tokens - self.seeded
        for replica in range(self.decode_replicas):
            mine = np.flatnonzero((requests.assigned[1] == replica) & (out_tokens > 0))
            mine = mine[np.argsort(received_ms[mine], kind="stable")]
            if not len(mine):
                continue
            shared = None if requests.shared_tokens is None else requests.shared_tokens[mine]
            arrived = Requests(
                context[mine],
                out_tokens[mine],
                received_ms[mine],
                cached_tokens=context[mine] - 1,
                shared_tokens=shared,
            )
            run = simulate(arrived, self.decode_times, self.limits)
            for name in PER_REQUEST:
                sent[name][mine] = getattr(run, name)
            busy_ms, batch_ms = busy_ms + run.busy_ms, batch_ms + run.batch_ms
            iterations += run.iterations
        ended = out_tokens <= 0  # the prefill replica has sent the only token
        for name in ("sent_ms", "first_ms", "last_ms"):
            sent[name][ended] = received_ms[ended]
        sent["client_ms"][ended], sent["preemptions"][ended] = 0.0, 0
        preemptions = sent.pop("preemptions").astype(np.int64)
        return SimulatedRun(
            requests,
            **sent,
            preemptions=preemptions,
            busy_ms=busy_ms,
            batch_ms=batch_ms,
            iterations=iterations,
        )

    def _joined(
        self, requests: Requests, prefilled_ms: FloatArray, received_ms: FloatArray, decoded: SimulatedRun
    ) -> PooledRun:
        assert requests.arrival_ms is not None
        first_ms = received_ms if self.seeded else decoded.first_ms
        return PooledRun(
            requests=requests,
            sent_ms=frozen(requests.arrival_ms.copy()),
            first_ms=frozen(first_ms.copy()),
            last_ms=frozen(decoded.last_ms),
            client_ms=frozen(decoded.client_ms),
            preemptions=frozen(decoded.preemptions),
            busy_ms=decoded.busy_ms,
            batch_ms=decoded.batch_ms,
            iterations=decoded.iterations,
            prefilled_ms=frozen(prefilled_ms),
            received_ms=frozen(received_ms),
        )


class PromptWork(NamedTuple):
    """Prompt tokens of R requests, shapes (R,)."""

    computed: IntArray
    cached: IntArray

    @classmethod
    def of(cls, requests: Requests) -> "PromptWork":
        """Return the tokens of requests; at least one token is computed."""
        tokens = np.maximum(requests.in_tokens, 1)
        cached = np.zeros_like(tokens) if requests.cached_tokens is None else requests.cached_tokens
        cached = np.minimum(cached, tokens - 1)
        return cls(tokens - cached, cached)


def decode_coefficients(times: IterationCoefficients) -> IterationCoefficients:
    """Return the iteration law of a decode replica, where a prompt token reads the KV cache like a decode."""
    return times._replace(prompt_attention_ms=times.kv_read_per_token_ms, prompt_base_ms=0.0)
