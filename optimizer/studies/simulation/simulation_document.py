"""Documents of the simulation of a plan, for the library, the command line and REST."""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.kinds.replicas import Percentiles
from optimizer.kinds.table import KindSimulatedFields
from optimizer.plan import Plan
from optimizer.printed import Printed
from optimizer.schema import EstimateEnd

Verdict = Literal["held", "missed", "close"]
"""Verdict on a target: met, missed, or too close to the limit to decide."""


class ConfidenceInterval(Document):
    """A simulated value, ± the half-width of its 95 % confidence interval."""

    value: float
    """The simulated value."""
    half_width: float | None = Field(None, alias="halfWidth")
    """Half-width of the interval; null if unknown."""


class SimulatedLatency(Document):
    """A latency of the counted requests [ms]."""

    predicted_mean: float | None = Field(None, alias="predictedMean")
    """Mean predicted by the plan [ms]."""
    predicted_percentiles: Percentiles | None = Field(None, alias="predictedPercentiles", exclude_if=is_none)
    """Percentiles that the queue model predicts [ms]; absent if it computes means only."""
    mean: ConfidenceInterval
    """Mean [ms]."""
    p50: ConfidenceInterval
    """Median [ms]."""
    p90: ConfidenceInterval
    """90th percentile [ms]."""
    p95: ConfidenceInterval
    """95th percentile [ms]."""
    p99: ConfidenceInterval
    """99th percentile [ms]."""


class TargetCheck(Document):
    """A target, and whether the simulation meets it."""

    target: str
    """Limited quantity: the mean or a percentile of a latency, or a share of requests."""
    limit: float
    """Limit [ms, or a share up to 1]."""
    predicted: float | None = None
    """Value predicted by the plan, in the same unit."""
    simulated: ConfidenceInterval
    """Simulated value, in the same unit."""
    met: bool
    """Whether the simulated value is within the limit."""
    verdict: Verdict
    """`held` or `missed` if the entire interval is on one side of the limit; `close` if the limit is inside
    it.
    """


class SimulatedFigure(Document):
    """A metric that only some kinds of replicas have, as predicted and as simulated."""

    predicted: float | None = None
    """Value predicted by the plan."""
    simulated: ConfidenceInterval
    """Simulated value, in the same unit."""


class _SimulatedMetrics(Document):
    """Simulated metrics of a pool of any kind."""

    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas."""
    rate_rps: float = Field(alias="replicaRate")
    """Load of a replica [requests/s]."""
    overload: str | None = None
    """Reason that there is no steady state, and so no latencies; null if there is one."""
    ttft: SimulatedLatency | None = None
    """Time to first token."""
    itl: SimulatedLatency | None = None
    """Inter-token latency, averaged per request; null if outputs have one token."""
    e2e: SimulatedLatency | None = None
    """Time to last token."""
    throughput_rps: ConfidenceInterval = Field(alias="throughput")
    """Throughput of completed requests of a replica [requests/s]."""
    loss: ConfidenceInterval
    """Share of rejected requests."""
    preemptions: float
    """Mean number of preemptions per request."""
    batch: float
    """Mean batch size while the batch is not empty."""
    within_ttft: ConfidenceInterval | None = Field(None, alias="withinTTFT")
    """Share of requests within the TTFT target; null without one."""
    within_itl: ConfidenceInterval | None = Field(None, alias="withinITL")
    """Share of requests within the ITL target; null without one."""
    within_e2e: ConfidenceInterval | None = Field(None, alias="withinE2E")
    """Share of requests within the end-to-end target; null without one."""
    within_all: ConfidenceInterval = Field(alias="withinAll")
    """Share of requests that are served within all targets."""
    finishes_h: float | None = Field(None, alias="finishes", exclude_if=is_none)
    """Completion time of its offline work, which is all available at the start, from now [h]; absent without
    any.
    """
    goodput_rps: float = Field(alias="goodput")
    """Rate of requests that the pool serves within all targets [requests/s]."""
    targets: tuple[TargetCheck, ...] = Field((), strict=False)
    """Every target of the server."""


class _SimulatedBasis(Document):
    """Basis of the metrics of a simulated pool."""

    requests: int | None = Field(None, exclude_if=is_none)
    """Number of requests sent to the replica, if more than to others; otherwise absent."""
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
    """End of the interval of estimated token times; absent if they are not estimated."""
    own: dict[str, SimulatedFigure] = Field(default_factory=dict, exclude_if=not_)
    """Metrics of some kinds of replicas, by name; absent if there are none."""


class SimulatedPool(_SimulatedBasis, KindSimulatedFields, _SimulatedMetrics):
    """A pool of a plan; one of its replicas was simulated at its load."""

    def figure(self, metric: str) -> SimulatedLatency | SimulatedFigure | None:
        """Return a latency, or a metric of the pool's kind; None if it has no such metric."""
        found: SimulatedLatency | None = getattr(self, metric, None)
        return self.own.get(metric, found)

    @property
    def verdict(self) -> Verdict:
        """Verdict on all targets together: the worst one."""
        verdicts = {check.verdict for check in self.targets}
        if self.overload is not None or "missed" in verdicts:
            return "missed"
        return "close" if "close" in verdicts else "held"

    @property
    def holds(self) -> bool:
        """Whether no target is missed."""
        return self.verdict != "missed"

    @property
    def missed(self) -> tuple[TargetCheck, ...]:
        """Missed targets."""
        return tuple(check for check in self.targets if check.verdict == "missed")

    @property
    def beyond(self) -> tuple[TargetCheck, ...]:
        """Targets whose simulated value exceeds the limit, even if not significantly."""
        return tuple(check for check in self.targets if not check.met)


class Simulation(Printed, Document):
    """Simulation of a plan."""

    requests: int
    """Number of requests sent to the replica of each pool; the first and last tenth do not count. Of a trace:
    its requests, which are split among the replicas."""
    traced: bool = Field(default=False, exclude_if=not_)
    """Whether the requests are those of a trace."""
    seed: int
    """Random seed."""
    holds: bool
    """Whether no pool misses a target; a target too close to call is not missed."""
    offered_rps: float = Field(alias="offered")
    """Load of all pools [requests/s]."""
    goodput_rps: float = Field(alias="goodput")
    """Rate of requests within all targets, over all pools [requests/s]."""
    pools: tuple[SimulatedPool, ...] = Field(strict=False)
    """Pools, sorted by server; pools without load are not simulated."""


class PoolDerating(Document):
    """A server on an accelerator whose replicas get less load because they missed targets."""

    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator."""
    rate_factor: float = Field(alias="rateFactor")
    """New maximum load of a replica, as a share of its largest rate; 0 excludes the pair."""
    replicas_before: int = Field(alias="replicasBefore")
    """Number of replicas of the pool that missed."""
    replicas_after: int | None = Field(None, alias="replicasAfter")
    """Number of replicas with which its load meets the targets; null if no tried number does."""
    cost_before_cents_per_h: float = Field(alias="costBefore")
    """Cost of the pool that missed [cents/h]."""
    cost_after_cents_per_h: float | None = Field(None, alias="costAfter")
    """Cost of the replicas that meet the targets, whether the plan uses them or not [cents/h]; null if none
    do.
    """
    overload: str | None = None
    """Reason that the pool had no steady state; null if it had one."""
    missed: tuple[TargetCheck, ...] = Field(strict=False)
    """Targets that the pool missed."""


class LostServer(Document):
    """A server whose targets were to be met for all of its load, but finally are not."""

    server: str
    """Name of the server."""
    served_fraction: float = Field(alias="servedFraction")
    """Served share of its load."""
    reason: str
    """Reason that it is not served in full, as in plans; `simulation_missed` if it is, but misses a
    target.
    """
    detail: str
    """The reason with numbers."""
    missed: tuple[TargetCheck, ...] = Field(strict=False)
    """Targets that it misses, or missed last; empty if its cards were given to others."""


class RepairedPlan(Document):
    """A plan whose pools meet their targets in simulation, with the simulation and the changes made."""

    plan: Plan
    """The plan."""
    simulation: Simulation
    """Simulation of its pools."""
    holds: bool
    """Whether every pool meets every target, and no service was lost."""
    cost_before_cents_per_h: float = Field(alias="costBefore")
    """Cost of the plan before any repair [cents/h]."""
    cost_after_cents_per_h: float = Field(alias="costAfter")
    """Cost of the plan [cents/h]."""
    repairs: tuple[PoolDerating, ...] = Field(strict=False)
    """Repaired pools, in the order in which they were found."""
    lost: tuple[LostServer, ...] = Field(strict=False)
    """Servers that lost service promised by the original plan."""
