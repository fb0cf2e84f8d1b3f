"""Sentences on a simulation: pools that meet their targets, simulated requests, values with intervals."""

from collections import Counter
from collections.abc import Callable

from optimizer.quantities import counted, quantity, significant
from optimizer.queueing.measures import metric_of
from optimizer.studies.simulation.simulation_document import (
    ConfidenceInterval,
    Simulation,
    TargetCheck,
    Verdict,
)

VERDICTS: dict[Verdict, str] = {"held": "held", "missed": "missed", "close": "too close to call"}
"""Text for the verdict on a target, or on all targets of a pool."""


def simulation_headline(simulation: Simulation) -> str:
    """State how many pools meet their targets, miss one, or are too close to call."""
    counts = Counter(pool.verdict for pool in simulation.pools)
    keep = "keeps its" if counts["held"] == 1 else "keep their"
    said = f"{counts['held']:,} of {counted(len(simulation.pools), 'pool')} {keep} targets"
    if counts["missed"]:
        said += f", {counts['missed']:,} {'misses' if counts['missed'] == 1 else 'miss'}"
    if counts["close"]:
        said += f", {counts['close']} too close to call: simulate more requests to tell"
    return said


def simulation_effort(simulation: Simulation) -> str:
    """State the goodput, and how much was simulated."""
    sent = "of the trace" if simulation.traced else "to one replica of each pool"
    return (
        f"goodput {quantity(simulation.goodput_rps)} of {quantity(simulation.offered_rps)} requests/s, "
        f"{counted(simulation.requests, 'request')} {sent}, seed {simulation.seed}"
    )


number = significant(3)
"""Format of values without a specific number of digits: three significant digits."""


def with_width(figure: ConfidenceInterval, text: Callable[[float], str] = number) -> str:
    """Return a simulated value as text with the half-width of its confidence interval."""
    return text(figure.value) + ("" if figure.half_width is None else f" ±{text(figure.half_width)}")


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
