"""Reads plans written by ``solve -o`` and ``Plan.to_json``, and checks their consistency."""

import math
import os
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.plan.document import Plan
from optimizer.plan.placements import placements_of
from optimizer.quantities import precise
from optimizer.schema.files import is_system, part_of, read_document
from optimizer.schema.messages import validated
from optimizer.schema.pools import Pool
from optimizer.schema.recognition import answer_name, is_plan
from optimizer.schema.samples import sample_or_path
from optimizer.spec.arguments import check_path
from optimizer.spec.system import System, join_parts, load_system
from optimizer.tolerances import SAME

MAX_FIGURE = 1e30
"""Maximum cost, rate or time of a pool, in its unit; sums of such values are still finite."""
OLDER_PLAN = "this plan was written by an older inferplan; plan again, with 'inferplan solve -o plan.json'"
"""Message for plans with the keys of older versions, whose amounts have no units in their names."""
_PLAN_WANTED = "give a plan instead, as 'inferplan solve -o plan.json' writes it"


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a file, or from ``-`` (standard input).

    `verify` checks whether the plan is valid for a system.

    Raises:
        SpecError: the file cannot be read, violates the schema of plans, or is inconsistent.
    """
    check_path(path, "load_plan")
    path = sample_or_path(path)
    if _is_directory(path):
        raise SpecError(f"{path}: this directory is a system; {_PLAN_WANTED}")
    text = read_document(path)
    return plan_from_value(text.value(), text.source)


def load_system_or_plan(path: str | os.PathLike[str]) -> System | Plan:
    """Read a system (a file, a directory or ``-``) or a plan (a file or ``-``).

    Raises:
        SpecError: the file cannot be read, or is neither.
    """
    path = sample_or_path(path)
    if _is_directory(path):
        return load_system(path)
    text = read_document(path)
    raw = text.value()
    return plan_from_value(raw, text.source) if is_plan(raw) else join_parts([part_of(text, raw)])


def plan_from_value(raw: object, source: str = "") -> Plan:
    """Create a plan from plain values, such as parsed JSON.

    Raises:
        SpecError: the values violate the schema of plans, or are inconsistent; the message starts with
            `source`.
    """
    prefix = f"{source}: " if source else ""
    if not is_plan(raw) and (what := answer_name(raw) or ("a system" if is_system(raw) else None)):
        raise SpecError(f"{prefix}this is {what}; {_PLAN_WANTED}")
    if is_plan(raw) and isinstance(raw, dict) and "totalcost" in {str(key).lower() for key in raw}:
        raise SpecError(f"{prefix}{OLDER_PLAN}")
    plan = validated(Plan, raw, prefix)
    for name, pools in plan.allocations.items():
        for i, pool in enumerate(pools):
            _check_pool(pool, f"{prefix}allocations.{name}[{i}]")
    listed = [row.cost_cents_per_h for row in placements_of(plan) if row.mode != "external"]
    cost = math.fsum([*listed, *(cost.amount_cents_per_h for cost in plan.costs)])
    stated = plan.total_cost_cents_per_h
    if not math.isclose(cost, stated, rel_tol=SAME, abs_tol=SAME):
        raise SpecError(
            f"{prefix}totalCostCentsPerH: {precise(stated)} differs from the cost of the allocations, "
            f"{precise(cost)}"
        )
    return plan


def _is_directory(path: str | os.PathLike[str]) -> bool:
    return str(path) != "-" and Path(path).is_dir()


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
