"""Creates data frames from rows of plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.errors import MissingExtraError, SpecError
from optimizer.spec.streams import has_members
from optimizer.spec.system import System

Row = Mapping[str, object]
PLACED = ("service_class", "model", "priority", "type", "cards", "itl_target_ms", "ttft_target_ms")
"""Columns that a system adds to the rows of its plan."""


def data_frame(rows: Sequence[Row], columns: Sequence[str]) -> Any:
    """Create a pandas data frame with the given columns from rows.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return pd.DataFrame(list(rows), columns=list(columns))


def placed_values(system: System, row: Mapping[str, Any]) -> dict[str, object]:
    """Return the values of the columns `PLACED` for a row of a plan, by column.

    Raises:
        SpecError: the system has no such server.
    """
    name = str(row["server"])
    server = system.in_plans.get(name)
    if server is None:
        raise SpecError(f"plan: server {name!r} is not in the system; give the system that was planned")
    target = None if has_members(server) else system.target_of(server)
    pool = row["pool"]
    type_name, cards = ("", 0) if pool is None else system.units_per_replica(name, pool.accelerator)
    return {
        "service_class": server.service_class,
        "model": server.model,
        "priority": system.priority(server),
        "type": type_name or None,
        "cards": cards * row["num_replicas"],
        "itl_target_ms": target and (target.itl_ms or None),
        "ttft_target_ms": target and (target.ttft_ms or None),
    }
