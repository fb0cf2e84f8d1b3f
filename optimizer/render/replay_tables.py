"""A replay as tables for the terminal: the ways to follow plans, and what became of each server."""

from rich.console import Group

from optimizer.money import in_cost_unit
from optimizer.quantities import counted, percent, precise
from optimizer.render.columns import Column, name
from optimizer.render.tables import Paragraph, Table
from optimizer.studies.replay.document import Replay

_WAYS = (
    name("way"),
    Column("changes", form=",d"),
    Column("changes/h", form=",.2f"),
    Column("switches", form=",d", rank=2),
    Column("cost", "cents", ",.2f"),
    Column("cost/mean", form=".3f", rank=1),
    Column("missed", form=percent),
)
_SERVERS = (
    name("way"),
    name("server"),
    Column("changes", form=",d"),
    Column("switches", form=",d", rank=3),
    Column("most", form=",d", rank=2),
    Column("held", form=",d", rank=2),
    Column("cost", "cents", ",.2f"),
    Column("missed", form=percent),
)


def replay_tables(found: Replay) -> Group:
    """Return a replay as tables."""
    note = (
        f"{counted(found.hours, 'hour')}, {counted(found.steps, 'interval')}; "
        f"replicas take {precise(found.startup_s)} s to start; "
        "missed: requests beyond what ready replicas take within their targets\n"
    )
    return Group(Paragraph(note), _ways(found), _servers(found))


def _columns(columns: tuple[Column, ...], found: Replay) -> tuple[Column, ...]:
    unit = found.currency or "cents"
    return tuple(item._replace(unit=unit) if item.unit == "cents" else item for item in columns)


def _share(missed: float, offered: float) -> float:
    return missed / offered if offered else 0.0


def _ways(found: Replay) -> Table:
    table = Table("Ways to follow the plans", _columns(_WAYS, found), "ways")
    mean = found.variants[-1].cost
    for item in found.variants:
        table.add_row(
            item.name,
            item.changes,
            item.changes_per_h,
            item.switches,
            in_cost_unit(item.cost, found.currency),
            item.cost / mean if mean else None,
            _share(item.missed, item.offered),
        )
    return table


def _servers(found: Replay) -> Table:
    table = Table("Servers", _columns(_SERVERS, found), "servers")
    for item in found.variants:
        for server in item.servers:
            table.add_row(
                item.name,
                server.server,
                server.changes,
                server.switches,
                server.most_replicas,
                server.held,
                in_cost_unit(server.cost, found.currency),
                _share(server.missed, server.offered),
            )
    return table
