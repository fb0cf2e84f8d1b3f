"""Optimises reservations for the entire time, and rentals of each hour.

Two steps alternate until nothing improves. Each hour is planned exactly for given reservations, then the
reservations are optimised for the accelerators that these plans use (``docs/math.md``, eq. 162 to 164). The
search starts from no reservations, from those for the plans at the lowest prices, from those for the peak,
and again from the best reservations with one accelerator fewer. Simple policies with their best reservations
are candidates, too, so the result is never worse than any of them.
"""

from collections.abc import Sequence
from functools import partial

from optimizer.features.hourly import check_hours, hour_fields
from optimizer.parallel import as_done
from optimizer.pipeline import solve
from optimizer.plan import Placement, Plan
from optimizer.spec.load_traces import LoadStep
from optimizer.spec.loads import rate_rpm, stated_loads
from optimizer.spec.system import System
from optimizer.studies.horizon.horizon_document import Horizon, HourlyUse, HourPlan, Reservation
from optimizer.studies.horizon.hours import Hour, alone, chained, from_nothing, hours_of, peak_of
from optimizer.studies.horizon.outcomes import Outcome, outcome_of, started
from optimizer.studies.horizon.reservations import (
    Offers,
    Taken,
    at_lowest_prices,
    best_reservations,
    by_cards,
    used_by,
    with_reservations,
)
from optimizer.studies.service import lacking_fields
from optimizer.units import MINUTES_PER_HOUR

MAX_ROUNDS = 20
"""Maximum number of alternations between plans and reservations, from one start."""
PLANNED, PEAK = "reserve and rent", "one plan for the peak"
ON_DEMAND, AUTOSCALER = "hour by hour on demand", "fewest cards by the hour"


def plan_horizon(system: System, steps: Sequence[LoadStep]) -> Horizon:
    """Plan reservations and rentals for loads by the hour.

    Args:
        system: the fleet; committed tiers of its accelerators are offers of reservations.
        steps: loads, each from its time until the next.

    Raises:
        AnalysisError: the system has a feature whose hours are not planned.
        SolverError: the solver failed.
    """
    check_hours(system)
    hours, offers = hours_of(system, steps), Offers.of(system)
    lowest = alone([at_lowest_prices(hour.system) for hour in hours])
    fewest = outcome_of(hours, alone([by_cards(hour.system) for hour in hours]), offers.none)
    cheapest = _reserved(hours, offers, lowest)
    peak = _for_peak(hours, offers)
    starts = [offers.none]
    starts += [each.taken for each in (cheapest, peak) if each is not None and each.taken not in starts]
    rounds = [*as_done(partial(_alternate, hours, offers), starts)]
    on_demand = rounds[0][0]
    simple = {ON_DEMAND: on_demand, AUTOSCALER: fewest}
    candidates = [best for _, best in rounds] + [cheapest, _reserved(hours, offers, fewest.plans)]
    if peak is not None:
        simple[PEAK] = peak
        candidates.append(peak)
    chosen = _best_of(candidates)
    near = [*as_done(partial(_alternate, hours, offers), _one_fewer(chosen.taken)[: len(starts)])]
    return _document(_best_of([chosen, *(best for _, best in near)]), offers, simple, lowest)


def _best_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the first outcome that no later one beats."""
    best = outcomes[0]
    for other in outcomes[1:]:
        best = other if other.beats(best) else best
    return best


def _one_fewer(taken: Taken) -> list[Taken]:
    """Return reservations of one accelerator fewer, for each tier with any; the largest tiers first."""
    some = [(units[k], name, k) for name, units in taken.items() for k in range(len(units)) if units[k]]
    return [
        {**taken, name: (*taken[name][:k], units - 1, *taken[name][k + 1 :])}
        for units, name, k in sorted(some, key=lambda each: -each[0])
    ]


def _alternate(hours: tuple[Hour, ...], offers: Offers, taken: Taken) -> tuple[Outcome, Outcome]:
    """Return the plans for given reservations, and the best outcome of alternating from there."""
    plans = chained([with_reservations(hour.system, taken) for hour in hours])
    first, best = outcome_of(hours, plans, taken), _reserved(hours, offers, plans)
    for _ in range(MAX_ROUNDS):
        if best.taken == taken:
            break
        taken = best.taken
        plans = chained([with_reservations(hour.system, taken) for hour in hours])
        reserved = _reserved(hours, offers, plans)
        if not reserved.beats(best):
            break
        best = reserved
    return first, best


def _reserved(hours: tuple[Hour, ...], offers: Offers, plans: Sequence[Plan]) -> Outcome:
    """Return given plans of all hours with the best reservations for them."""
    system = hours[0].system
    used = [used_by(plan, system) for plan in plans]
    return outcome_of(hours, plans, best_reservations(system, offers, used, [hour.hours for hour in hours]))


def _for_peak(hours: tuple[Hour, ...], offers: Offers) -> Outcome | None:
    """Return one plan for the peak of every load, kept for all hours; None if it does not fit with reserves.

    Its replicas also serve all smaller loads, because the shares of a route at its largest rate are valid for
    any smaller rate.
    """
    plan = solve(from_nothing(at_lowest_prices(peak_of(hours))))
    if not plan.complete or plan.lacks_reserve:
        return None
    return _reserved(hours, offers, [plan] * len(hours))


def _document(chosen: Outcome, offers: Offers, simple: dict[str, Outcome], lowest: Sequence[Plan]) -> Horizon:
    hours = chosen.hours
    bounds = [_bound(plan) for plan in lowest]
    bound = None
    if all(each is not None for each in bounds):
        bound = sum((each or 0.0) * hour.hours for each, hour in zip(bounds, hours, strict=True))
    total = chosen.cost + chosen.transition_cost
    policies = [chosen.policy(PLANNED)]
    policies += [simple[name].policy(name) for name in (PEAK, ON_DEMAND, AUTOSCALER) if name in simple]
    return Horizon(
        hours=sum(hour.hours for hour in hours),
        intervals=len(hours),
        reservations=_reservations(chosen, offers),
        bound=bound,
        gap=None if bound is None else max(total - bound, 0.0) / max(total, 1e-9),
        policies=tuple(policies),
        plans=tuple(_hour_plan(chosen, h) for h in range(len(hours))),
        currency=hours[0].system.currency,
    )


def _bound(plan: Plan) -> float | None:
    """Return a lower bound of an hour's cost [cents/h]; None if a level of the plan is unproved."""
    if any(level.bound is None or level.gap for level in plan.levels if level.name.startswith("priority")):
        return None
    return plan.bound


def _reservations(chosen: Outcome, offers: Offers) -> tuple[Reservation, ...]:
    hours, system = chosen.hours, chosen.hours[0].system
    used = [used_by(plan, system) for plan in chosen.plans]
    total, reservations = sum(hour.hours for hour in hours), []
    for name, tiers in offers.by_accelerator.items():
        before = 0
        for tier, units in zip(tiers, chosen.taken[name], strict=True):
            there = [min(max(each[name] - before, 0), units) for each in used]
            busy = sum(n * hour.hours for n, hour in zip(there, hours, strict=True))
            reservations.append(
                Reservation(
                    accelerator=name,
                    cost_cents_per_h=tier.cost_cents_per_h,
                    offered=tier.units,
                    reserved=units,
                    cards=system.accelerators[name].multiplicity,
                    used_share=busy / (units * total) if units else 0.0,
                )
            )
            before += units
    return tuple(reservations)


def _hour_plan(chosen: Outcome, h: int) -> HourPlan:
    hour, plan, system = chosen.hours[h], chosen.plans[h], chosen.hours[0].system
    one = outcome_of((hour,), [plan], chosen.taken)
    load = sum(map(rate_rpm, stated_loads(hour.system)))
    use = []
    for name, count in sorted(used_by(plan, system).items()):
        reserved = min(count, sum(chosen.taken.get(name, ())))
        cards = system.accelerators[name].multiplicity
        use.append(HourlyUse(accelerator=name, reserved=reserved, rented=count - reserved, cards=cards))
    return HourPlan(
        time_s=hour.time_s,
        hours=hour.hours,
        load_rpm=load,
        served_rpm=max(load - sum(one.unserved) / MINUTES_PER_HOUR / hour.hours, 0.0),
        cost_cents_per_h=one.cost / hour.hours,
        started=started(chosen.plans[h - 1], plan) if h else 0,
        use=tuple(use),
        **lacking_fields(plan),
        servers={
            name: tuple(Placement(accelerator=p.accelerator, num_replicas=p.num_replicas) for p in pools)
            for name, pools in plan.allocations.items()
        },
        **hour_fields(plan, hour.system),
    )
