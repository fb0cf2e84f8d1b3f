"""A plan with everything that a reader of it asks for: targets beside latencies, sums by type.

Takes a `System` and its `Plan`; gives an `Overview`, from which reports and pictures are made.
"""

from collections.abc import Iterable

from pydantic import Field

from optimizer.documents import Document
from optimizer.plan import Plan, TargetFigure
from optimizer.queueing.measures import METRICS, MISSED, MetricName
from optimizer.simulation.batches import TriggerName
from optimizer.spec.schema import EstimateEnd
from optimizer.spec.system import System


def _is_none(value: object) -> bool:
    return value is None


class PoolRow(Document):
    """One pool of a server, with what it is asked for and what it does."""

    server: str
    """The server."""
    service_class: str = Field(alias="class")
    """Its service class."""
    model: str
    """Its model."""
    priority: int
    """Its priority."""
    in_tokens: float = Field(alias="avgInTokens")
    """Mean input length [tokens]."""
    out_tokens: float = Field(alias="avgOutTokens")
    """Mean output length [tokens]."""
    accelerator: str
    """The accelerator's name."""
    type: str
    """Its type."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas."""
    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica."""
    units: int
    """Units of the type that the pool takes."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost [cents/h]."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Load that the pool carries [requests/min]."""
    max_arrival_rate_rpm: float = Field(alias="maxArrivalRate")
    """Largest load at which the pool meets every target [requests/min]."""
    itl_ms: float = Field(alias="itlAverage")
    """Mean inter-token latency [ms]."""
    itl_target_ms: float | None = Field(None, alias="itlTarget")
    """Its target [ms]; none: no target."""
    ttft_ms: float = Field(alias="ttftAverage")
    """Mean time to first token; of a batch server the mean latency [ms]."""
    ttft_target_ms: float | None = Field(None, alias="ttftTarget")
    """Its target [ms]; none: no target."""
    wait_ms: float = Field(alias="waitAverage")
    """Mean wait before the batch, part of the time to first token [ms]."""
    utilization: float
    """Mean batch over the batch limit; of batch servers the load over what they could answer."""
    loss: float
    """Share of requests that find the queue full."""
    busy: float | None = Field(None, exclude_if=_is_none)
    """Share of the time in which a batch server is busy; absent for others, as the next four."""
    mean_batch: float | None = Field(None, alias="avgBatch", exclude_if=_is_none)
    """Mean number of requests that it answers together."""
    batch_window_ms: float | None = Field(None, alias="batchWindow", exclude_if=_is_none)
    """How long it collects a batch: the window, as given or chosen [ms]."""
    binding: str | None = Field(None, exclude_if=_is_none)
    """Of its stages and jobs, what can serve the least; absent for others."""
    batch_trigger: TriggerName | None = Field(None, alias="batchTrigger", exclude_if=_is_none)
    """What starts a batch that is not full."""
    targets: tuple[TargetFigure, ...] = Field((), exclude_if=lambda figures: not figures, strict=False)
    """What is measured against targets that are not about means; absent without any."""
    estimated: EstimateEnd | None = Field(None, exclude_if=lambda end: end is None)
    """The end of the interval that its figures rest on, where token times are estimated; else absent."""
    provenance: str | None = Field(None, exclude_if=lambda provenance: provenance is None)
    """Where its token times come from, where they were fitted to benchmarks; else absent."""
    outside: tuple[str, ...] = Field((), exclude_if=lambda outside: not outside, strict=False)
    """In what its load is outside what those benchmarks measured; absent where it is inside."""

    @property
    def answers_together(self) -> bool:
        """Whether it is of a batch server, whose answers have no tokens."""
        return self.batch_window_ms is not None

    def target_on(self, metric: MetricName) -> TargetFigure | None:
        """Return what a target is about, its mean or a percentile, beside its limit; none without a target.

        Where a share of the requests must keep to limits, these are no targets of their own.
        """
        label = METRICS[metric].label
        for figure in self._measured(label):
            return figure
        value, limit = {
            "itl": (self.itl_ms, self.itl_target_ms),
            "ttft": (self.ttft_ms, self.ttft_target_ms),
        }.get(metric, (0.0, None))
        if limit is None or any(figure.measure == MISSED.label for figure in self.targets):
            return None
        return TargetFigure(measure=label, value=value, limit=limit)

    def targets_on(self, metric: MetricName) -> tuple[TargetFigure, ...]:
        """Return all that targets on a metric are about, several percentiles say, beside their limits."""
        one = self.target_on(metric)
        return self._measured(METRICS[metric].label) or (() if one is None else (one,))

    def _measured(self, label: str) -> tuple[TargetFigure, ...]:
        """Return the figures of a metric, by what it is called: its mean, its percentiles."""
        return tuple(
            figure
            for figure in self.targets
            if figure.measure == label or figure.measure.endswith(f" {label}")
        )


class TypeRow(Document):
    """What the plan takes of one accelerator type."""

    type: str
    """The accelerator type."""
    used: int
    """Units that the plan uses."""
    limit: int | None = None
    """Units that exist; none: not limited."""
    replicas: int
    """Replicas that run on accelerators of the type."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of their pools [cents/h]."""


class EmptyRow(Document):
    """A server that runs on nothing."""

    server: str
    """The server."""
    service_class: str = Field(alias="class")
    """Its service class."""
    model: str
    """Its model."""
    priority: int
    """Its priority."""


class Overview(Document):
    """A plan, pool by pool and type by type."""

    limited: bool
    """Whether the plan keeps to the units that exist."""
    servers: int
    """Servers of the system."""
    plan: Plan
    """The plan."""
    pools: tuple[PoolRow, ...] = Field(strict=False)
    """By priority, then by server."""
    idle: tuple[EmptyRow, ...] = Field(strict=False)
    """Servers without load that need no replicas."""
    unplaced: tuple[EmptyRow, ...] = Field((), strict=False)
    """Servers that need replicas and have none."""
    types: tuple[TypeRow, ...] = Field(strict=False)
    """In the order of the names."""

    def to_json(self) -> str:
        """Return the overview as JSON text, the same bytes for the same overview."""
        return self.model_dump_json(by_alias=True, indent=2)


def describe(system: System, plan: Plan) -> Overview:
    """Return a plan of a system with what it was asked for beside what it does."""
    order = sorted(plan.allocations, key=lambda name: (system.priority(system.servers[name]), name))
    pools = tuple(row for name in order for row in _pool_rows(system, plan, name))
    return Overview(
        limited=not system.options.unlimited,
        servers=len(system.servers),
        plan=plan,
        pools=pools,
        idle=_empty_rows(system, [name for name in order if not plan.allocations[name]]),
        unplaced=_empty_rows(system, sorted(system.servers.keys() - plan.allocations.keys())),
        types=tuple(
            _type_row(use.type, use.used, use.limit, [row for row in pools if row.type == use.type])
            for use in plan.capacity
        ),
    )


def _empty_rows(system: System, names: Iterable[str]) -> tuple[EmptyRow, ...]:
    """Return rows of servers that run on nothing, by priority."""
    rows = [
        EmptyRow(
            server=name,
            service_class=system.servers[name].service_class,
            model=system.servers[name].model,
            priority=system.priority(system.servers[name]),
        )
        for name in names
    ]
    return tuple(sorted(rows, key=lambda row: (row.priority, row.server)))


def _pool_rows(system: System, plan: Plan, name: str) -> list[PoolRow]:
    server = system.servers[name]
    target = system.targets.get((server.service_class, server.model))
    rows = []
    for pool in plan.allocations[name]:
        accelerator = system.accelerators[pool.accelerator]
        units = system.profiles[server.model, pool.accelerator].acc_count * accelerator.multiplicity
        rows.append(
            PoolRow(
                **pool.model_dump(),
                batch_trigger=server.batch_trigger if pool.answers_together else None,
                server=name,
                service_class=server.service_class,
                model=server.model,
                priority=system.priority(server),
                in_tokens=server.current.load.in_tokens,
                out_tokens=server.current.load.out_tokens,
                type=accelerator.type,
                units=pool.num_replicas * units,
                itl_target_ms=(target.itl_ms or None) if target else None,
                ttft_target_ms=(target.ttft_ms or None) if target else None,
            )
        )
    return rows


def _type_row(kind: str, used: int, limit: int | None, mine: list[PoolRow]) -> TypeRow:
    return TypeRow(
        type=kind,
        used=used,
        limit=limit,
        replicas=sum(row.num_replicas for row in mine),
        cost_cents_per_h=float(sum(row.cost_cents_per_h for row in mine)),
    )
