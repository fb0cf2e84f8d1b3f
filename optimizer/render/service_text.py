"""Sentences on service by priority, of one plan or of two compared plans."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from optimizer.quantities import counted, counted_of, percent, share_text
from optimizer.schema.classes import priority_name
from optimizer.section import Column, words
from optimizer.text import some_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.studies.comparison.comparison_document import PriorityRow
    from optimizer.studies.service import PriorityService


def service_text(service: Sequence[PriorityService]) -> str:
    """Describe the service of each priority, or state that everything is served."""
    if all(item.served_in_full == item.servers for item in service):
        return "everything in full"
    return ", ".join(f"{priority_name(item.priority)}: {_served(item)}" for item in service)


def lacking_columns(path: str) -> tuple[Column, Column]:
    """Return table columns with the number and the names of servers that lack their reserve.

    Args:
        path: attribute path of these names in a row.
    """
    names = attrgetter(path)
    return (
        Column("lack reserve", lambda item: len(names(item) or ()), "servers", ",d"),
        words(
            "servers without reserve", lambda item: some_names(names(item) or ()) or None, rank=3, none="none"
        ),
    )


def _served(item: PriorityService) -> str:
    in_full = f"{counted_of(item.served_in_full, item.servers, 'server')} in full"
    if item.share is None:
        return "idle" if item.served_in_full == item.servers else in_full
    short = item.share == 1 and item.served_in_full < item.servers
    return share_text(item.share) + (f" of its load, {in_full}" if short else "")


def service_changes(rows: Sequence[PriorityRow]) -> str:
    """Name the priorities whose service differs between two plans, with the differences."""
    return "; ".join(f"{priority_name(row.priority)}: {_change(row)}" for row in rows if not row.same)


def _change(row: PriorityRow) -> str:
    first, second = row.first, row.second
    if first is None or second is None:
        there = second or first
        assert there is not None
        only = "second" if first is None else "first"
        return f"on the {only} side only, {counted(there.servers, 'server')}"
    parts = []
    shares = _shares(first.share, second.share)
    if shares:
        parts.append(f"{shares} of its load")
    full = [f"{item.served_in_full:,} of {item.servers:,}" for item in (first, second)]
    if full[0] != full[1]:
        parts.append(f"{full[0]} → {full[1]} {'server' if second.servers == 1 else 'servers'} in full")
    return ", ".join(parts) or "as much, but of other servers"


def _shares(first: float | None, second: float | None) -> str:
    """Return two shares of load as text with enough digits to tell them apart; empty if they are equal."""
    for form in (share_text, percent):
        texts = ["no load" if share is None else form(share) for share in (first, second)]
        if texts[0] != texts[1]:
            return " → ".join(texts)
    return ""
