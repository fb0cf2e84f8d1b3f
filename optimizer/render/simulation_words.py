"""A simulation in words: how many pools keep their targets, what was run, a figure with its interval."""

from collections import Counter
from collections.abc import Callable

from optimizer.quantities import counted, quantity, significant
from optimizer.studies.simulation.document import Interval, Simulation, Verdict

VERDICTS: dict[Verdict, str] = {"held": "held", "missed": "missed", "close": "too close to call"}
"""What is said of a target, or of all targets of a pool."""
SHORT_VERDICTS: dict[Verdict, str] = {"held": "held", "missed": "missed", "close": "too close"}
"""The same where there is little room."""


def simulation_headline(found: Simulation) -> str:
    """Say how many pools keep their targets, how many miss one, and how many are too close to call."""
    counts = Counter(pool.verdict for pool in found.pools)
    keep = "keeps its" if counts["held"] == 1 else "keep their"
    said = f"{counts['held']:,} of {counted(len(found.pools), 'pool')} {keep} targets"
    if counts["missed"]:
        said += f", {counts['missed']:,} {'misses' if counts['missed'] == 1 else 'miss'}"
    if counts["close"]:
        said += f", {counts['close']} too close to call: simulate more requests to tell"
    return said


def simulation_effort(found: Simulation) -> str:
    """Say what was run, and the goodput that came of it."""
    return (
        f"goodput {quantity(found.goodput_rps)} of {quantity(found.offered_rps)} requests/s, "
        f"{counted(found.requests, 'request')} to one replica of each pool, seed {found.seed}"
    )


number = significant(3)
"""A number where nothing says how many digits it has."""


def with_width(figure: Interval, text: Callable[[float], str] = number) -> str:
    """Return a figure with the half-width of its interval, each as a function writes it."""
    return text(figure.value) + ("" if figure.half_width is None else f" ±{text(figure.half_width)}")
