"""Plans from files: what ``solve -o`` and ``Plan.to_json`` wrote is read back, and checked against itself."""

import math
import os
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.plan.document import Plan, Pool
from optimizer.quantities import precise
from optimizer.spec.files import is_plan, json_value, part_of, read_text, text_of
from optimizer.spec.messages import validated
from optimizer.spec.samples import sample_or_path
from optimizer.spec.system import System, join_parts, load_system

COST_TOLERANCE = 1e-6
"""Relative difference of the total and the sum of the pools that rounding may cause, and cents/h."""
MAX_FIGURE = 1e30
"""Largest cost, rate or time of a pool: beyond any plan, and sums of them are still numbers."""


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a JSON file, or from ``-`` (standard input).

    Whether it holds for a system only `verify` can say, which needs that system.

    Raises:
        SpecError: the file cannot be read, breaks the schema of plans, or contradicts itself.
    """
    source = _source(path)
    return plan_from_value(json_value(read_text(path), source), source)


def load_system_or_plan(path: str | os.PathLike[str]) -> System | Plan:
    """Read a system (a file, a directory or ``-``) or a plan (a JSON file or ``-``), whichever it is.

    Raises:
        SpecError: it cannot be read, or is neither.
    """
    path = sample_or_path(path)
    if str(path) != "-" and (Path(path).suffix.lower() in {".yaml", ".yml"} or Path(path).is_dir()):
        return load_system(path)
    json_only = True if Path(path).suffix.lower() == ".json" else None
    text = text_of(read_text(path), _source(path), json_only=json_only)
    raw = text.value()
    if text.json_only and is_plan(raw):
        return plan_from_value(raw, text.source)
    return join_parts([part_of(text, raw)])


def plan_from_value(raw: object, source: str = "") -> Plan:
    """Return the plan that plain values hold.

    Raises:
        SpecError: it breaks the schema of plans, or contradicts itself; the text begins with the source.
    """
    prefix = f"{source}: " if source else ""
    plan = validated(Plan, raw, prefix)
    for name, pools in plan.allocations.items():
        for i, pool in enumerate(pools):
            _check_pool(pool, f"{prefix}allocations.{name}[{i}]")
    cost = math.fsum(pool.cost_cents_per_h for pools in plan.allocations.values() for pool in pools)
    said = plan.total_cost_cents_per_h
    if not math.isclose(cost, said, rel_tol=COST_TOLERANCE, abs_tol=COST_TOLERANCE):
        raise SpecError(
            f"{prefix}totalCost: {precise(said)} is not what the allocations cost, {precise(cost)}"
        )
    return plan


def _source(path: str | os.PathLike[str]) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _check_pool(pool: Pool, place: str) -> None:
    if pool.num_replicas < 1:
        raise SpecError(f"{place}.numReplicas: must be at least 1, not {pool.num_replicas}")
    for name, field in Pool.model_fields.items():
        value = getattr(pool, name)
        if isinstance(value, float) and not 0 <= value <= MAX_FIGURE:
            raise SpecError(
                f"{place}.{field.alias or name}: must be at least 0 and at most "
                f"{precise(MAX_FIGURE)}, not {precise(value)}"
            )
