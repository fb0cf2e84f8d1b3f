"""The servers of a plan with their targets: what every surface shows first about a plan.

A row is a server of the input, or a shared queue: its accelerators, each target with its value, the share of
its capacity that its load uses, its cost, and the limit that decides its size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from optimizer.arrays import grouped
from optimizer.kinds.shown import Shown
from optimizer.kinds.table import kind_of_pool
from optimizer.plan import Plan, TargetFigure
from optimizer.plan.notebook import MARK, are_mixed
from optimizer.plan.placements import PlanRow, place_name, rows_of
from optimizer.quantities import parts_text, precise, quantity, requests_text
from optimizer.queueing.measures import MISSED, label_of, metric_of
from optimizer.queueing.targets import target_percent
from optimizer.schema.pools import OF_ALL
from optimizer.spec.streams import Stream
from optimizer.spec.system import System
from optimizer.studies.deciding import decider_text, deciding_limits
from optimizer.studies.overview import Overview, PoolRow, QueueRow, describe
from optimizer.studies.service import stream_loads_rpm
from optimizer.units import SECONDS_PER_MINUTE

TIGHT_PERCENT = 95
"""Integer percent of its limit from which a target counts as tight."""
WHOLE = 100
"""Integer percent up to which a target is met."""
State = Literal["ok", "tight", "missed"]
"""State of a target or a server: met, at least 95 % of the limit, or missed; unserved servers are missed."""


@dataclass(frozen=True, slots=True)
class TargetShare:
    """A target with its value at the load."""

    metric: str
    """Name of the metric: `itl`, `ttft`, `e2e` or `missed`."""
    name: str
    """Name of the statistic: `ITL`, `p95 TTFT`, `latency` or `late requests`."""
    value: float
    """Value in the unit."""
    limit: float
    """Limit in the unit."""
    unit: str
    """`ms` or `%`."""
    form: str = ""
    """Format of the value; empty for four significant digits."""

    @property
    def share(self) -> float:
        """Value as a fraction of the limit; above 1 the target is missed."""
        return self.value / self.limit

    @property
    def state(self) -> State:
        """Whether the target is met, tight or missed."""
        percent = target_percent(self.share)
        return "missed" if percent > WHOLE else "tight" if percent >= TIGHT_PERCENT else "ok"

    @property
    def percent(self) -> str:
        """Share in integer percent; only a missed target is above 100%."""
        return f"{target_percent(self.share):,d}%"

    @property
    def verdict(self) -> str:
        """Share, and whether the target is met: ``100%, met``, ``104%, missed``."""
        return f"{self.percent}, {'missed' if self.state == 'missed' else 'met'}"

    @property
    def number(self) -> str:
        """Value and limit without the unit: ``45.4 of 50``."""
        value = format(self.value, self.form) if self.form else quantity(self.value)
        return f"{value} of {precise(self.limit)}"

    @property
    def text(self) -> str:
        """Value and limit: ``45.4 of 50 ms``."""
        return f"{self.number} {self.unit}"

    @property
    def cell(self) -> str:
        """Value, limit and share in few characters, without the unit: ``45.4/50 91%``."""
        return f"{self.number.replace(' of ', '/')} {self.percent:>3}"

    @property
    def named_cell(self) -> str:
        """The cell with the name of the statistic: ``ITL 45.4/50 91%``, ``p99 latency 96/500 19%``."""
        name = self.name.replace(f"{OF_ALL}'", "")
        return f"{name} {self.cell}"


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A server of the input, or a shared queue, as a plan serves it."""

    server: str
    priority: int
    service_class: str
    model: str
    places: tuple[str, ...]
    """Replicas with their accelerators: ``3 × H100``; empty for a server without replicas."""
    accelerators: tuple[str, ...]
    """Names of the accelerators of `places`."""
    targets: tuple[TargetShare, ...]
    """Targets with the values of the worst pool."""
    load_rpm: float
    """Load of the server, served or not [requests/min]."""
    served_share: float
    """Fraction of the load that is served; of the minimum replicas for a server without load."""
    capacity_share: float | None
    """Served load divided by the largest load within all targets; None without own replicas or load."""
    cost_cents_per_h: float | None
    """Cost [cents/h]; None for members of shared queues, whose costs the row of the queue has."""
    limited_by: str
    """Limit that decides the number of replicas, such as `ITL target`; empty if it is unknown."""
    is_queue: bool = False
    """Whether the row is a shared queue, which is no server of the input."""
    marked: bool = False
    """Whether token times are estimated, unlike those of other servers."""

    @property
    def place(self) -> str:
        """Replicas with their accelerators as one text: ``3 × H100``, ``not served`` or ``idle``."""
        return " + ".join(self.places) or ("idle" if self.served_share == 1 else "not served")

    @property
    def marked_place(self) -> str:
        """The place, with the mark of estimated token times."""
        return self.place + MARK * self.marked

    @property
    def tightest(self) -> TargetShare | None:
        """Target nearest to its limit; None without targets."""
        return max(self.targets, key=attrgetter("share"), default=None)

    @property
    def tightness(self) -> float:
        """Share of the tightest target; 0 without targets."""
        return 0.0 if self.tightest is None else self.tightest.share

    @property
    def in_full(self) -> bool:
        """Whether the server is served in full."""
        return self.served_share == 1

    @property
    def state(self) -> State:
        """State of the server: missed if it is not served in full, else that of its tightest target."""
        if not self.in_full:
            return "missed"
        return "ok" if self.tightest is None else self.tightest.state

    @property
    def served_text(self) -> str:
        """Served load of a server that is not served in full: ``0 of 20 requests/s``."""
        load = self.load_rpm / SECONDS_PER_MINUTE
        served, _, load_shown = parts_text(load * self.served_share, load, 3)
        return requests_text(served, load_shown) if load else "idle"


def nearest_target(rows: Iterable[TargetRow]) -> tuple[TargetRow, TargetShare] | None:
    """Return the target nearest to its limit, with its server; None if no server has targets."""
    targets = ((row, row.tightest) for row in rows)
    known = [(row, tightest) for row, tightest in targets if tightest is not None]
    return max(known, key=lambda item: item[1].share, default=None)


def server_rows(system: System, plan: Plan, overview: Overview | None = None) -> tuple[TargetRow, ...]:
    """Return the servers of a plan by priority, then by name; members of a queue follow the queue.

    Args:
        system: the system that the plan serves.
        plan: the plan.
        overview: overview of the plan, if it is known.
    """
    rows = _Rows(plan.planned_in(system), plan, overview or describe(system, plan))
    owner = {pool.server: name for name, use in plan.length_pools.items() for pool in use.pools}
    parts = grouped((owner.get(name, name), stream) for name, stream in rows.system.streams.items())
    queues = {name: rows.of_queue(name) for name in plan.shared_queues}
    group = {name: one.group for name, one in rows.system.streams.items() if one.group in queues}
    servers = [rows.of_server(name, streams) for name, streams in parts.items()]

    def order(row: TargetRow) -> tuple[int, str, bool, int, str]:
        queue = queues.get(group.get(row.server, row.server))
        first = row if queue is None else queue
        return first.priority, first.server, not row.is_queue, row.priority, row.server

    return tuple(sorted([*servers, *queues.values()], key=order))


class _Rows:
    """The parts of a plan from which rows are made."""

    def __init__(self, system: System, plan: Plan, overview: Overview) -> None:
        self.system, self.plan = system, plan
        self._placed = rows_of(plan)
        self._pools = grouped((pool.server, pool) for pool in overview.placed)
        self._members = {row.server: row for row in overview.queues}
        self._load_rpm = stream_loads_rpm(system)
        self._short = {item.server: item.served_fraction for item in plan.unserved}
        self._deciders = deciding_limits(system, plan)
        self._is_mixed = are_mixed(overview.placed)

    def of_server(self, name: str, streams: Sequence[Stream]) -> TargetRow:
        """Return the row of a server, whose streams are several for pools by length."""
        names, member = [stream.name for stream in streams], self._members.get(name)
        load = {one: self._load_rpm[one] for one in names}
        share = {one: self._short.get(one, 1.0) for one in names}
        total = sum(load.values())
        served = sum(share[one] * load[one] for one in names) / total if total else min(share.values())
        if member is not None:
            return self._row(
                streams[0], name, [], member_targets(member), load_rpm=total, served_share=served,
                places=(f"in {member.queue}",) if served else (), cost_cents_per_h=None,
            )  # fmt: skip
        pools = [pool for one in names for pool in self._pools.get(one, ())]
        targets = worst_targets(figure for pool in pools for figure in pool_targets(pool))
        return self._row(streams[0], name, names, targets, load_rpm=total, served_share=served)

    def of_queue(self, name: str) -> TargetRow:
        """Return the row of a shared queue, without targets, which its members have."""
        members = [one for one in self.system.streams.values() if one.group == name]
        first = min(members, key=attrgetter("priority"))
        served = self.plan.shared_queues[name].members
        total = sum(self._load_rpm[one.name] for one in members)
        share = sum(item.arrival_rate_rpm for item in served.values()) / total if total else 1.0
        share = 1.0 if not any(one.name in self._short for one in members) else share
        return self._row(first, name, [name], (), load_rpm=total, served_share=share, is_queue=True)

    def _row(
        self,
        stream: Stream,
        name: str,
        planned: Sequence[str],
        targets: tuple[TargetShare, ...],
        **fields: Any,
    ) -> TargetRow:
        """Return a row with the placements of planned servers; `fields` replace what follows from them."""
        placed = [(one, row) for one in planned for row in self._placed.get(one, ())]
        own = [row for _, row in placed if row.pool is not None and not row.role and row.max_rate_rpm]
        most_rpm, rate_rpm = sum(row.max_rate_rpm for row in own), sum(row.rate_rpm for row in own)
        deciders = [
            (row, self._deciders.get((one, row.spot.accelerator))) for one, row in placed if row.mode == "own"
        ]
        texts = [decider_text(found, _headings(row)) for row, found in deciders if found is not None]
        cost = [pool.cost_cents_per_h for one in planned for pool in self._pools.get(one, ())]
        cost += [row.cost_cents_per_h for _, row in placed if row.mode == "external"]
        found: dict[str, Any] = {
            "places": tuple(place_text(row) for _, row in placed),
            "accelerators": tuple(row.spot.accelerator for _, row in placed),
            "capacity_share": rate_rpm / most_rpm if most_rpm and rate_rpm else None,
            "cost_cents_per_h": sum(cost),
            "limited_by": ", ".join(dict.fromkeys(texts)),
            "marked": self._is_mixed
            and any(row.pool is not None and row.pool.estimated is not None for _, row in placed),
        }
        return TargetRow(
            server=name,
            priority=stream.priority,
            service_class=stream.server.service_class,
            model=stream.server.model,
            targets=targets,
            **(found | fields),
        )


def place_text(row: PlanRow) -> str:
    """Return replicas and their accelerator as text: ``3 × H100``, ``2 × 4 × H100``, ``external``."""
    if row.mode == "external" or row.pool is None:
        return place_name(*row.place)
    on = f", {row.pool.role}" if row.pool.role else " (shared)" if row.mode == "shared" else ""
    return f"{row.replicas:,} × {row.spot.accelerator}{on}"


def _headings(row: PlanRow) -> dict[str, str]:
    """Return the display names of the metrics of a pool's kind, by metric."""
    return (
        {} if row.pool is None else {shown.metric: shown.heading for shown in kind_of_pool(row.pool).metrics}
    )


def pool_targets(pool: PoolRow) -> tuple[TargetShare, ...]:
    """Return all targets of a pool with their values: on latencies, and on the share of late requests."""
    shown = {metric.metric: metric for metric in kind_of_pool(pool).metrics}
    measured = {figure.measure: figure for name in shown for figure in pool.targets_on(name)}
    measured |= {figure.measure: figure for figure in pool.other_targets if figure.measure not in measured}
    return tuple(
        target_share_of(figure.metric, figure, shown.get(figure.metric))
        for figure in measured.values()
        if figure.limit
    )


def member_targets(row: QueueRow) -> tuple[TargetShare, ...]:
    """Return the targets of a member of a shared queue with their values."""
    figures = () if row.member is None else row.member.targets
    return tuple(target_share_of(figure.metric, figure) for figure in figures if figure.limit)


def targets_of(plan: Plan) -> dict[tuple[str, str], TargetShare]:
    """Return the target nearest to its limit of each server and metric of a plan, without its system."""
    found: dict[tuple[str, str], TargetShare] = {}
    pools = [(server, pool) for server in plan.allocations for pool in plan.pools_of(server)]
    figures = [
        (server, figure, kind_of_pool(pool).shown("plan").get(figure.metric))
        for server, pool in pools
        for figure in pool.targets
    ]
    figures += [(name, figure, None) for name, member in plan.members.items() for figure in member.targets]
    for server, figure, shown in figures:
        share = target_share_of(figure.metric, figure, shown) if figure.limit else None
        old = found.get((server, figure.metric))
        if share is not None and (old is None or share.share > old.share):
            found[server, figure.metric] = share
    return found


def worst_targets(shares: Iterable[TargetShare]) -> tuple[TargetShare, ...]:
    """Return the worst value of each target over the pools of a server."""
    worst: dict[str, TargetShare] = {}
    for share in shares:
        if share.name not in worst or share.share > worst[share.name].share:
            worst[share.name] = share
    return tuple(worst.values())


def target_share_of(metric: str, figure: TargetFigure, shown: Shown | None = None) -> TargetShare:
    """Return a target with its value in the displayed unit and with the displayed name of its metric."""
    if figure.measure == MISSED.label:
        return TargetShare("missed", "late requests", 100 * figure.value, 100 * figure.limit, "%")
    known = metric_of(figure.measure)
    scale, unit = (1.0, "ms") if known is None else (known.scale, known.unit)
    name, form = figure.measure, ""
    if shown is not None:
        name = name.replace(label_of(metric), shown.heading)
        form = shown.form if isinstance(shown.form, str) else ""
    return TargetShare(metric, name, figure.value * scale, figure.limit * scale, unit, form)
