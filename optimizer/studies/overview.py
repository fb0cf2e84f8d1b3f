"""Overview of a plan for reports and figures: pools with their targets, and sums by accelerator type."""

from collections.abc import Iterable, Iterator
from operator import not_
from typing import Any

from pydantic import Field

from optimizer.candidates.arrays import tabulate_as_served
from optimizer.candidates.pairs import arrays_of
from optimizer.documents import OutputDocument, is_none
from optimizer.features.nodes.view import node_shares_cents_per_h
from optimizer.features.shared_queues.uses import QueueMember
from optimizer.kinds.kind import Kind
from optimizer.kinds.table import KindRowFields, in_order, kind_of_pool
from optimizer.plan import Plan, Pool, TargetFigure
from optimizer.plan.placements import rows_of
from optimizer.plan.power_uses import power_at_load_w
from optimizer.plan.table import cost_of, rows_by_type
from optimizer.queueing.measures import MISSED, TargetMeasure, is_about
from optimizer.schema import ModelTarget, Server
from optimizer.spec.streams import has_members
from optimizer.spec.system import System


class EmptyRow(OutputDocument):
    """A server without replicas of its own."""

    server: str
    """Name of the server."""
    service_class: str
    """Service class of the server."""
    model: str
    """Model of the server."""
    priority: int
    """Priority of the server."""


class _PoolTargets(EmptyRow):
    """Token lengths, targets and accelerator type of a pool."""

    in_tokens: float
    """Mean input length [tokens]."""
    out_tokens: float
    """Mean output length [tokens]."""
    itl_target_ms: float | None = None
    """Target of the mean inter-token latency [ms]; null without a target."""
    ttft_target_ms: float | None = None
    """Target of the mean time to first token [ms]; null without a target."""
    power_w: float | None = Field(None, exclude_if=is_none)
    """Power of the pool at its load [W]; absent if no accelerator has a power curve."""


class PoolRow(Pool, KindRowFields, _PoolTargets):
    """One pool of a server, with its targets and performance; its cost includes its share of nodes."""

    def with_more_cost(self, cents_per_h: float) -> "PoolRow":
        """Return the row with an additional cost."""
        return self.model_copy(update={"cost_cents_per_h": self.cost_cents_per_h + cents_per_h})

    def target_on(self, metric: str) -> TargetFigure | None:
        """Return the measured value (mean or percentile) and the limit of a target on a metric.

        None without a target.

        Limits on a fraction of the requests are not included.
        """
        for figure in self.measured(metric):
            return figure
        shown = next((shown for shown in kind_of_pool(self).metrics if shown.metric == metric), None)
        limit = getattr(self, shown.target_field) if shown and shown.target else None
        if shown is None or limit is None or any(figure.metric == MISSED.metric for figure in self.targets):
            return None
        measure = TargetMeasure(shown.metric)  # type: ignore[arg-type]  # metrics with targets are known
        return TargetFigure.of(measure, getattr(self, shown.field), limit)

    def targets_on(self, metric: str) -> tuple[TargetFigure, ...]:
        """Return the measured values and limits of all targets on a metric, such as several percentiles."""
        one = self.target_on(metric)
        return self.measured(metric) or (() if one is None else (one,))

    def measured(self, metric: str) -> tuple[TargetFigure, ...]:
        """Return the measured values of a metric's targets, except targets on means."""
        return tuple(figure for figure in self.other_targets if is_about(figure.measure, metric))


class QueueRow(EmptyRow):
    """A server that is a member of a shared queue."""

    queue: str
    """Name of the queue."""
    ttft_target_ms: float | None = None
    """Target of the mean time to first token [ms]; null without a target."""
    member: QueueMember | None = None
    """Load and latencies of the member; null if it is not served."""

    @property
    def targets(self) -> tuple[TargetFigure, ...]:
        """Targets of the member on statistics other than means, with their values."""
        return () if self.member is None else self.member.other_targets


class TypeUsage(OutputDocument):
    """Use of one accelerator type."""

    type: str
    """The accelerator type."""
    used: int
    """Number of cards used by the plan."""
    limit: int | None = None
    """Number of available cards; null if unlimited."""
    replicas: int
    """Number of replicas on accelerators of the type."""
    cost_cents_per_h: float
    """Cost of the pools on this type, and of its nodes [cents/h]."""


class Overview(OutputDocument):
    """Overview of a plan, pool by pool and type by type."""

    limited: bool
    """Whether the plan respects the available cards."""
    servers: int
    """Number of servers in the system."""
    plan: Plan
    """The plan."""
    pools: tuple[PoolRow, ...] = Field(strict=False)
    """Pools by priority, then by server."""
    on_shared_cards: tuple[PoolRow, ...] = Field((), exclude_if=not_, strict=False)
    """Replicas on shared cards, by priority, then by server; their units are 0, because the cards belong to
    several servers. Absent if there are none.
    """
    idle: tuple[EmptyRow, ...] = Field(strict=False)
    """Servers without load that need no replicas."""
    unplaced: tuple[EmptyRow, ...] = Field((), strict=False)
    """Servers that need replicas and have none."""
    types: tuple[TypeUsage, ...] = Field(strict=False)
    """Accelerator types, sorted by name."""
    queues: tuple[QueueRow, ...] = Field((), strict=False, exclude_if=not_)
    """Servers of shared queues, from the highest priority down; absent if there are none."""

    @property
    def placed(self) -> tuple[PoolRow, ...]:
        """All pools, followed by the replicas on shared cards."""
        return (*self.pools, *self.on_shared_cards)


def describe(system: System, plan: Plan) -> Overview:
    """Return the overview of a system's plan: its pools with targets and performance, and its types."""
    system = plan.planned_in(system)
    order = sorted(plan.allocations, key=lambda name: (system.priority(system.servers[name]), name))
    in_nodes = node_shares_cents_per_h(plan.nodes)
    pools = _with_power(
        system,
        plan,
        [
            row.with_more_cost(in_nodes.get((name, row.accelerator), 0.0))
            for name in order
            for row in _pool_rows(system, name, plan.allocations[name])
        ],
    )
    shared, placed = plan.on_shared_cards, rows_of(plan)
    of_type = rows_by_type(system, plan)
    cards = tuple(row for name in order for row in _pool_rows(system, name, shared.get(name, ())))
    return Overview(
        limited=not system.options.unlimited,
        servers=len(system.streams),
        plan=plan,
        pools=pools,
        on_shared_cards=cards,
        idle=_empty_rows(system, [name for name in order if name not in placed]),
        unplaced=_empty_rows(system, sorted(system.servers.keys() - plan.allocations.keys())),
        types=tuple(
            TypeUsage.taken_from(
                use,
                replicas=sum(row.replicas for row in of_type.get(use.type, ())),
                cost_cents_per_h=cost_of(of_type.get(use.type, ()))
                + sum(node.cost_cents_per_h for node in plan.nodes if node.type == use.type),
            )
            for use in plan.capacity
        ),
        queues=tuple(queue_rows(system, plan)),
    )


def queue_rows(system: System, plan: Plan) -> Iterator[QueueRow]:
    """Yield the members of shared queues, queue by queue, from the highest priority down."""
    streams = system.streams
    for queue, use in plan.shared_queues.items():
        for name in (*use.members, *use.unserved):
            server = streams[name].server
            target = system.target_of(server)
            mean = target is not None and target.percentile is None and target.goodput_share is None
            yield QueueRow.taken_from(
                server,
                server=name,
                priority=system.priority(server),
                queue=queue,
                ttft_target_ms=(target.ttft_ms or None) if target is not None and mean else None,
                member=use.members.get(name),
            )


def kinds_of_servers(system: System) -> list[Kind]:
    """Return the kinds of a system's servers, in table order; the default kind if there are no servers."""
    return in_order(system.server_kinds())


def _empty_rows(system: System, names: Iterable[str]) -> tuple[EmptyRow, ...]:
    """Return rows for servers without replicas, sorted by priority."""
    rows = [
        EmptyRow.taken_from(server, server=server.name, priority=system.priority(server))
        for server in (system.servers[name] for name in names)
    ]
    return tuple(sorted(rows, key=lambda row: (row.priority, row.server)))


def _pool_rows(system: System, name: str, pools: Iterable[Pool]) -> list[PoolRow]:
    server = system.servers[name]
    # Members have separate targets.
    target = None if has_members(server) else system.target_of(server)
    rows = []
    for pool in pools:
        kind = kind_of_pool(pool)
        rows.append(
            PoolRow(
                **{field: getattr(pool, field) for field in Pool.model_fields},
                **_asked(kind, server, target),
                server=name,
                in_tokens=server.current.load.in_tokens,
                out_tokens=server.current.load.out_tokens,
            )
        )
    return rows


def _with_power(system: System, plan: Plan, rows: list[PoolRow]) -> tuple[PoolRow, ...]:
    """Return the rows of pools with their power at the load, if any accelerator has a power curve."""
    powers = [item.power for item in system.accelerators.values()]
    if not rows or not any(power.idle_w or power.full_w for power in powers):
        return tuple(rows)
    arrays = tabulate_as_served(system, arrays_of(system), plan.served_rpm)
    each_w = power_at_load_w(system, arrays, [(row.server, row) for row in rows]).tolist()
    return tuple(
        row.model_copy(update={"power_w": power_w}) for row, power_w in zip(rows, each_w, strict=True)
    )


def _asked(kind: Kind, server: Server, target: ModelTarget | None) -> dict[str, Any]:
    """Return the settings of a server that are shown with its pools, by field name."""
    fields = {field: getattr(server, field) for field in kind.of_server}
    if target is not None:
        own = (shown for shown in kind.metrics if shown.target)
        fields |= {shown.target_field: getattr(target, shown.target or "") or None for shown in own}
    return fields
