"""What a simulation of a plan shows, as a document: the same from the library, the command line and REST."""

from pydantic import Field

from optimizer.documents import Document


class Interval(Document):
    """A simulated figure, known to ± its half-width with 95 % confidence."""

    value: float
    """The figure."""
    half_width: float | None = Field(None, alias="halfWidth")
    """Half of the interval; none where it is not known."""


class SimulatedLatency(Document):
    """A latency of the requests that count [ms]."""

    predicted_mean: float | None = Field(None, alias="predictedMean")
    """What the plan says [ms]."""
    mean: Interval
    """Mean [ms]."""
    p50: Interval
    """Median [ms]."""
    p90: Interval
    """90th percentile [ms]."""
    p95: Interval
    """95th percentile [ms]."""
    p99: Interval
    """99th percentile [ms]."""


class TargetCheck(Document):
    """A target, and whether the simulation keeps to it."""

    target: str
    """What is bounded: a latency, its mean or a percentile, or a share of requests."""
    limit: float
    """The target [ms]; a share is a number up to 1."""
    predicted: float | None = None
    """What the plan says, in the same unit."""
    simulated: Interval
    """What was simulated, in the same unit."""
    met: bool
    """Whether the simulated figure is within the limit."""


class SimulatedPool(Document):
    """A pool of a plan, one replica of which was run at the load of each."""

    server: str
    """The server."""
    accelerator: str
    """The accelerator's name."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas."""
    rate_rps: float = Field(alias="replicaRate")
    """Load of a replica [requests/s]."""
    overload: str | None = None
    """Why there is no steady state, in which case there are no latencies; none: there is one."""
    ttft: SimulatedLatency | None = None
    """Time to first token."""
    itl: SimulatedLatency | None = None
    """Inter-token latency, of each request its mean; none where answers have one token."""
    e2e: SimulatedLatency | None = None
    """Time to last token."""
    throughput_rps: Interval = Field(alias="throughput")
    """Completed by a replica [requests/s]."""
    loss: Interval
    """Share of requests turned away."""
    preemptions: float
    """Coefficients that a request loses its place, on average."""
    batch: float
    """Mean batch while anything runs."""
    within_ttft: Interval | None = Field(None, alias="withinTTFT")
    """Share of requests within the TTFT target; none without one."""
    within_itl: Interval | None = Field(None, alias="withinITL")
    """Share of requests within the ITL target; none without one."""
    within_e2e: Interval | None = Field(None, alias="withinE2E")
    """Share of requests within the end-to-end target; none without one."""
    within_all: Interval = Field(alias="withinAll")
    """Share of requests that are served, and within all of them."""
    goodput_rps: float = Field(alias="goodput")
    """Requests that the pool serves within all targets [requests/s]."""
    targets: tuple[TargetCheck, ...] = Field((), strict=False)
    """Every target of the server."""

    @property
    def holds(self) -> bool:
        """Whether every target is kept."""
        return self.overload is None and all(check.met for check in self.targets)


class Simulation(Document):
    """What a simulation of a plan shows."""

    requests: int
    """Requests sent to the replica of each pool; the first and the last tenth do not count."""
    seed: int
    """Where chance began."""
    holds: bool
    """Whether every pool keeps every target."""
    offered_rps: float = Field(alias="offered")
    """Load of all pools [requests/s]."""
    goodput_rps: float = Field(alias="goodput")
    """Requests within all targets, of all pools [requests/s]."""
    pools: tuple[SimulatedPool, ...] = Field(strict=False)
    """By server, in the order of the names; pools without load are not simulated."""

    def to_json(self) -> str:
        """Return the simulation as JSON text, the same bytes for the same plan and seed."""
        return self.model_dump_json(by_alias=True, indent=2)
