"""Documents of the simulation of a plan, the same in the library, on the command line and in REST."""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.kinds.replicas import Percentiles
from optimizer.kinds.table import KindSimulatedFields
from optimizer.plan import Plan
from optimizer.spec.schema import EstimateEnd

Verdict = Literal["held", "missed", "close"]
"""Whether a target is kept, missed, or too close to its limit to call."""


class ConfidenceInterval(Document):
    """A simulated figure, known to ± its half-width with 95 % confidence."""

    value: float
    """The figure."""
    half_width: float | None = Field(None, alias="halfWidth")
    """Half of the interval; none where it is not known."""


class SimulatedLatency(Document):
    """A latency of the requests that count [ms]."""

    predicted_mean: float | None = Field(None, alias="predictedMean")
    """Prediction of the plan [ms]."""
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
    """A target, and whether the simulation keeps to it."""

    target: str
    """Bounded quantity: a latency, its mean or a percentile, or a share of requests."""
    limit: float
    """The target [ms]; a share is a number up to 1."""
    predicted: float | None = None
    """Prediction of the plan, in the same unit."""
    simulated: ConfidenceInterval
    """Simulated value, in the same unit."""
    met: bool
    """Whether the simulated figure itself is within the limit."""
    verdict: Verdict
    """`held` or `missed`: with all of its interval; `close`: the limit lies within it, too close to call."""


class SimulatedFigure(Document):
    """Metric of some kinds of replicas, as planned and as simulated."""

    predicted: float | None = None
    """Prediction of the plan."""
    simulated: ConfidenceInterval
    """Simulated value, in the same unit."""


class _SimulatedMetrics(Document):
    """Simulated metrics of a pool of any kind."""

    server: str
    """The server."""
    accelerator: str
    """The accelerator's name."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas."""
    rate_rps: float = Field(alias="replicaRate")
    """Load of a replica [requests/s]."""
    overload: str | None = None
    """Reason that there is no steady state, and so no latencies; None if there is one."""
    ttft: SimulatedLatency | None = None
    """Time to first token."""
    itl: SimulatedLatency | None = None
    """Inter-token latency, of each request its mean; none where answers have one token."""
    e2e: SimulatedLatency | None = None
    """Time to last token."""
    throughput_rps: ConfidenceInterval = Field(alias="throughput")
    """Completed by a replica [requests/s]."""
    loss: ConfidenceInterval
    """Share of requests turned away."""
    preemptions: float
    """Times that a request loses its place, on average."""
    batch: float
    """Mean batch while anything runs."""
    within_ttft: ConfidenceInterval | None = Field(None, alias="withinTTFT")
    """Share of requests within the TTFT target; none without one."""
    within_itl: ConfidenceInterval | None = Field(None, alias="withinITL")
    """Share of requests within the ITL target; none without one."""
    within_e2e: ConfidenceInterval | None = Field(None, alias="withinE2E")
    """Share of requests within the end-to-end target; none without one."""
    within_all: ConfidenceInterval = Field(alias="withinAll")
    """Share of requests that are served, and within all of them."""
    finishes_h: float | None = Field(None, alias="finishes", exclude_if=is_none)
    """Time at which its offline work, all of it there at the start, is done, from now [h]; absent without."""
    goodput_rps: float = Field(alias="goodput")
    """Requests that the pool serves within all targets [requests/s]."""
    targets: tuple[TargetCheck, ...] = Field((), strict=False)
    """Every target of the server."""


class _SimulatedBasis(Document):
    """Basis of the metrics of a simulated pool."""

    requests: int | None = Field(None, exclude_if=is_none)
    """Requests sent to the replica, where these are more than to others; else absent."""
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
    """The end of the interval that token times were taken from, where they are estimated; else absent."""
    own: dict[str, SimulatedFigure] = Field(default_factory=dict, exclude_if=not_)
    """Metrics of some kinds of replicas, by name; absent if there are none."""


class SimulatedPool(_SimulatedBasis, KindSimulatedFields, _SimulatedMetrics):
    """A pool of a plan, one replica of which was run at the load of each."""

    def figure(self, metric: str) -> SimulatedLatency | SimulatedFigure | None:
        """Return a latency, or a figure of the pool's kind; none where it has no such."""
        found: SimulatedLatency | None = getattr(self, metric, None)
        return self.own.get(metric, found)

    @property
    def verdict(self) -> Verdict:
        """Verdict on all targets together: the worst of them."""
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
        """The targets that are missed."""
        return tuple(check for check in self.targets if check.verdict == "missed")

    @property
    def beyond(self) -> tuple[TargetCheck, ...]:
        """The targets whose figures are beyond the limit, be it by less than is known for sure."""
        return tuple(check for check in self.targets if not check.met)


class Simulation(Document):
    """Simulation of a plan."""

    requests: int
    """Requests sent to the replica of each pool; the first and the last tenth do not count."""
    seed: int
    """Random seed."""
    holds: bool
    """Whether no pool misses a target; one that is too close to call is not missed."""
    offered_rps: float = Field(alias="offered")
    """Load of all pools [requests/s]."""
    goodput_rps: float = Field(alias="goodput")
    """Requests within all targets, of all pools [requests/s]."""
    pools: tuple[SimulatedPool, ...] = Field(strict=False)
    """By server, in the order of the names; pools without load are not simulated."""


class PoolDerating(Document):
    """A server on an accelerator whose replicas may take less, as they missed targets in a simulation."""

    server: str
    """The server."""
    accelerator: str
    """The accelerator's name."""
    rate_factor: float = Field(alias="rateFactor")
    """New maximum load of a replica, as a share of its largest rate; 0: none."""
    replicas_before: int = Field(alias="replicasBefore")
    """Replicas of the pool that missed."""
    replicas_after: int | None = Field(None, alias="replicasAfter")
    """Replicas on which its load keeps the targets; none: no number of them that was tried."""
    cost_before_cents_per_h: float = Field(alias="costBefore")
    """Cost of the pool that missed [cents/h]."""
    cost_after_cents_per_h: float | None = Field(None, alias="costAfter")
    """Cost of the replicas that keep the targets [cents/h], taken by the plan or not; none: none do."""
    overload: str | None = None
    """Reason that the pool had no steady state; None if it had one."""
    missed: tuple[TargetCheck, ...] = Field(strict=False)
    """The targets that the pool missed."""


class LostServer(Document):
    """A server whose targets are not kept for all of its load in the end, and were to be at first."""

    server: str
    """The server."""
    served_fraction: float = Field(alias="servedFraction")
    """Share of its load that is served."""
    reason: str
    """Reason that it is not served in full, as in plans; `simulation_missed`: it is, but misses a target."""
    detail: str
    """The reason in numbers."""
    missed: tuple[TargetCheck, ...] = Field(strict=False)
    """The targets that it misses, or missed last; none where its units went to others."""


class RepairedPlan(Document):
    """A plan, what its pools do in a simulation, and what was changed until they kept their targets."""

    plan: Plan
    """The plan."""
    simulation: Simulation
    """Simulation of its pools."""
    holds: bool
    """Whether every pool keeps every target, and nothing was lost on the way."""
    cost_before_cents_per_h: float = Field(alias="costBefore")
    """Cost of the plan before any repair [cents/h]."""
    cost_after_cents_per_h: float = Field(alias="costAfter")
    """Cost of the plan [cents/h]."""
    repairs: tuple[PoolDerating, ...] = Field(strict=False)
    """Repaired pools, in the order in which they were found."""
    lost: tuple[LostServer, ...] = Field(strict=False)
    """Servers that lost what the plan before promised them."""
