"""Proofs of a plan's bounds by dual multipliers, which can be checked without a solver.

The bounds of a plan are found by a search; dual multipliers of the relaxation prove most of them. They are
stored in a separate document. Equation numbers refer to ``docs/math.md``.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from operator import not_

import numpy as np
from pydantic import Field

from optimizer.candidates import Candidates, find_candidates
from optimizer.candidates.arrays import ALL_MEMBERS
from optimizer.documents import OutputDocument
from optimizer.errors import SpecError
from optimizer.features.length_pools.streams import wholes_of
from optimizer.limits.cards import CARDS
from optimizer.plan.document import Plan
from optimizer.quantities import precise, quantity
from optimizer.schema.files import json_value, read_text
from optimizer.schema.messages import validated
from optimizer.solvers.branch_and_price.duals import DualBounds, DualMultipliers
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import build_problem
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING


class LevelProof(OutputDocument):
    """Dual multipliers for one level (lexicographic objective), and the bound that they prove."""

    name: str
    """Name of the level."""
    bound: float
    """Lower bound of the level, given the values of the previous levels."""
    units: dict[str, float] = Field(default_factory=dict)
    """Dual value of a card by accelerator type, in integer units of the level; 0 if absent."""
    limits: dict[str, dict[str, float]] = Field(default_factory=dict, exclude_if=not_)
    """Dual values of limits other than cards, by limit and item. Absent if there are none."""
    levels: dict[str, float] = Field(default_factory=dict)
    """Dual values of one integer unit of each previous level, by name."""


class Proof(OutputDocument):
    """Dual multipliers that prove bounds of a plan's levels, in order."""

    levels: tuple[LevelProof, ...] = Field(strict=False)
    """Proofs of the levels that have multipliers."""


def load_proof(path: str | os.PathLike[str]) -> Proof:
    """Read a proof from a JSON file, or from ``-`` (standard input).

    Raises:
        SpecError: the file cannot be read, or is not a proof.
    """
    source = "standard input" if str(path) == "-" else str(path)
    return validated(Proof, json_value(read_text(path), source), f"{source}: ")


def prove(plan: Plan, candidates: Candidates, deadline: Deadline) -> Proof:
    """Compute dual multipliers for the levels of a plan, until the deadline.

    With a saturation policy, only service levels up to the first with unserved load are proved, because the
    remaining capacity is allocated by a procedure without multipliers.

    Args:
        candidates: candidates of its system.
        deadline: time at which the computation stops.

    Raises:
        SolverError: the solver failed.
    """
    _check_has_multipliers(candidates)
    proofs = []
    wanted = provable_levels(plan, candidates)
    reached = {level.name: level.value if level.name in wanted else -np.inf for level in plan.levels}
    provable = _provable(plan, candidates)
    for level, multipliers, bound in provable.multipliers(reached, deadline):
        if level.name in wanted:
            proofs.append(_as_document(provable, bound, multipliers))
    return Proof(levels=tuple(proofs))


def _check_has_multipliers(candidates: Candidates) -> None:
    """Raise an error if dual multipliers cannot prove bounds of a plan.

    Raises:
        SpecError: the plan has shared cards or pools by length.
    """
    if wholes_of(candidates.system.servers):
        raise SpecError("proof: multipliers are those of plans without pools by length; remove --proof")
    if candidates.shared is not None:
        raise SpecError("proof: multipliers are those of plans without shared cards; remove --proof")


def provable_levels(plan: Plan, candidates: Candidates) -> set[str]:
    """Return the names of the levels whose bounds multipliers can prove."""
    if _leaves_members(candidates) or candidates.shared is not None or candidates.system.routed:
        return set()  # multipliers are for patterns, which support neither queue members nor routes
    return ordered_levels(plan, candidates)


def ordered_levels(plan: Plan, candidates: Candidates) -> set[str]:
    """Return the names of levels whose optimal value can never improve if cards are removed."""
    options = candidates.system.options
    if options.saturation_policy == "None" or plan.complete:
        return {level.name for level in plan.levels}
    if _leaves_members(candidates):
        return set()
    # A priority has two levels: the unserved rate and the number of unserved servers.
    service = [level for level in plan.levels if level.name.startswith("priority ")]
    short = next((i for i, level in enumerate(service) if level.value > 0), len(service))
    if options.delayed_best_effort:
        short = len(service)
    return {level.name for level in service[: short - short % 2 + 2]}


def _leaves_members(candidates: Candidates) -> bool:
    return bool((candidates.table.members != ALL_MEMBERS).any())


def check_proof(plan: Plan, system: System, proof: Proof) -> tuple[list[str], list[str]]:
    """Check a proof; return its errors and the unproved bounds, one line each.

    Candidates, patterns and bounds are recomputed from the system, without a solver.
    """
    if system.rate_factors != plan.factor_of_pair:
        system = system.with_rate_factors(plan.factor_of_pair)
    candidates = find_candidates(system)
    _check_has_multipliers(candidates)
    provable = _provable(plan, candidates)
    wrong, open_points = list(_misnamed(plan, candidates, provable, proof)), []
    if wrong:
        return wrong, []
    wanted, proofs = provable_levels(plan, candidates), {item.name: item for item in proof.levels}
    for level in provable.levels():
        stated = next(item for item in plan.levels if item.name == level.name)
        if stated.bound is None:
            continue
        if level.name not in wanted or level.name not in proofs:
            open_points.append(
                f"{level.name}: no multipliers; the bound {precise(stated.bound)} is unverified"
            )
            continue
        # Any multipliers give a bound (weak duality). The file must not claim more than they prove, nor more
        # than the plan reached. Bounds of the plan that are higher than those of the file remain unproved.
        item = proofs[level.name]
        proved = provable.bound(level, _multipliers(item, provable))
        if item.bound > proved + ROUNDING * max(1.0, abs(proved)):
            wrong.append(
                f"{level.name}: the multipliers prove {quantity(proved, 9)}, not {quantity(item.bound, 9)}"
            )
        elif item.bound > stated.value + ROUNDING * max(1.0, abs(stated.value)):
            wrong.append(
                f"{level.name}: {quantity(item.bound, 9)} is proved, but the plan has "
                f"{quantity(stated.value, 9)}"
            )
        elif stated.bound > item.bound + ROUNDING * max(1.0, abs(item.bound)):
            open_points.append(
                f"{level.name}: the multipliers prove {quantity(item.bound, 9)} of the bound "
                f"{quantity(stated.bound, 9)}; the rest is unverified"
            )
    return wrong, open_points


def _misnamed(plan: Plan, candidates: Candidates, provable: DualBounds, proof: Proof) -> Iterator[str]:
    """Yield an error for each unknown name and invalid dual value in a proof."""
    levels = {level.name for level in plan.levels}
    types = set(candidates.arrays.type_names)
    keys = {(row.limit.name, row.label) for row in provable.problem.limits.items}
    if len({item.name for item in proof.levels}) < len(proof.levels):
        yield "levels: duplicate level"
    for item in proof.levels:
        if item.name not in levels:
            yield f"{item.name}: the plan has no such level"
        place = f"{item.name}: units"
        yield from _mispriced(place, item.units, types, "the system has no such accelerator type")
        for limit, prices in item.limits.items():
            known = {name for key, name in keys if key == limit != CARDS}
            place = f"{item.name}: limits.{limit}"
            yield from _mispriced(place, prices, known, "the system has no such limit")
        yield from _mispriced(f"{item.name}: levels", item.levels, levels, "the plan has no such level")


def _mispriced(
    place: str, prices: Mapping[str, float], known: Collection[str], unknown: str
) -> Iterator[str]:
    for name, price in prices.items():
        if name not in known:
            yield f"{place}.{name}: {unknown}"
        elif not 0 <= price < np.inf:
            yield f"{place}.{name}: a price must be at least 0, not {precise(price)}"


def _as_document(provable: DualBounds, bound: float, multipliers: DualMultipliers) -> LevelProof:
    units: dict[str, float] = {}
    limits: dict[str, dict[str, float]] = {}
    for row, price in zip(provable.problem.limits.items, multipliers.limits.tolist(), strict=True):
        if price:
            prices = units if row.limit.name == CARDS else limits.setdefault(row.limit.name, {})
            prices[row.label] = price
    return LevelProof(
        name=multipliers.level, bound=bound, units=units, limits=limits, levels=dict(multipliers.levels)
    )


def _multipliers(item: LevelProof, provable: DualBounds) -> DualMultipliers:
    prices = {CARDS: item.units, **item.limits}
    # A price that the file omits is 0, which is valid: weak duality holds for any price.
    rows = [prices.get(row.limit.name, {}).get(row.label, 0.0) for row in provable.problem.limits.items]
    return DualMultipliers(item.name, np.array(rows), item.levels)


def _provable(plan: Plan, candidates: Candidates) -> DualBounds:
    unserved = {item.server for item in plan.unserved}
    names = candidates.arrays.server_names
    served = {name for name in names if plan.allocations.get(name)} - unserved
    left_out = np.array([name not in served for name in names], dtype=np.bool_)
    reached = {level.name: level.value for level in plan.levels}
    return DualBounds(build_problem(candidates), left_out, reached)
