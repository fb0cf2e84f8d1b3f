"""Creates data frames from rows of plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.errors import MissingExtraError, SpecError
from optimizer.schema.pools import Pool
from optimizer.spec.streams import has_members
from optimizer.spec.system import System

Row = Mapping[str, object]
MEAN_LIMITS = {"itl_target_ms": "itl", "ttft_target_ms": "ttft"}
"""Columns of the targets on means, with their metrics."""


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


def mean_limits(pool: Pool) -> dict[str, float | None]:
    """Return the limits of a pool's targets on means [ms], by column; None without a target."""
    limits: dict[str, float] = {figure.metric: figure.limit for figure in pool.targets if figure.is_of_mean}
    return {column: limits.get(metric) for column, metric in MEAN_LIMITS.items()}


def placed_values(system: System, row: Mapping[str, Any]) -> dict[str, object]:
    """Return the server and its targets for a row of a plan, by column.

    Raises:
        SpecError: the system has no such server.
    """
    name = str(row["server"])
    server = system.in_plans.get(name)
    if server is None:
        raise SpecError(f"plan: server {name!r} is not in the system; give the system that was planned")
    target = None if has_members(server) else system.target_of(server)
    return {
        "service_class": server.service_class,
        "model": server.model,
        "priority": system.priority(server),
        "itl_target_ms": target and (target.itl_ms or None),
        "ttft_target_ms": target and (target.ttft_ms or None),
    }
