"""One replica on its own: what it does at a rate, and the largest rate that meets its targets.

Takes `Replica` documents, many at a time, and gives documents back; the queue-analysis format of the
reference is read and written by `optimizer.compat.queue_service`.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import FloatArray, IntArray
from optimizer.errors import AnalysisError
from optimizer.queueing.performance import QUEUE_TO_BATCH_RATIO, Performance, ReplicaQueues
from optimizer.queueing.sizing import Targets, largest_rate
from optimizer.spec.schema import (
    AnswerTokens,
    BatchLimit,
    Count,
    DecodeParms,
    Document,
    PerfParms,
    PositiveCount,
    PrefillParms,
    Quantity,
    Tokens,
)
from optimizer.timing import DEFAULT_MAX_NUM_TOKENS, IterationLaw, LinearLaw, TimingLaw


class Replica(Document):
    """A replica: its token times under one of the two laws, its limits, and its requests."""

    max_batch: BatchLimit = Field(alias="maxBatch")
    """Batch limit."""
    max_queue: Count | None = Field(None, alias="maxQueue")
    """Room to wait behind a full batch; none: 10 times the batch."""
    in_tokens: Tokens = Field(alias="inTokens")
    """Mean prompt length [tokens]."""
    out_tokens: AnswerTokens = Field(alias="outTokens")
    """Mean answer length [tokens]."""
    decode: DecodeParms | None = Field(None, alias="decodeParms")
    """Linear law, decode."""
    prefill: PrefillParms | None = Field(None, alias="prefillParms")
    """Linear law, prefill."""
    iteration: PerfParms | None = Field(None, alias="perfParms")
    """Iteration law; excludes the linear one."""
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Token budget of one iteration (iteration law)."""

    @model_validator(mode="after")
    def _one_law(self) -> "Replica":
        if (self.iteration is None) == (self.decode is None and self.prefill is None):
            raise PydanticCustomError(
                "one_law",
                "give either decodeParms and prefillParms (linear law) or perfParms (iteration law)",
            )
        return self


class ReplicaPerformance(Document):
    """Long-run means of a replica at one arrival rate."""

    offered_rps: float = Field(alias="offeredRate")
    """Arrival rate [requests/s]."""
    throughput_rps: float = Field(alias="throughput")
    """Completed [requests/s]."""
    stable_rate_rps: float = Field(alias="stableRate")
    """Largest rate that counts as stable [requests/s]; beyond it the queue stays full."""
    ttft_ms: float = Field(alias="ttft")
    """Time to first token, with the wait [ms]."""
    itl_ms: float = Field(alias="itl")
    """Inter-token latency [ms]."""
    wait_ms: float = Field(alias="wait")
    """Wait before service [ms]."""
    prefill_ms: float = Field(alias="prefill")
    """Prefill [ms]."""
    service_ms: float = Field(alias="service")
    """Time in the batch [ms]."""
    response_ms: float = Field(alias="response")
    """Wait and service [ms]."""
    in_service: float = Field(alias="inService")
    """Mean requests in the batch."""
    in_queue: float = Field(alias="inQueue")
    """Mean requests waiting."""
    utilization: float
    """Mean batch over the batch limit."""
    loss: float
    """Share of requests that find the queue full."""
    p_empty: float = Field(alias="pEmpty")
    """Probability of an empty replica."""


class ReplicaSizing(Document):
    """The largest rate of a replica that meets its targets."""

    max_rate_rps: float = Field(alias="maxRate")
    """Meets every target [requests/s]."""
    rate_ttft_rps: float | None = Field(None, alias="rateAtTTFT")
    """Meets the TTFT target alone; the largest stable rate without one [requests/s]."""
    rate_itl_rps: float | None = Field(None, alias="rateAtITL")
    """Meets the ITL target alone; the largest stable rate without one [requests/s]."""
    rate_tps_rps: float | None = Field(None, alias="rateAtTPS")
    """Cap that a throughput target sets; the largest stable rate without one [requests/s]."""
    at_max_rate: ReplicaPerformance = Field(alias="atMaxRate")
    """The performance there."""


class LatencyTargets(Document):
    """Targets of one replica; 0 means none."""

    ttft_ms: Quantity = Field(0.0, alias="ttft")
    """Time to first token [ms]."""
    itl_ms: Quantity = Field(0.0, alias="itl")
    """Inter-token latency [ms]."""
    tps: bool = False
    """Whether there is a throughput target: the rate is then capped at 0.9 of the largest stable one."""


def analyze_replicas(replicas: Sequence[Replica], rates_rps: Sequence[float]) -> list[ReplicaPerformance]:
    """Return the performance of each replica at its arrival rate.

    Raises:
        AnalysisError: the rates are not one for each replica, one of them is not positive and finite, or a
            service time is zero.
    """
    if len(rates_rps) != len(replicas):
        raise AnalysisError(
            f"rates: {len(rates_rps)} for {len(replicas)} replicas; give one rate for each replica"
        )
    for rate in rates_rps:
        if not np.isfinite(rate) or rate <= 0:
            limit = "finite" if rate == np.inf else "more than 0 requests/s"
            raise AnalysisError(f"rate: must be {limit}, not {rate:g}")
    rates = np.array(rates_rps, dtype=np.float64)
    answers: list[ReplicaPerformance | None] = [None] * len(replicas)
    for rows, queues in _queues(replicas):
        found = queues.analyze(rates[rows])
        for i, row in enumerate(rows):
            answers[row] = _performance(found, queues.stable_rate_rps, i)
    return [answer for answer in answers if answer is not None]


def size_replicas(
    replicas: Sequence[Replica], targets: Sequence[LatencyTargets]
) -> list[ReplicaSizing | AnalysisError]:
    """Return the largest rate of each replica, or the error that says which target it cannot meet.

    Raises:
        AnalysisError: the targets are not one for each replica, or a service time is zero.
    """
    if len(targets) != len(replicas):
        raise AnalysisError(
            f"targets: {len(targets)} for {len(replicas)} replicas; give one entry for each replica"
        )
    answers: list[ReplicaSizing | AnalysisError] = [AnalysisError("not sized")] * len(replicas)
    for rows, queues in _queues(replicas):
        ttft = np.array([targets[row].ttft_ms or np.inf for row in rows])
        itl = np.array([targets[row].itl_ms or np.inf for row in rows])
        tps = np.array([targets[row].tps for row in rows], dtype=np.bool_)
        none, off = np.full(len(rows), np.inf), np.zeros(len(rows), np.bool_)
        joint = largest_rate(queues, Targets(ttft, itl, tps))
        alone = [
            largest_rate(queues, Targets(*wanted)).max_rate_rps
            for wanted in ((ttft, none, off), (none, itl, off), (none, none, tps))
        ]
        found = queues.analyze(np.where(joint.attainable, joint.max_rate_rps, queues.least_rate_rps))
        for i, row in enumerate(rows):
            if joint.attainable[i]:
                answers[row] = ReplicaSizing(
                    max_rate_rps=float(joint.max_rate_rps[i]),
                    rate_ttft_rps=_or_none(alone[0][i]),
                    rate_itl_rps=_or_none(alone[1][i]),
                    rate_tps_rps=_or_none(alone[2][i]),
                    at_max_rate=_performance(found, queues.stable_rate_rps, i),
                )
            else:
                answers[row] = _unattainable(targets[row], joint.least_ttft_ms[i], joint.least_itl_ms[i])
    return answers


def _unattainable(targets: LatencyTargets, ttft_ms: float, itl_ms: float) -> AnalysisError:
    missed = [
        f"the best {name} at batch 1 is {best:.4g} ms, target {target:g} ms"
        for name, best, target in (("TTFT", ttft_ms, targets.ttft_ms), ("ITL", itl_ms, targets.itl_ms))
        if target and best > target
    ]
    return AnalysisError(
        f"no rate meets the targets: {' and '.join(missed)}; relax the target or use faster token times"
    )


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _performance(found: Performance, stable_rate_rps: FloatArray, row: int) -> ReplicaPerformance:
    figures = {
        name: float(getattr(found, name)[row])
        for name in ReplicaPerformance.model_fields
        if hasattr(found, name)
    }
    return ReplicaPerformance.model_validate(figures | {"stable_rate_rps": float(stable_rate_rps[row])})


def _queues(replicas: Sequence[Replica]) -> list[tuple[IntArray, ReplicaQueues]]:
    """Return the queues of the replicas law by law, each with the rows that it stands for."""
    parts = []
    for linear in (True, False):
        rows = np.array(
            [i for i, r in enumerate(replicas) if (r.iteration is None) == linear], dtype=np.int64
        )
        if not len(rows):
            continue
        mine = [replicas[row] for row in rows]
        law = _law(mine, linear=linear)
        idle = np.flatnonzero(law.service_time_ms(np.ones(len(rows))) <= 0)
        if len(idle):
            raise AnalysisError(
                "the service time of a request is zero; give token times, or more than one answer token"
            )
        max_batch = np.array([r.max_batch for r in mine])
        max_queue = np.array(
            [QUEUE_TO_BATCH_RATIO * r.max_batch if r.max_queue is None else r.max_queue for r in mine]
        )
        parts.append((rows, ReplicaQueues.build(law, max_batch, max_queue)))
    return parts


def _law(replicas: Sequence[Replica], *, linear: bool) -> TimingLaw:
    def column(values: Sequence[float]) -> FloatArray:
        return np.array(values, dtype=np.float64)

    in_tokens, out_tokens = column([r.in_tokens for r in replicas]), column([r.out_tokens for r in replicas])
    if linear:
        decode = [r.decode or DecodeParms() for r in replicas]
        prefill = [r.prefill or PrefillParms() for r in replicas]
        return LinearLaw(
            column([d.base_ms for d in decode]),
            column([d.per_request_ms for d in decode]),
            column([p.base_ms for p in prefill]),
            column([p.per_token_ms for p in prefill]),
            in_tokens,
            out_tokens,
        )
    laws = [r.iteration or PerfParms() for r in replicas]
    return IterationLaw(
        column([law.base_ms for law in laws]),
        column([law.compute_per_token_ms for law in laws]),
        column([law.kv_read_per_token_ms for law in laws]),
        in_tokens,
        out_tokens,
        column([float(r.max_num_tokens) for r in replicas]),
    )
