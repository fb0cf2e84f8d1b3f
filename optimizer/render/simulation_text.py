"""Sentences on a simulation: pools that meet their targets, simulated requests, values with intervals."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from optimizer.quantities import counted, counted_of, quantity, share_text, significant
from optimizer.queueing.measures import metric_of
from optimizer.studies.simulation.simulation_document import (
    ConfidenceInterval,
    SimulatedPool,
    Simulation,
    TargetCheck,
    Verdict,
)
from optimizer.text import capitalised

if TYPE_CHECKING:
    from collections.abc import Callable

VERDICTS: dict[Verdict, str] = {"held": "held", "missed": "missed", "close": "too close to call"}
"""Text for the verdict on a target, or on all targets of a pool."""


FAR_FACTOR = 1.5
"""Smallest ratio of a simulated to a planned latency that the headline names."""


def simulation_headline(simulation: Simulation, seen: str = "simulated") -> str:
    """State in how many pools targets hold, which share of requests is within limits, and the largest error.

    A mean can hold while many requests exceed its limit, so both are stated.

    Args:
        seen: `simulated`, or `measured` for measurements in the form of a simulation.
    """
    counts = Counter(pool.verdict for pool in simulation.pools)
    said = f"targets hold in {counted_of(counts['held'], len(simulation.pools), 'pool')}"
    if counts["missed"]:
        said += f", {counts['missed']:,} {'misses' if counts['missed'] == 1 else 'miss'} one"
    if counts["close"]:
        said += f", {counts['close']} too close to call (ask for more requests)"
    if simulation.offered_rps:
        share = simulation.goodput_rps / simulation.offered_rps
        said += f"; {share_text(share)} of the requests are within the limits"
    farthest = max(simulation.pools, key=off_plan, default=None)
    if farthest is not None and off_plan(farthest) >= FAR_FACTOR:
        check = max(farthest.targets, key=check_off_plan)
        predicted = check.predicted
        assert predicted is not None
        who = "simulation" if seen == "simulated" else "measurement"
        said += (
            f"; {farthest.server}: plan says {check.target} {target_text(check, predicted)}, "
            f"{who} {target_text(check, check.simulated.value)}"
        )
    return capitalised(said)


def check_off_plan(check: TargetCheck) -> float:
    """Return the simulated value of a target divided by the planned one; 0 if it was not predicted."""
    return check.simulated.value / check.predicted if check.predicted else 0.0


def off_plan(pool: SimulatedPool) -> float:
    """Return the largest ratio of a simulated to a planned value over the targets of a pool."""
    return max(map(check_off_plan, pool.targets), default=0.0)


def simulation_effort(simulation: Simulation) -> str:
    """State the goodput, and how much was simulated."""
    sent = "of the trace" if simulation.traced else "to one replica of each pool"
    return (
        f"goodput {quantity(simulation.goodput_rps)} of {quantity(simulation.offered_rps)} requests/s, "
        f"{counted(simulation.requests, 'request')} {sent}, seed {simulation.seed}"
    )


number = significant(3)
"""Format of values without a specific number of digits: three significant digits."""


UNSETTLED_SHARE = 0.3
"""Half-width of a confidence interval, as a fraction of the value, above which a run has not settled, so that
its interval is not reliable.
"""
UNSETTLED = "±?"
"""Text instead of the interval of a run that has not settled."""


def with_width(figure: ConfidenceInterval, text: Callable[[float], str] = number) -> str:
    """Return a simulated value as text with the half-width of its confidence interval, if it has settled."""
    if figure.half_width is None:
        return text(figure.value)
    if figure.half_width > UNSETTLED_SHARE * abs(figure.value):
        return f"{text(figure.value)} {UNSETTLED}"
    return f"{text(figure.value)} ±{text(figure.half_width)}"


def missed_text(check: TargetCheck) -> str:
    """Describe a missed target: the simulated value, the target, and the excess."""
    over = "" if check.limit <= 0 else f" ({check.simulated.value / check.limit - 1:+.1%})"
    simulated, limit = target_text(check, check.simulated), target_text(check, check.limit)
    return f"{check.target} {simulated}, target {limit}{over}"


def target_text(check: TargetCheck, value: ConfidenceInterval | float, digits: int = 3) -> str:
    """Return a value as text in the unit of a target, with its confidence interval if it has one.

    Args:
        digits: number of significant digits.
    """
    metric = metric_of(check.target)
    scale, unit = (1.0, "") if metric is None else (metric.scale, f" {metric.unit}")
    if not isinstance(value, ConfidenceInterval):
        return quantity(value * scale, digits) + unit
    return with_width(value, lambda share: quantity(share * scale, digits)) + unit
