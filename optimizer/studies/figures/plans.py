"""Figures of a plan: load, assignment, accelerator types, targets of every server, and nodes.

The input is the `Overview` of a plan and, for a comparison, that of an earlier plan. Servers are sorted by
model, then by priority, so that comparable servers are adjacent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Self

from optimizer.arrays import grouped, totals
from optimizer.kinds.shown import Shown
from optimizer.kinds.table import KINDS, kinds_of
from optimizer.money import cost_amount, cost_unit, in_cost_unit
from optimizer.plan.document import Plan
from optimizer.plan.table import PlanLoad, PlanTable
from optimizer.prices.table import ORIGINS
from optimizer.quantities import counted_of, quantity, share_text
from optimizer.queueing.measures import LATENCIES, METRICS
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import Bar, BarPanel, Cell, Figure, GridPanel, Values
from optimizer.studies.figures.node_panels import node_panel
from optimizer.studies.overview import Overview, PoolRow, describe
from optimizer.studies.target_rows import TargetRow, server_rows

MAX_ROWS = 40
"""Maximum number of servers or models in a figure."""
WHOLE = 100.0
"""Value of a latency that equals its target [% of the target]."""
CLASSES_BESIDE = 5
"""Maximum number of service classes side by side; further classes are in further panels."""


@dataclass(frozen=True)
class PlannedSystem:
    """A system and its plan, which a figure shows."""

    system: System
    overview: Overview

    @classmethod
    def of(cls, system: System, plan: Plan) -> Self:
        """Return a system with its plan."""
        return cls(plan.planned_in(system), describe(system, plan))

    @property
    def types(self) -> tuple[str, ...]:
        """Return all accelerator types of the system, sorted by name."""
        return tuple(row.type for row in self.overview.types)

    @cached_property
    def rows(self) -> tuple[TargetRow, ...]:
        """Servers of the input and shared queues, with their targets."""
        return server_rows(self.system, self.overview.plan, self.overview)

    def type_of(self, row: TargetRow) -> str:
        """Return the accelerator type of a server, or of its queue; empty if nothing runs."""
        queue = self.overview.plan.group_of.get(row.server)
        names = next((one.accelerators for one in self.rows if one.server == queue), row.accelerators)
        return next(
            (self.system.accelerators[name].type for name in names if name in self.system.accelerators), ""
        )

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], PlanTable]:
        """Loads and rows of the plan by model and service class."""
        table = PlanTable.of(self.overview.plan, self.system)
        return table.by(lambda load: (load.model or "", load.service_class or ""))


def load_panels(shown: PlannedSystem, before: PlannedSystem | None = None) -> tuple[GridPanel, ...]:
    """Return panels with the arrival rate and the token lengths of each model in each service class."""
    now, then = _loads(shown), {} if before is None else _loads(before)
    return _grids(
        "Load: requests/min, input → output tokens",
        shown,
        lambda key: Cell(text=_with_before(now.get(key, ""), then.get(key))),
    )


def _loads(shown: PlannedSystem) -> dict[tuple[str, str], str]:
    """Return the load of each model and class as text; loads of servers with the same pair are added."""
    routed, streams = shown.overview.plan.routed_rpm, shown.system.streams
    result = grouped((stream.key, stream.server) for stream in streams.values())
    rates = totals(
        (stream.key, routed[name][name] if name in routed else stream.server.current.load.arrival_rate_rpm)
        for name, stream in streams.items()
    )
    words, kinds = {}, shown.system.model_kinds()
    for key, servers in result.items():
        loads, rate = [server.current.load for server in servers], rates[key]
        shapes = {f"{load.in_tokens:,.0f} → {load.out_tokens:,.0f}" for load in loads}
        tokens = f", {shapes.pop() if len(shapes) == 1 else 'several shapes'}"
        words[key] = f"{quantity(rate)}/min{tokens if kinds.get(key[0], KINDS[0]).lengths else ''}"
    return words


def assignment_panels(shown: PlannedSystem, before: PlannedSystem | None = None) -> tuple[GridPanel, ...]:
    """Return panels with the accelerator and the number of replicas of each model in each service class."""
    now, then = _placements(shown), {} if before is None else _placements(before)
    shares = _served_shares(shown)

    def cell(key: tuple[str, str]) -> Cell:
        text, type_name = now.get(key, ("", ""))
        said = _with_before(text, then[key][0] if key in then else None)
        return Cell(text=said, group=type_name, share=shares.get(key, 1.0))

    return _grids("Assignment: replicas × accelerator", shown, cell, shown.types)


def _with_before(text: str, before: str | None) -> str:
    return text if before is None or before == text else f"{text}\nwas {before}"


def _grids(
    title: str, shown: PlannedSystem, cell: Callable[[tuple[str, str]], Cell], groups: tuple[str, ...] = ()
) -> tuple[GridPanel, ...]:
    """Return grids with a row for each model and a column for each service class, a few classes per grid.

    Args:
        title: title of the panels.
        shown: the system and its plan.
        cell: function that returns the field of a model and class.
        groups: all groups of fields, which determine their colours.
    """
    system = shown.system
    classes = sorted(
        {stream.server.service_class for stream in system.streams.values()},
        key=lambda name: (system.service_classes[name].priority, name),
    )
    keys = {stream.key for stream in system.streams.values()}
    models = sorted({model for model, _ in keys})[:MAX_ROWS]
    if 2 * len(keys) < len(models) * len(classes):
        return (_list(title, [(m, [c for c in classes if (m, c) in keys]) for m in models], cell, groups),)
    parts = [classes[i : i + CLASSES_BESIDE] for i in range(0, len(classes), CLASSES_BESIDE)] or [[]]
    return tuple(
        GridPanel(
            title=title if part is parts[0] else f"{title}, continued",
            columns=tuple(part),
            rows=tuple(models),
            cells=tuple(tuple(cell((model, name)) for name in part) for model in models),
            groups=groups,
        )
        for part in parts
    )


def _list(
    title: str,
    models: Sequence[tuple[str, Sequence[str]]],
    cell: Callable[[tuple[str, str]], Cell],
    groups: tuple[str, ...],
) -> GridPanel:
    """Return a grid in which the fields of a model are side by side, each with the name of its class.

    Args:
        title: title of the panel.
        models: each model with its classes.
        cell: function that returns the field of a model and class.
        groups: all groups of fields.
    """
    width = min(max(len(classes) for _, classes in models), CLASSES_BESIDE)
    names, rows = list[str](), list[tuple[Cell, ...]]()
    for model, classes in models:
        for i in range(0, len(classes), width):
            fields = [(name, cell((model, name))) for name in classes[i : i + width]]
            named = [one.model_copy(update={"text": f"{name}\n{one.text}"}) for name, one in fields]
            names.append(model)
            rows.append((*named, *[Cell(text="")] * (width - len(named))))
    return GridPanel(title=title, columns=("",) * width, rows=tuple(names), cells=tuple(rows), groups=groups)


def _placements(shown: PlannedSystem) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the placement of each model and class as text, and the accelerator type of its largest pool."""
    plan, system, placements = shown.overview.plan, shown.system, {}
    for key, cell in shown.cells.items():
        queues = [plan.group_of[name] for name in cell.loads if name in plan.group_of]
        lack = _lack(cell.servers)
        text = f"in {queues[0] if len(queues) == 1 else f'{len(queues)} queues'}" if queues else ""
        if not text and any(not rows.rows for rows in cell.by(lambda load: load.name).values()):
            text = "idle"
        rows = sorted(cell.placed, key=lambda row: row.mode == "shared")
        pools = [(row.pool, row.mode) for row in rows if row.pool is not None]
        if pools:
            count = totals(
                (pool.accelerator + (", shared" if mode == "shared" else ""), pool.num_replicas)
                for pool, mode in pools
            )
            text = " + ".join(f"{number:,} × {name}" for name, number in count.items()) + lack
        elif lack:
            text = "not served"
        largest = max((pool for pool, _ in pools), key=lambda pool: pool.num_replicas, default=None)
        on = "" if largest is None else system.accelerators[largest.accelerator].type
        placements[key] = text, on
    return placements


def _lack(loads: Sequence[PlanLoad]) -> str:
    """Describe the shortage of loads that are not served in full; empty if there are none."""
    short = [load for load in loads if not load.in_full]
    if not short:
        return ""
    if len(loads) == 1:
        return f" ({share_text(short[0].served_share)} served)"
    return f" ({len(short)} of {len(loads)} not in full)"


def _served_shares(shown: PlannedSystem) -> dict[tuple[str, str], float]:
    """Return the served share of the load of each model and class."""
    shares = {}
    for key, cell in shown.cells.items():
        rates = [(load, shown.system.streams[load.name].load.arrival_rate_rpm) for load in cell.servers]
        asked = sum(rate for _, rate in rates)
        if asked:
            shares[key] = sum(load.served_share * rate for load, rate in rates) / asked
    return shares


def types_panels(shown: PlannedSystem, before: PlannedSystem | None = None) -> tuple[BarPanel, ...]:
    """Return the panel of cards, replicas and cost by accelerator type.

    Without an earlier plan, it also shows the existing cards.
    """
    then = {} if before is None else {row.type: row for row in before.overview.types}
    currency, bars = shown.overview.plan.currency, []
    for row in shown.overview.types:
        old = then.get(row.type)
        if before is None:
            marks: tuple[float | None, ...] = (None if row.limit is None else float(row.limit), None, None)
        elif old is None:
            marks = (None, None, None)
        else:
            marks = (float(old.used), float(old.replicas), in_cost_unit(old.cost_cents_per_h, currency))
        values = float(row.used), float(row.replicas), in_cost_unit(row.cost_cents_per_h, currency)
        bars.append(Bar(name=row.type, values=values, marks=marks, type=row.type))
    limited = any(row.limit is not None for row in shown.overview.types)
    panel = BarPanel(
        title="Accelerator types",
        columns=("cards", "replicas", f"cost\n[{cost_unit(currency)}]"),
        bars=tuple(bars),
        mark="before" if before is not None else "cards that exist" if limited else "",
    )
    return (panel,)


def _rows_of(shown: PlannedSystem, before: PlannedSystem | None) -> list[PoolRow]:
    return [*shown.overview.placed, *(() if before is None else before.overview.placed)]


def targets_panels(shown: PlannedSystem, before: PlannedSystem | None = None) -> tuple[BarPanel, ...]:
    """Return the panels of every server's metrics as percentages of their targets, the tightest first."""
    # Metrics that most documents have targets for are always shown.
    shown_of = {item.metric: item for kind in kinds_of(_rows_of(shown, before)) for item in kind.metrics}
    stated = {target.metric for one in (shown, before) if one for row in one.rows for target in row.targets}
    metrics = [
        name
        for name in dict.fromkeys((*METRICS, *shown_of))
        if (name in shown_of and shown_of[name].target) or name in stated
    ]
    old = {} if before is None else {row.server: _shares(row, metrics) for row in before.rows}
    none = tuple(None for _ in metrics)
    servers = [row for row in shown.rows if not row.is_queue and metrics]  # offline work has no targets
    bars = [
        Bar(
            name=row.server,
            values=_shares(row, metrics),
            marks=() if before is None else old.get(row.server, none),
            type=shown.type_of(row),
        )
        for row in sorted(servers, key=lambda row: (-row.tightness, row.server))[:MAX_ROWS]
    ]
    panel = BarPanel(
        title="Latencies against targets, the tightest first",
        columns=tuple(_target_name(shown_of.get(metric)) for metric in metrics),
        bars=tuple(bars),
        mark="" if before is None else "before",
        line=WHOLE,
        line_name="target, met up to here",
    )
    return (panel,)


def _shares(row: TargetRow, metrics: Sequence[str]) -> Values:
    """Return the worst value of each metric as a percentage of its target; None without a target."""
    worst = {target.metric: WHOLE * target.share for target in sorted(row.targets, key=attrgetter("share"))}
    return tuple(worst.get(metric) for metric in metrics)


def _target_name(shown: Shown | None) -> str:
    """Return the heading of the column with the bars of a target."""
    if shown is None:
        return "beyond a target\n[% of allowed]"
    heading = f" ({shown.metric.upper()})" if shown.metric in LATENCIES else ""
    return f"{shown.spoken or shown.heading}{heading}\n[% of target]"


def nodes_panels(shown: PlannedSystem, before: PlannedSystem | None = None) -> tuple[GridPanel, ...]:
    """Return the panel of the contents of nodes, also before; empty without nodes."""
    then = None if before is None else node_panel(before.overview.plan.nodes)
    earlier = then and then.model_copy(update={"title": "Nodes before"})
    panels = (earlier, node_panel(shown.overview.plan.nodes))
    return tuple(panel for panel in panels if panel is not None)


PANELS = {
    "load": load_panels,
    "assignment": assignment_panels,
    "types": types_panels,
    "targets": targets_panels,
    "nodes": nodes_panels,
}
"""Panels of a plan's figure, by name."""
WHOLE_PLAN = ("load", "assignment", "types", "nodes")
"""Names of the panels that a plan's figure shows by default."""


def plan_figure(shown: PlannedSystem, before: PlannedSystem | None, panels: Sequence[str]) -> Figure:
    """Return a figure of a plan; if an earlier plan is given, the figure compares both."""
    overview = shown.overview
    mode = "Limited" if overview.limited else "Unlimited"
    served = overview.servers - len(overview.plan.unserved)
    currency = overview.plan.currency
    cost = f"{cost_amount(overview.plan.total_cost_cents_per_h, currency)} {cost_unit(currency)}"
    if before is not None:
        cost += f" (before: {cost_amount(before.overview.plan.total_cost_cents_per_h, currency)})"
    note = f"{cost}; {counted_of(served, overview.servers, 'server')} served in full"
    estimated = overview.plan.estimated_pools
    if estimated:
        note += f"; token times are estimated in {counted_of(estimated, len(overview.pools), 'pool')}"
    drawn = tuple(panel for name in panels for panel in PANELS[name](shown, before))
    if not drawn:
        note += "; the plan has no nodes"
    parts = (note, _other_costs(overview.plan), left_out(shown, panels))
    return Figure(
        title=f"{mode} plan" + ("" if before is None else " after a load change"),
        note="; ".join(part for part in parts if part),
        panels=drawn,
        types=shown.types,
    )


def _other_costs(plan: Plan) -> str:
    """Return a note on the parts of the total cost that are in no type's or server's cost."""
    costs = totals((ORIGINS[cost.origin], cost.amount_cents_per_h) for cost in plan.costs_of_no_pool)
    parts = [f"{what} ({cost_amount(cost, plan.currency)})" for what, cost in costs.items()]
    return f"the total includes {' and '.join(parts)}" if parts else ""


def left_out(shown: PlannedSystem, panels: Sequence[str]) -> str:
    """Return a note on the rows that a figure omits; empty if it shows all."""
    servers = shown.system.servers.values()
    models = {server.model for server in servers}
    parts = [
        f"the {what.format(MAX_ROWS)} of {number:,} {noun}"
        for what, number, noun, concerned in (
            ("{} tightest", len(servers), "servers", "targets" in panels),
            ("first {}", len(models), "models", not {"load", "assignment"}.isdisjoint(panels)),
        )
        if concerned and number > MAX_ROWS
    ]
    return f"as many as fit on a page: {', '.join(parts)}" if parts else ""
