"""Rows that describe disaggregated serving: a pool of prefill replicas and a pool of decode replicas.

Rates are those of both pools together in requests per second, times in ms. `maxNumTokens` is the token budget
of a prefill replica, `maxBatchSize` the batch limit of a decode replica, and `kvCapacity` the KV cache of
each replica.
"""

from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.compat.queue_service import QueueAnswer
from optimizer.compat.rows import ReplicaRow, RowAnswer
from optimizer.documents import Document, GigabytesPerSecond, Milliseconds, PositiveCount, Quantity
from optimizer.errors import AnalysisError
from optimizer.features.disaggregation.fields import FirstToken
from optimizer.kinds.replicas import queues_of
from optimizer.kinds.rows import OverloadedReplica, UnstableReplica, answers, simulated_answer, unattainable
from optimizer.kinds.simulated import ReplicaSimulation, open_load
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.disaggregated.handover import Handover
from optimizer.queueing.disaggregated.model import DisaggregatedQueues, PoolArrays
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.pools import PooledReplicas, Transfer, decode_coefficients
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.simulation.summary import latency_mean, latency_percentile

CONTINUOUS = ContinuousQueues.name
RouterName = Literal["random", "roundRobin"]


class PoolsOfRow(Document):
    """Prefill and decode pools of a row, and the handover between them."""

    prefill_replicas: PositiveCount = Field(1, alias="prefillReplicas")
    """Number of prefill replicas."""
    decode_replicas: PositiveCount = Field(1, alias="decodeReplicas")
    """Number of decode replicas; they get requests at random."""
    prefill_router: RouterName = Field("random", alias="prefillRouter")
    """Whether prefill replicas get requests at `random` or in turn (`roundRobin`)."""
    link_gbps: GigabytesPerSecond = Field(0.0, alias="linkBandwidth")
    """Bandwidth of the link of a prefill replica [GB/s]; required with `kvBytesPerToken`."""
    kv_bytes: Quantity = Field(0.0, alias="kvBytesPerToken")
    """Size of the KV cache of a token [bytes]; 0 for transfers that take no time."""
    layers: PositiveCount = 1
    """Number of layers that are sent one by one during the prefill; 1 sends all layers at its end."""
    fixed_ms: Milliseconds = Field(0.0, alias="fixedMs")
    """Time of each handover in addition to the transfer [ms]."""
    first_token: FirstToken = Field("decode", alias="firstToken")
    """Whether the `prefill` replica sends the first token, at the end of the handover, or the `decode`
    replica after its first step, in which it computes the last prompt token again.
    """

    @model_validator(mode="after")
    def _has_link(self) -> "PoolsOfRow":
        if self.kv_bytes and not self.link_gbps:
            raise PydanticCustomError(
                "no_link",
                "linkBandwidth: 0 GB/s is no link; give its bandwidth, or a kvBytesPerToken of 0",
            )
        return self

    @property
    def is_seeded(self) -> bool:
        """Whether the prefill replica sends the first token."""
        return self.first_token != "decode"  # noqa: S105  not a password

    def arrays(self) -> PoolArrays:
        """Return the pools as arrays with one row."""
        numbers = self.link_gbps or 1.0, self.kv_bytes, self.layers, self.fixed_ms
        replicas = self.prefill_replicas, self.decode_replicas
        marks = self.prefill_router == "roundRobin", self.is_seeded
        prefill, decode = (np.array([float(count)]) for count in replicas)
        in_turn, seeded = (np.array([mark]) for mark in marks)
        handover = Handover(*(np.array([float(number)]) for number in numbers))
        return PoolArrays(prefill, decode, in_turn, seeded, handover)


class DisaggregatedAnswer(RowAnswer):
    """Performance of both pools; the parts of the mean TTFT add up to it."""

    prefill_wait_ms: float = Field(alias="avgPrefillWait")
    """Mean wait before the prefill [ms]."""
    prefill_ms: float = Field(alias="avgPrefill")
    """Mean prefill time of a prompt [ms]."""
    transfer_ms: float = Field(alias="avgTransfer")
    """Mean time of the transfer after the prefill, with the wait for the link [ms]."""
    handover_ms: float = Field(alias="handover")
    """Fixed time of the handover [ms]."""
    first_step_ms: float = Field(alias="avgFirstStep")
    """Mean time from the handover to the first token [ms]."""
    prefill_load: float = Field(alias="prefillLoad")
    """Load of a prefill replica, as a fraction of its largest rate."""
    decode_load: float = Field(alias="decodeLoad")
    """Load of a decode replica, as a fraction of its largest rate."""


class DisaggregatedSimulation(ReplicaSimulation):
    """Simulated performance of both pools."""

    prefill_end_ms: float = Field(alias="avgPrefillEnd")
    """Mean time from arrival to the end of the prefill [ms]."""
    p95_prefill_end_ms: float = Field(alias="p95PrefillEnd")
    """95th percentile of this time [ms]."""
    handover_ms: float = Field(alias="avgHandover")
    """Mean time from the end of the prefill to that of the handover [ms]."""
    first_step_ms: float = Field(alias="avgFirstStep")
    """Mean time from the handover to the first token [ms]; 0 if the prefill replica sends it."""


class DisaggregatedRow(ReplicaRow):
    """Two pools at one arrival rate: a problem in llm-inferno's format, with extensions."""

    disaggregated: PoolsOfRow
    """Prefill and decode pools, and the handover between them."""

    @model_validator(mode="after")
    def _is_continuous(self) -> "DisaggregatedRow":
        if "queue_model" not in self.model_fields_set:
            object.__setattr__(self, "queue_model", CONTINUOUS)
        if self.queue_model != CONTINUOUS:
            raise _error("queueModel", f"{self.queue_model!r} does not support disaggregated; remove it")
        if self.scheduler != "chunked":
            raise _error("scheduler", "does not apply to disaggregated replicas; remove it")
        if self.max_queue and "max_queue" in self.model_fields_set:
            raise _error("maxQueueSize", "disaggregated replicas have unlimited queues; remove it")
        return self

    def queues(self) -> DisaggregatedQueues:
        """Return the queue model of both pools, with one row."""
        own = self.disaggregated.arrays()
        ((_, queues),) = queues_of([self.replica()], DisaggregatedQueues, own)
        assert isinstance(queues, DisaggregatedQueues)
        return queues

    def analyze(self) -> QueueAnswer | UnstableReplica:
        """Return the performance of both pools at the row's arrival rate."""
        queues = self.queues()
        if self.rate_rps <= 0:
            raise AnalysisError(f"rate: must be more than 0 requests/s, not {self.rate_rps:g}")
        if self.rate_rps > queues.stable_rate_rps[0]:
            return UnstableReplica.at(self.rate_rps, float(queues.stable_rate_rps[0]))
        return self._answer(queues, self.rate_rps)

    def size(self) -> QueueAnswer:
        """Return the maximum rate of both pools within the targets, and the performance there."""
        queues, goal = self.queues(), self.targets()
        targets = Targets.of_limits([goal.limits()], np.zeros(1, np.bool_))
        sizing = largest_rate(queues, targets)
        if not sizing.attainable[0]:
            raise unattainable(targets, sizing.least[:, 0], " or use faster token times")
        alone = {}
        for name, metric in (("ttft_ms", "rate_ttft_rps"), ("itl_ms", "rate_itl_rps")):
            only = Targets.of_limits([goal.only(name).limits()], np.zeros(1, np.bool_))
            alone[metric] = np.nan_to_num(largest_rate(queues, only).max_rate_rps).tolist()
        return self._answer(queues, float(sizing.max_rate_rps[0]), **alone)

    def _answer(self, queues: DisaggregatedQueues, rate_rps: float, **own: Any) -> DisaggregatedAnswer:
        stable = queues.stable_rate_rps.tolist()
        performance = queues.analyze(np.array([rate_rps]))
        (answer,) = answers(DisaggregatedAnswer, performance, stable_rate_rps=stable, **own)
        return answer

    def simulate(self, effort: Effort) -> DisaggregatedSimulation | OverloadedReplica:
        """Simulate both pools; a prefill replica holds the KV cache until the decode replica has taken it."""
        replica, pools = self.replica(), self.disaggregated
        assert replica.iteration is not None
        times = IterationCoefficients(
            *(getattr(replica.iteration, name) for name in IterationCoefficients._fields)
        )
        capacity = UNLIMITED
        if replica.kv_capacity_tokens is not None:
            capacity = max(replica.kv_capacity_tokens - round(replica.heads_tokens()), 1)
        both = PooledReplicas(
            times=times,
            decode_times=decode_coefficients(times),
            budget=replica.max_num_tokens,
            prefill_kv_tokens=capacity,
            limits=Limits(replica.max_batch, 2 * replica.max_batch, capacity),
            prefill_replicas=pools.prefill_replicas,
            decode_replicas=pools.decode_replicas,
            round_robin=pools.prefill_router == "roundRobin",
            seeded=pools.is_seeded,
            transfer=Transfer(pools.link_gbps or 1.0, pools.kv_bytes, pools.layers, pools.fixed_ms),
        )
        runs = run_replica(open_load(replica, self.rate_rps), both, effort)
        return simulated_answer(
            DisaggregatedSimulation,
            runs,
            effort,
            prefill_end_ms=latency_mean(runs, "prefill_ms").value,
            p95_prefill_end_ms=latency_percentile(runs, "prefill_ms", 95).value,
            handover_ms=latency_mean(runs, "handover_ms").value,
            first_step_ms=0.0 if both.seeded else latency_mean(runs, "first_step_ms").value,
        )


def _error(key: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("disaggregated", "{key}: {text}", {"key": key, "text": text})
