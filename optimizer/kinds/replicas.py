"""Analysis of single token replicas: performance at a rate, and the maximum rate within targets.

The queue-analysis format of llm-inferno is in `optimizer.compat.queue_service`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import (
    ANY_LOSS,
    AnswerTokens,
    BatchLimit,
    Coefficient,
    Count,
    Document,
    MaxLoss,
    Milliseconds,
    Tokens,
    is_none,
)
from optimizer.errors import AnalysisError
from optimizer.kinds.laws import laws_given
from optimizer.kinds.queue_models import (
    QUEUE_MODELS,
    REFERENCE,
    QueueModelName,
    default_model,
    law_problem,
    shapes_problem,
    variability_problem,
    way_to,
    without_default,
)
from optimizer.kinds.request_shapes import ShapedRequests, check_lengths_given, shapes_of
from optimizer.kinds.rows import answers, unattainable
from optimizer.kinds.table import LawFields
from optimizer.quantities import counted
from optimizer.queueing.measures import LATENCIES, LOSS, LatencyName, TargetMeasure
from optimizer.queueing.performance import (
    QUEUE_TO_BATCH_RATIO,
    VARIABILITY,
    OwnArrays,
    Performance,
    QueueModel,
    ReplicaLimits,
    Variability,
)
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.timing.law import Law, RequestShapes

_Answer = TypeVar("_Answer", bound=Document)
_Result = TypeVar("_Result")
MAX_BATCHES_AT_ONCE = 1_000_000
"""Maximum sum of the batch limits of replicas that are analysed at once, which bounds memory use."""


class _ReplicaShape(ShapedRequests):
    """Limits, request lengths and queue model of a replica."""

    max_batch: BatchLimit = Field(alias="maxBatch")
    """Batch limit [requests]."""
    max_queue: Count | None = Field(None, alias="maxQueue")
    """Queue capacity: maximum number of requests that wait for a full batch; default: 10 times the batch
    limit.
    """
    in_tokens: Tokens = Field(0.0, alias="inTokens")
    """Mean input length [tokens]; required without `shapes`."""
    out_tokens: AnswerTokens = Field(1.0, alias="outTokens")
    """Mean output length [tokens]; required without `shapes`."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """KV cache capacity [tokens]; it limits the batch in the queue model `continuous`."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the interarrival times."""
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the input length."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length."""
    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel", json_schema_extra=without_default)
    """Queue model; default: `continuous` with `perfParms`, else `reference`."""


class Replica(LawFields, _ReplicaShape):
    """A replica that serves tokens: latency model, limits, request lengths and queue model."""

    @model_validator(mode="after")
    def _one_law(self) -> "Replica":
        check_lengths_given(self)
        if len(laws_given(self)) != 1:
            raise PydanticCustomError(
                "one_law",
                "give either decodeParms and prefillParms (linear law) or perfParms (iteration law)",
            )
        if "queue_model" not in self.model_fields_set:
            object.__setattr__(self, "queue_model", default_model(laws_given(self)))
        self._check_queue_model(laws_given(self)[0])
        return self

    def _check_queue_model(self, law: type[Law]) -> None:
        named = {field.alias or name: name for name, field in type(self).model_fields.items()}
        varied = {wire: getattr(self, name) for wire, name in named.items() if name in VARIABILITY}
        for code, problem in (
            ("queue_model_law", law_problem(self.queue_model, law)),
            (
                "queue_model_variability",
                shapes_problem(self.queue_model, self)
                if self.has_shapes
                else variability_problem(self.queue_model, varied, self),
            ),
        ):
            if problem is not None:
                raise PydanticCustomError(code, "{problem}", {"problem": problem})


class Percentiles(Document):
    """Percentiles of a latency over all requests [ms]."""

    p50_ms: float = Field(alias="p50")
    """Median [ms]."""
    p90_ms: float = Field(alias="p90")
    """90th percentile [ms]."""
    p95_ms: float = Field(alias="p95")
    """95th percentile [ms]."""
    p99_ms: float = Field(alias="p99")
    """99th percentile [ms]."""


class ReplicaPerformance(Document):
    """Steady-state performance of a replica at one arrival rate; percentiles if the queue model has them."""

    offered_rps: float = Field(alias="offeredRate")
    """Arrival rate [requests/s]."""
    throughput_rps: float = Field(alias="throughput")
    """Throughput of completed requests [requests/s]."""
    stable_rate_rps: float = Field(alias="stableRate")
    """Maximum stable rate [requests/s]; above it, the queue stays full."""
    ttft_ms: float = Field(alias="ttft")
    """Mean time to first token, including the queueing time [ms]."""
    itl_ms: float = Field(alias="itl")
    """Mean inter-token latency [ms]."""
    wait_ms: float = Field(alias="wait")
    """Mean queueing time [ms]."""
    prefill_ms: float = Field(alias="prefill")
    """Mean prefill time [ms]."""
    service_ms: float = Field(alias="service")
    """Mean time in the batch [ms]."""
    response_ms: float = Field(alias="response")
    """Mean response time: queueing plus service time [ms]."""
    in_service: float = Field(alias="inService")
    """Mean number of requests in the batch."""
    in_queue: float = Field(alias="inQueue")
    """Mean number of waiting requests."""
    utilization: float
    """Utilisation: mean batch divided by the batch limit, 0 to 1."""
    loss: float
    """Fraction of requests that are rejected because the queue is full."""
    p_empty: float = Field(alias="pEmpty")
    """Probability that the replica has no request."""
    ttft_percentiles: Percentiles | None = Field(None, alias="ttftPercentiles", exclude_if=is_none)
    """Percentiles of the time to first token; absent if the queue model computes means only."""
    itl_percentiles: Percentiles | None = Field(None, alias="itlPercentiles", exclude_if=is_none)
    """Percentiles of the mean inter-token latency of each request; absent if the queue model computes means
    only.
    """
    e2e_percentiles: Percentiles | None = Field(None, alias="e2ePercentiles", exclude_if=is_none)
    """Percentiles of the time to the last token; absent if the queue model computes means only."""


class LatencyFigures(Document):
    """Mean end-to-end latency, and percentiles of TTFT, ITL and end-to-end latency [ms]."""

    e2e_ms: float = Field(alias="avgE2E")
    """Mean end-to-end latency: time to the last token [ms]."""
    p50_ttft_ms: float = Field(alias="p50TTFT")
    """Median of the time to first token [ms]."""
    p90_ttft_ms: float = Field(alias="p90TTFT")
    """90th percentile of the time to first token [ms]."""
    p95_ttft_ms: float = Field(alias="p95TTFT")
    """95th percentile of the time to first token [ms]."""
    p99_ttft_ms: float = Field(alias="p99TTFT")
    """99th percentile of the time to first token [ms]."""
    p50_itl_ms: float = Field(alias="p50ITL")
    """Median of the mean inter-token latency of each request [ms]."""
    p90_itl_ms: float = Field(alias="p90ITL")
    """90th percentile of the mean inter-token latency of each request [ms]."""
    p95_itl_ms: float = Field(alias="p95ITL")
    """95th percentile of the mean inter-token latency of each request [ms]."""
    p99_itl_ms: float = Field(alias="p99ITL")
    """99th percentile of the mean inter-token latency of each request [ms]."""
    p50_e2e_ms: float = Field(alias="p50E2E")
    """Median of the time to the last token [ms]."""
    p90_e2e_ms: float = Field(alias="p90E2E")
    """90th percentile of the time to the last token [ms]."""
    p95_e2e_ms: float = Field(alias="p95E2E")
    """95th percentile of the time to the last token [ms]."""
    p99_e2e_ms: float = Field(alias="p99E2E")
    """99th percentile of the time to the last token [ms]."""


class ReplicaSizing(Document):
    """Result of sizing: the maximum rate at which a replica meets its targets."""

    max_rate_rps: float = Field(alias="maxRate")
    """Maximum rate that meets all targets [requests/s]."""
    rate_ttft_rps: float | None = Field(None, alias="rateAtTTFT")
    """Maximum rate for the TTFT target alone [requests/s]; without one, the maximum stable rate."""
    rate_itl_rps: float | None = Field(None, alias="rateAtITL")
    """Maximum rate for the ITL target alone [requests/s]; without one, the maximum stable rate."""
    rate_tps_rps: float | None = Field(None, alias="rateAtTPS")
    """Maximum rate that a throughput target allows [requests/s]; without one, the maximum stable rate."""
    rate_e2e_rps: float | None = Field(None, alias="rateAtE2E", exclude_if=is_none)
    """Maximum rate for the end-to-end target alone [requests/s]; absent without one."""
    rate_loss_rps: float | None = Field(None, alias="rateAtLoss")
    """Maximum rate for the limit on rejected requests alone [requests/s]; without one, the maximum stable
    rate.
    """
    at_max_rate: ReplicaPerformance = Field(alias="atMaxRate")
    """Performance of the replica at the maximum rate."""


class LatencyTargets(Document):
    """Targets of one replica; a latency of 0 means no target."""

    ttft_ms: Milliseconds = Field(0.0, alias="ttft")
    """Target of the time to first token [ms]; 0 for none."""
    itl_ms: Milliseconds = Field(0.0, alias="itl")
    """Target of the inter-token latency [ms]; 0 for none."""
    e2e_ms: Milliseconds = Field(0.0, alias="e2e")
    """Target of the time to the last token [ms]; 0 for none."""
    percentile: float | None = Field(None, gt=0, lt=100)
    """Percentile of latencies to which the targets apply; default: the mean."""
    tps: bool = False
    """Whether there is a throughput target, which caps the rate at 0.9 of the maximum stable rate."""

    max_loss: MaxLoss = Field(ANY_LOSS, alias="maxLoss")
    """Maximum fraction of requests that a full queue rejects; `none` for no limit."""

    def only(self, name: str) -> "LatencyTargets":
        """Return a copy with only the target of the given Python name."""
        return LatencyTargets.model_validate({name: getattr(self, name), "percentile": self.percentile})

    def limits(self) -> dict[TargetMeasure, float]:
        """Return the limits by target measure."""
        latencies = {
            TargetMeasure(metric, self.percentile): getattr(self, field)
            for metric, field in LATENCIES.items()
        }
        loss = {LOSS: self.max_loss} if self.max_loss < ANY_LOSS else {}
        return {measure: limit for measure, limit in latencies.items() if limit} | loss


def analyze_replicas(replicas: Sequence[Replica], rates_rps: Sequence[float]) -> list[ReplicaPerformance]:
    """Return the performance of each replica at its arrival rate.

    Raises:
        AnalysisError: the number of rates differs from that of replicas, a rate is not positive and finite,
            or a service time is zero.
    """
    rates = _checked_rates(replicas, rates_rps)
    return _by_model(replicas, lambda queues, rows: _performances(queues, rates[rows]))


def analyze_as(answer_type: type[_Answer], replica: Replica, rate_rps: float) -> _Answer:
    """Return the performance of one replica as a document of the given type.

    Raises:
        AnalysisError: the rate is not positive and finite, or a service time is zero.
    """
    rates = _checked_rates([replica], [rate_rps])
    ((_, queues),) = queues_of([replica])
    (answer,) = answers(answer_type, queues.analyze(rates), stable_rate_rps=queues.stable_rate_rps.tolist())
    return answer


def _checked_rates(replicas: Sequence[Replica], rates_rps: Sequence[float]) -> FloatArray:
    if len(rates_rps) != len(replicas):
        raise AnalysisError(
            f"rates: {len(rates_rps)} for {counted(len(replicas), 'replica')}; give one rate for each replica"
        )
    for rate in rates_rps:
        if not np.isfinite(rate) or rate <= 0:
            limit = "finite" if rate == np.inf else "more than 0 requests/s"
            raise AnalysisError(f"rate: must be {limit}, not {rate:g}")
    return np.array(rates_rps, dtype=np.float64)


def size_replicas(
    replicas: Sequence[Replica], targets: Sequence[LatencyTargets]
) -> list[ReplicaSizing | AnalysisError]:
    """Return the sizing of each replica, or an error that names the targets that it cannot meet.

    Raises:
        AnalysisError: the number of targets differs from the number of replicas, or a service time is zero.
    """
    if len(targets) != len(replicas):
        raise AnalysisError(
            f"targets: {len(targets)} for {counted(len(replicas), 'replica')}; give one entry for "
            "each replica"
        )
    return _by_model(replicas, lambda queues, rows: _sizings(queues, [targets[row] for row in rows]))


_RATE_FIELDS = {
    "itl_ms": "rate_itl_rps",
    "ttft_ms": "rate_ttft_rps",
    "e2e_ms": "rate_e2e_rps",
    "tps": "rate_tps_rps",
    "max_loss": "rate_loss_rps",
}
"""Field of `ReplicaSizing` with the largest rate under one target alone, by the target's field."""


def _sizings(queues: QueueModel, wanted: Sequence[LatencyTargets]) -> Iterator[ReplicaSizing | AnalysisError]:
    """Yield the sizing of each row, or an error if it misses its targets or its queue model lacks them."""
    unknown = [_unknown(queues, target) for target in wanted]
    wanted = [LatencyTargets() if why else target for target, why in zip(wanted, unknown, strict=True)]
    targets = _targets(wanted)
    joint = largest_rate(queues, targets)
    alone = {
        field: largest_rate(queues, _targets([target.only(name) for target in wanted])).max_rate_rps
        for name, field in _RATE_FIELDS.items()
    }
    rates = np.where(joint.attainable, joint.max_rate_rps, queues.least_rate_rps)
    for i, at_max_rate in enumerate(_performances(queues, rates)):
        if why := unknown[i]:
            yield AnalysisError(why)
            continue
        if not joint.attainable[i]:
            of_replica = targets.take(np.array([i]))
            yield unattainable(of_replica, joint.least[:, i], " or use faster token times", " at batch 1")
            continue
        each = {name: None if np.isnan(sizings[i]) else float(sizings[i]) for name, sizings in alone.items()}
        if not wanted[i].e2e_ms:
            each["rate_e2e_rps"] = None
        yield ReplicaSizing(max_rate_rps=float(rates[i]), at_max_rate=at_max_rate, **each)


def _unknown(queues: QueueModel, target: LatencyTargets) -> str:
    """Return a message if the queue model does not compute a target's percentile, else an empty string."""
    late = TargetMeasure("e2e", target.percentile)
    if queues.supports_measure(late) or all(measure.percentile is None for measure in target.limits()):
        return ""
    way = way_to(lambda model: model.supports_measure(late), [queues.law_type], Replica)
    advice = f", or {way}" if way else ""
    return (
        f"percentile: {target.percentile:g} is a percentile, but the queue model {queues.name!r} computes "
        f"means only; remove it{advice}"
    )


def _targets(wanted: Sequence[LatencyTargets]) -> Targets:
    tps = np.array([target.tps for target in wanted], dtype=np.bool_)
    return Targets.of_limits([target.limits() for target in wanted], tps)


def _performances(queues: QueueModel, rates_rps: FloatArray) -> list[ReplicaPerformance]:
    performance = queues.analyze(rates_rps)
    percentiles = {f"{metric}_percentiles": percentiles_of(performance, metric) for metric in LATENCIES}
    stable_rate_rps = queues.stable_rate_rps.tolist()
    return answers(ReplicaPerformance, performance, stable_rate_rps=stable_rate_rps, **percentiles)


def percentiles_of(performance: Performance, metric: LatencyName) -> Sequence[Percentiles | None]:
    """Return the percentiles of a latency for each row, or None for each if the model computes means only.

    Args:
        performance: the performance of R rows.
    """
    if not performance.knows_percentiles:
        return [None] * len(performance.offered_rps)
    columns = {
        name: performance.figure(TargetMeasure(metric, float(name[1:-3]))).tolist()
        for name in Percentiles.model_fields
    }
    return answers(Percentiles, performance, **columns)


def _by_model(
    replicas: Sequence[Replica], answer: Callable[[QueueModel, IntArray], Iterable[_Result]]
) -> list[_Result]:
    """Apply `answer` to all replicas with equal types of models at once; return a result for each replica."""
    results: dict[int, _Result] = {}
    for rows, queues in queues_of(replicas):
        results |= zip(rows.tolist(), answer(queues, rows), strict=True)
    return [results[row] for row in range(len(replicas))]


def queues_of(
    replicas: Sequence[Replica], queue_model: type[QueueModel] | None = None, own: OwnArrays | None = None
) -> Iterator[tuple[IntArray, QueueModel]]:
    """Yield the queue model of each group of replicas, after their positions; groups have a bounded size.

    The replicas of a group have equal types of latency and queue models.

    Args:
        replicas: the replicas.
        queue_model: queue model of all replicas; None for that of each.
        own: further arrays of the queue model, with a row for each replica.

    Raises:
        AnalysisError: a service time is zero.
    """
    batches = accumulate(replica.max_batch for replica in replicas)
    given = [
        (laws_given(replica)[0], replica.queue_model, total // MAX_BATCHES_AT_ONCE)
        for replica, total in zip(replicas, batches, strict=True)
    ]
    for group in dict.fromkeys(given):
        law_type, model, _ = group
        rows = np.flatnonzero([one == group for one in given])
        alike = [replicas[row] for row in rows.tolist()]
        shapes = RequestShapes(*(_column(alike, field.name) for field in fields(RequestShapes)))
        law = law_type.of_rows(np.array([law_type.parameters(replica) for replica in alike]).T, shapes)
        if not law.has_work().all():
            raise AnalysisError(
                "the service time of a request is zero; give token times, or more than one output token"
            )
        capacity = [QUEUE_TO_BATCH_RATIO * r.max_batch if r.max_queue is None else r.max_queue for r in alike]
        tokens = [np.inf if r.kv_capacity_tokens is None else float(r.kv_capacity_tokens) for r in alike]
        further = None if own is None else own.take(rows)
        limits = ReplicaLimits(_column(alike, "max_batch"), np.array(capacity), np.array(tokens), further)
        variability = Variability(
            _column(alike, "arrival_cv"),
            _column(alike, "in_tokens_cv"),
            _column(alike, "out_tokens_cv"),
            shapes_of(alike),
        )
        yield rows, (queue_model or QUEUE_MODELS[model]).of_law(law, limits, variability)


def _column(replicas: Sequence[Replica], name: str) -> Any:
    return np.array([getattr(replica, name) for replica in replicas])
