"""Documents of a plan's simulation, for the library, the command line and REST."""

from collections.abc import Iterable
from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import OutputDocument, is_none
from optimizer.kinds.replicas import Percentiles
from optimizer.kinds.table import KindSimulatedFields
from optimizer.plan import Plan
from optimizer.plan.document import Warned
from optimizer.printed import Printed
from optimizer.schema import EstimateEnd

Verdict = Literal["held", "missed", "close"]
"""Verdict on a target: met, missed, or too close to the limit to decide."""


class ConfidenceInterval(OutputDocument):
    """A simulated value with the half-width of its 95 % confidence interval."""

    value: float
    """The simulated value."""
    half_width: float | None = None
    """Half-width of the 95 % confidence interval, in the unit of the value; null if unknown."""


class SimulatedLatency(OutputDocument):
    """A latency of a simulated pool: predictions, and simulated mean and percentiles [ms]."""

    predicted_mean: float | None = None
    """Mean predicted by the plan [ms]."""
    predicted_percentiles: Percentiles | None = Field(None, exclude_if=is_none)
    """Percentiles that the queue model predicts [ms]; absent if it computes means only."""
    mean: ConfidenceInterval
    """Simulated mean [ms]."""
    p50: ConfidenceInterval
    """Simulated median [ms]."""
    p90: ConfidenceInterval
    """Simulated 90th percentile [ms]."""
    p95: ConfidenceInterval
    """Simulated 95th percentile [ms]."""
    p99: ConfidenceInterval
    """Simulated 99th percentile [ms]."""


class TargetCheck(OutputDocument):
    """A target, and whether the simulation meets it."""

    target: str
    """Quantity that the target limits: the mean or a percentile of a latency, or a fraction of requests."""
    unit: Literal["ms", "share"]
    """Unit of all values: milliseconds, or a share of the requests."""
    limit: float
    """Limit of the value."""
    predicted: float | None = None
    """Value that the plan predicts."""
    simulated: ConfidenceInterval
    """Simulated value."""
    met: bool
    """Whether the simulated value is within the limit."""
    verdict: Verdict
    """`held` or `missed` if the entire interval is on one side of the limit; `close` if the limit is inside
    it.
    """


class SimulatedFigure(OutputDocument):
    """A metric that only some kinds of replicas have: predicted and simulated value."""

    predicted: float | None = None
    """Value predicted by the plan."""
    simulated: ConfidenceInterval
    """Simulated value, in the same unit."""


class _SimulatedMetrics(OutputDocument):
    """Simulated metrics that pools of all kinds have."""

    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator."""
    num_replicas: int
    """Number of replicas."""
    rate_rps: float
    """Load of a replica [requests/s]."""
    overload: str | None = None
    """Reason why there is no steady state, and so no latencies; null if there is one."""
    ttft: SimulatedLatency | None = None
    """Time to first token [ms]."""
    itl: SimulatedLatency | None = None
    """Inter-token latency, averaged per request [ms]; null if outputs have one token."""
    e2e: SimulatedLatency | None = None
    """Time to the last token [ms]."""
    throughput_rps: ConfidenceInterval
    """Throughput of completed requests of a replica [requests/s]."""
    loss: ConfidenceInterval
    """Fraction of rejected requests."""
    preemptions: float
    """Mean number of preemptions per request."""
    batch: float | None = None
    """Mean batch size while the batch is not empty [requests]; null for a pool that was measured."""
    within_ttft: ConfidenceInterval | None = None
    """Fraction of requests within the TTFT target; null without one."""
    within_itl: ConfidenceInterval | None = None
    """Fraction of requests within the ITL target; null without one."""
    within_e2e: ConfidenceInterval | None = None
    """Fraction of requests within the end-to-end target; null without one."""
    within_all: ConfidenceInterval
    """Fraction of requests that are served within all targets."""
    finishes_h: float | None = Field(None, exclude_if=is_none)
    """Time until the pool's offline work, all available at the start, is done [h from now]; absent without
    offline work.
    """
    goodput_rps: float
    """Rate of requests that the pool serves within all targets [requests/s]."""
    targets: tuple[TargetCheck, ...] = Field((), strict=False)
    """Every target of the server, compared with the simulation."""


class SimulatedShape(OutputDocument):
    """Requests of one shape in a simulated pool."""

    name: str
    """Name of the shape."""
    share: float
    """Fraction of the simulated requests that have this shape."""
    ttft: SimulatedLatency | None = None
    """Time to first token [ms]; null if too few requests have this shape."""
    itl: SimulatedLatency | None = None
    """Inter-token latency, averaged per request [ms]; null if outputs have one token, or too few requests
    have this shape.
    """
    targets: tuple[TargetCheck, ...] = Field((), strict=False)
    """Targets of the shape; for a shape without own targets those of all requests, as if they applied to
    it.
    """

    @property
    def verdict(self) -> Verdict:
        """Verdict on all targets of the shape together."""
        return worst_verdict(self.targets)


def worst_verdict(checks: Iterable[TargetCheck]) -> Verdict:
    """Return the worst verdict of several targets."""
    verdicts = {check.verdict for check in checks}
    return "missed" if "missed" in verdicts else "close" if "close" in verdicts else "held"


class _SimulatedBasis(OutputDocument):
    """Sources of a simulated pool's metrics."""

    requests: int | None = Field(None, exclude_if=is_none)
    """Number of requests sent to the replica; absent unless it differs from the number for other pools."""
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
    """End of the intervals of estimated token times that the plan uses; absent if they are not estimated."""
    shapes: tuple[SimulatedShape, ...] = Field((), strict=False, exclude_if=not_)
    """Request shapes of the load; absent if it has none."""
    own: dict[str, SimulatedFigure] = Field(default_factory=dict, exclude_if=not_)
    """Metrics that only some kinds of replicas have, by name; absent if there are none."""


class SimulatedPool(_SimulatedBasis, KindSimulatedFields, _SimulatedMetrics):
    """A pool of a plan; one of its replicas was simulated at its load."""

    def figure(self, metric: str) -> SimulatedLatency | SimulatedFigure | None:
        """Return a latency, or a metric of the pool's kind, by name; None if the pool does not have it."""
        simulated_latency: SimulatedLatency | None = getattr(self, metric, None)
        return self.own.get(metric, simulated_latency)

    @property
    def verdict(self) -> Verdict:
        """Verdict on all targets together: the worst one of any target."""
        return "missed" if self.overload is not None else worst_verdict(self.targets)

    @property
    def holds(self) -> bool:
        """Whether the pool misses no target."""
        return self.verdict != "missed"

    @property
    def missed(self) -> tuple[TargetCheck, ...]:
        """Targets that the pool misses."""
        return tuple(check for check in self.targets if check.verdict == "missed")

    @property
    def beyond(self) -> tuple[TargetCheck, ...]:
        """Targets whose simulated value exceeds the limit, even if not significantly."""
        return tuple(check for check in self.targets if not check.met)


class Simulation(Printed, Warned):
    """Simulation of all pools of a plan."""

    requests: int
    """Number of requests sent to the replica of each pool, of which the first and last tenth are not counted.
    For a trace: the number of its requests, which are split among the replicas.
    """
    traced: bool = Field(default=False, exclude_if=not_)
    """Whether the requests are those of a recorded trace."""
    seed: int
    """Seed of the random generators."""
    holds: bool
    """Whether no pool misses a target; a target too close to call is not missed."""
    offered_rps: float
    """Load of all pools [requests/s]."""
    goodput_rps: float
    """Rate of requests served within all targets, over all pools [requests/s]."""
    pools: tuple[SimulatedPool, ...] = Field(strict=False)
    """Pools, sorted by server; pools without load are not simulated."""


class PoolDerating(OutputDocument):
    """A server on an accelerator whose replicas get less load because they missed targets."""

    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator."""
    rate_factor: float
    """New maximum load of a replica, as a fraction of its maximum rate; 0 excludes the pair."""
    replicas_before: int
    """Number of replicas of the pool that missed targets."""
    replicas_after: int | None = None
    """Number of replicas with which the load of the pool meets the targets; null if no tried number does."""
    cost_before_cents_per_h: float
    """Cost of the pool that missed targets [cents/h]."""
    cost_after_cents_per_h: float | None = None
    """Cost of the replicas that meet the targets, whether the plan uses them or not [cents/h]; null if no
    tried number does.
    """
    overload: str | None = None
    """Reason why the pool had no steady state; null if it had one."""
    missed: tuple[TargetCheck, ...] = Field(strict=False)
    """Targets that the pool missed."""


class LostServer(OutputDocument):
    """A server that the original plan served within its targets, but that finally is not."""

    server: str
    """Name of the server."""
    served_fraction: float
    """Served fraction of the server's load."""
    reason: str
    """Code of the reason why the server is not served in full, as in plans; `simulation_missed` if it is
    served in full but misses a target.
    """
    detail: str
    """The reason as text with numbers."""
    missed: tuple[TargetCheck, ...] = Field(strict=False)
    """Targets that the server misses, or missed last; empty if its cards were given to other servers."""


class RepairedPlan(Warned):
    """A plan whose pools meet their targets in simulation, with the simulation and the changes made."""

    plan: Plan
    """Repaired plan."""
    simulation: Simulation
    """Simulation of the pools of the repaired plan."""
    holds: bool
    """Whether every pool meets every target, and no service was lost."""
    cost_before_cents_per_h: float
    """Cost of the plan before any repair [cents/h]."""
    cost_after_cents_per_h: float
    """Cost of the repaired plan [cents/h]."""
    repairs: tuple[PoolDerating, ...] = Field(strict=False)
    """Repaired pools, in the order of repair."""
    lost: tuple[LostServer, ...] = Field(strict=False)
    """Servers that lost service which the original plan promised."""
