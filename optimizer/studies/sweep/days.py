"""Cost of meeting all targets on a fraction of sampled days with varying loads.

A day is safe if every server has enough replicas for its load, and every route for some division of its
requests. Fixed fleets are planned for all loads times a common factor. Planning each day separately shows the
saving of perfect foresight. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from pydantic import Field

from optimizer.arrays import BoolArray, FloatArray
from optimizer.candidates import SizingMemo
from optimizer.documents import OutputDocument
from optimizer.features.views import largest_loads_rpm
from optimizer.parallel import Progress
from optimizer.pipeline import solve
from optimizer.schema import Route, Server
from optimizer.spec.load_traces import LoadStep
from optimizer.spec.loads import planned_loads, rate_rpm, with_rate
from optimizer.spec.streams import owner_of
from optimizer.spec.system import System
from optimizer.studies.sweep.checkpoint import Checkpoint, answered, digest_of
from optimizer.studies.sweep.sweep_document import SafeFleet, SampledDays
from optimizer.tolerances import ROUNDING

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Fractions of days for which the cheapest safe fleet is reported."""
FACTOR_STEP = 0.01
"""Increment of the load factors that are tried."""
SECONDS_PER_DAY = 86_400.0


class FleetPlan(OutputDocument):
    """Data of a plan that the study needs and stores."""

    total_cost_cents_per_h: float
    """Cost of the plan [cents/h]."""
    complete: bool
    """Whether every server is served in full."""
    most_rpm: tuple[float, ...] = Field(strict=False)
    """Maximum load of each server and route that their replicas serve within targets [requests/min]."""


def lognormal_days(system: System, samples: int, load_cv: float, seed: int) -> FloatArray:
    """Return random loads of sampled days [requests/min], shape (D, S).

    They are the loads of the system times factors, which are independent and lognormal with mean 1 (eq. 160).
    The versions of a server share one factor.

    Returns:
        Loads of the system's `planned_loads`.
    """
    spread = np.sqrt(np.log1p(load_cv**2))
    planned = planned_loads(system)
    servers = {item.name: item for item in planned if isinstance(item, Server)}
    places = {name: s for s, name in enumerate(sorted({*map(owner_of, servers.values())}))}
    count = len(places) + len(planned) - len(servers)
    columns = [*(places[owner_of(server)] for server in servers.values()), *range(len(places), count)]
    normal = np.random.default_rng(seed).standard_normal((samples, count))[:, columns]
    loads: FloatArray = _loads_rpm(system) * np.exp(spread * normal - spread**2 / 2)
    return loads


def trace_days(system: System, steps: Sequence[LoadStep], samples: int, seed: int) -> FloatArray:
    """Return the peak loads of days drawn randomly from a trace [requests/min], shape (D, S).

    All loads of a sample are from the same day, which preserves correlations. A server or route without a
    report on a day has the load of the system.

    Returns:
        Loads of the system's `planned_loads`.
    """
    days: dict[int, FloatArray] = {}
    planned = planned_loads(system)
    first = steps[0].time_s
    for step in steps:
        peaks = days.setdefault(int((step.time_s - first) // SECONDS_PER_DAY), np.full(len(planned), np.nan))
        for s, owner in enumerate(planned):
            result = step.reported(owner)
            if result is not None:
                peaks[s] = np.fmax(peaks[s], rate_rpm(result))
    every = np.array([np.where(np.isnan(peaks), _loads_rpm(system), peaks) for peaks in days.values()])
    drawn: FloatArray = every[np.random.default_rng(seed).integers(len(every), size=samples)]
    return drawn


def within_targets(most_rpm: FloatArray, loads_rpm: FloatArray) -> BoolArray:
    """Return whether the replicas can serve each load on each day, shape (D, S).

    Args:
        most_rpm: maximum load of each server and route [requests/min], shape (S,).
        loads_rpm: loads on each day [requests/min], shape (D, S).
    """
    return np.asarray(loads_rpm <= most_rpm * (1 + ROUNDING), np.bool_)


def sampled_days(
    system: System,
    loads_rpm: FloatArray,
    done: Checkpoint,
    tell: Progress,
    *,
    load_cv: float | None,
    seed: int,
) -> SampledDays:
    """Return the cheapest fleets found that are safe on fractions of the days, and the cost of daily plans.

    Args:
        system: the system to plan.
        loads_rpm: loads of the `owners` on each day [requests/min], shape (D, S).
        done: finished plans; new ones are added.
        tell: called with the progress.
        load_cv: coefficient of variation of the sampled loads; None for a trace.
        seed: random seed of the draw.

    Raises:
        SolverError: the solver failed.
    """
    anew = _planned(system, [tuple(day) for day in loads_rpm.tolist()], done, tell)
    costs = np.array([plan.total_cost_cents_per_h for plan in anew])
    fleets = _fleets(system, loads_rpm, done, tell)
    safe = {step: within_targets(np.array(fleet.most_rpm), loads_rpm) for step, fleet in fleets.items()}
    return SampledDays(
        samples=len(loads_rpm),
        load_cv=load_cv,
        seed=seed,
        days_in_full_share=float(np.mean([plan.complete for plan in anew])),
        most_safe_days_share=max(float(safe[step].all(axis=1).mean()) for step in fleets),
        fleets=tuple(_safe_fleet(share, fleets, safe, costs) for share in SHARES),
    )


def _safe_fleet(
    share: float, fleets: Mapping[int, FleetPlan], safe: Mapping[int, BoolArray], costs: FloatArray
) -> SafeFleet:
    """Return the cheapest fleet that is safe on a fraction of the days, if there is one.

    Args:
        share: the fraction of days.
        fleets: plans by load factor (in increments).
        safe: safe days and servers of each plan.
        costs: cost of each day if it is planned separately [cents/h].
    """
    enough = [step for step in fleets if safe[step].all(axis=1).mean() >= share]
    best = min(enough, key=lambda step: (fleets[step].total_cost_cents_per_h, step), default=None)
    return SafeFleet(
        days_share=share,
        load_factor=None if best is None else round(best * FACTOR_STEP, 9),
        total_cost_cents_per_h=None if best is None else fleets[best].total_cost_cents_per_h,
        safe_days_share=None if best is None else float(safe[best].all(axis=1).mean()),
        safe_server_days_share=None if best is None else float(safe[best].mean()),
        replanned_cents_per_h=float(np.quantile(costs, share, method="inverted_cdf")),
    )


def _fleets(system: System, loads_rpm: FloatArray, done: Checkpoint, tell: Progress) -> dict[int, FleetPlan]:
    """Return plans by load factor (in increments), refined until every fraction of days is reached.

    A larger factor is safer until the fleet no longer fits. Intervals between two factors are bisected while
    a fraction lies between their results.
    """
    base = _loads_rpm(system)
    ratios = np.divide(loads_rpm, base, out=np.zeros_like(loads_rpm), where=base > 0)
    last = max(int(np.ceil(ratios.max(initial=1.0) / FACTOR_STEP)), 2)
    known: dict[int, FleetPlan] = {}
    wanted = [1, last]
    while wanted:
        loads = [tuple((base * step * FACTOR_STEP).tolist()) for step in wanted]
        plans = _planned(system, loads, done, tell)
        known |= dict(zip(wanted, plans, strict=True))
        reach = {step: _reach(plan, loads_rpm) for step, plan in known.items()}
        wanted = [
            (low + high) // 2
            for low, high in pairwise(sorted(known))
            if high - low > 1 and any(reach[low] < share <= reach[high] for share in SHARES)
        ]
    return known


def _reach(plan: FleetPlan, loads_rpm: FloatArray) -> float:
    """Return the fraction of days on which a plan is safe; inf if the plan is incomplete."""
    if not plan.complete:
        return np.inf
    return float(within_targets(np.array(plan.most_rpm), loads_rpm).all(axis=1).mean())


def _planned(
    system: System, loads_rpm: Sequence[tuple[float, ...]], done: Checkpoint, tell: Progress
) -> list[FleetPlan]:
    """Return the plan for each vector of loads [requests/min]; finished plans are not solved again."""
    keys = [f"loads {digest_of(repr(loads))}" for loads in loads_rpm]
    planned = answered(
        partial(_plans, system), dict(zip(keys, loads_rpm, strict=True)), FleetPlan, done, tell
    )
    by_key = dict(zip(dict.fromkeys(keys), planned, strict=True))
    return [by_key[key] for key in keys]


def _plans(system: System, loads_rpm: Sequence[Sequence[float]]) -> list[FleetPlan]:
    """Return the plan for each vector of loads [requests/min]."""
    memo = SizingMemo()
    return [_plan(_with_rates(system, loads), memo) for loads in loads_rpm]


def _with_rates(system: System, rates_rpm: Sequence[float]) -> System:
    """Return the system with other arrival rates [requests/min] of its `planned_loads`."""
    changed = [with_rate(*pair) for pair in zip(planned_loads(system), rates_rpm, strict=True)]
    return system.with_planned(
        {item.name: item for item in changed if isinstance(item, Server)},
        {item.name: item for item in changed if isinstance(item, Route)},
    )


def _plan(system: System, memo: SizingMemo) -> FleetPlan:
    plan = solve(system, memo=memo)
    return FleetPlan.taken_from(plan, most_rpm=tuple(largest_loads_rpm(plan, system)))


def _loads_rpm(system: System) -> FloatArray:
    return np.array([rate_rpm(owner) for owner in planned_loads(system)])
