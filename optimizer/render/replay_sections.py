"""Sections of a replay: the policies, and the outcome of each server under each policy."""

from optimizer.features.sections import replayed_sections
from optimizer.quantities import counted, percent, precise, quantity
from optimizer.render.money import Money
from optimizer.render.service_text import lacking_columns
from optimizer.section import Column, Section, name, sentence, table
from optimizer.studies.replay.replay_document import Replay, ReplayedServer, ReplayPolicy


def replay_sections(replay: Replay) -> list[Section]:
    """Return the sections of a replay: a summary and two tables."""
    summary = (
        f"{counted(replay.hours, 'hour')}, {counted(replay.steps, 'interval')}; "
        f"replicas take {precise(replay.startup_s)} s to start; "
        "missed: requests beyond the maximum rate within targets of the ready replicas"
    )
    tables = [_policies(replay), _servers(replay), *replayed_sections(replay)]
    return [sentence(summary), *tables, *([_headrooms(replay)] if replay.headrooms else [])]


def _missed(item: ReplayPolicy | ReplayedServer) -> float:
    return item.missed / item.offered if item.offered else 0.0


def _policies(replay: Replay) -> Section:
    mean, money = replay.variants[-1].cost, Money(replay.currency)
    columns = (
        name("way", "name"),
        Column("changes", "changes", form=",d"),
        Column("changes/h", "changes_per_h", form=",.2f"),
        Column("switches", "switches", form=",d", rank=2),
        money.column("cost", lambda item: item.cost, unit=money.sum_unit),
        Column("cost/mean", lambda item: item.cost / mean if mean else None, form=".3f", rank=1),
        Column("missed", _missed, form=percent),
        *(
            lacking_columns("lack_reserve")
            if any(item.lack_reserve is not None for item in replay.variants)
            else ()
        ),
    )
    return table("Ways to follow the plans", columns, replay.variants, "ways")


def _headrooms(replay: Replay) -> Section:
    columns = (
        Column("headroom", "headroom", form=".0%"),
        Column("replica-hours a day", "replica_hours_per_day", form=",.1f"),
        Column("late", "late", form=".2%"),
        Column("changes", "changes", form=",d"),
    )
    return table("Headroom of the loop", columns, replay.headrooms, "headrooms")


def _servers(replay: Replay) -> Section:
    money = Money(replay.currency)
    without = Column(
        "without reserve", lambda row: row[1].without_reserve_h, "h", quantity, none="none required"
    )
    columns = (
        name("way", lambda row: row[0].name),
        name("server", lambda row: row[1].server),
        Column("changes", lambda row: row[1].changes, form=",d"),
        Column("switches", lambda row: row[1].switches, form=",d", rank=3),
        Column("most", lambda row: row[1].most_replicas, form=",d", rank=2),
        Column("held", lambda row: row[1].held, form=",d", rank=2),
        money.column("cost", lambda row: row[1].cost, unit=money.sum_unit),
        Column("missed", lambda row: _missed(row[1]), form=percent),
        *([without] if any(item.lack_reserve is not None for item in replay.variants) else []),
    )
    rows = ((variant, server) for variant in replay.variants for server in variant.servers)
    return table("Servers", columns, rows, "servers")
