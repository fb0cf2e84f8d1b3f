"""Search for plans that the oracles share: enumeration of ways to run each part, and level by level in CBC.

A way to run a part of a system uses amounts of what all parts share, and adds to every level. Parts are
joined one after the other, keeping the best levels for each use: levels add up, so nothing better is lost.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import product
from typing import Any

import pulp

Values = tuple[Fraction, ...]
Way = tuple[Values, Values]
"""Amounts of what is shared, and values of the levels."""


def joined(
    groups: Iterable[Iterable[Way]], sizes: tuple[int, int], fits: Callable[[Values], bool]
) -> dict[Values, Values]:
    """Return the best levels for each use of what is shared.

    Args:
        groups: the ways to run each part.
        sizes: the numbers of shared amounts and of levels.
        fits: whether amounts are within all limits.
    """
    best: dict[Values, Values] = {(Fraction(0),) * sizes[0]: (Fraction(0),) * sizes[1]}
    for group in groups:
        found: dict[Values, Values] = {}
        for (used, levels), (more, adds) in product(best.items(), list(group)):
            total = tuple(a + b for a, b in zip(used, more, strict=True))
            if fits(total):
                reached = tuple(a + b for a, b in zip(levels, adds, strict=True))
                found[total] = min(reached, found.get(total, reached))
        best = found
    return best


def within(limits: Sequence[float]) -> Callable[[Values], bool]:
    """Return whether amounts are within limits."""
    return lambda used: all(amount <= limit for amount, limit in zip(used, limits, strict=True))


def rounded(values: Iterable[float]) -> Values:
    """Return values to nine digits, so that sums in another order are the same."""
    return tuple(Fraction(round(value * 10**9), 10**9) for value in values)


def service_levels(ranks: Iterable[str]) -> list[str]:
    return [f"{rank}: unserved {what}" for rank in ranks for what in ("rate", "servers")]


def transition_value(costs: Mapping[str, Any], here: str | Iterable[str], old: Any, penalty: Any) -> Any:
    """Return Σ cost - old + penalty x (cost on other accelerators + old if no pool stays) (eq. 33)."""
    places = {here} if isinstance(here, str) else {*here}
    moved = sum(cost for accelerator, cost in costs.items() if accelerator not in places)
    return sum(costs.values()) - old + penalty * (moved + (0 if places & costs.keys() else old))


# --- CBC -------------------------------------------------------------------------------------------------


@contextmanager
def without_announcements() -> Iterator[None]:
    """Ignore the names of PuLP 4, which PuLP 3 announces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def minimised(
    model: Any,
    objectives: Mapping[str, Any],
    slack: Callable[[str, float], float],
) -> dict[str, float]:
    """Return the least value of each objective, with those before within their slack.

    CBC runs without ``threads``: with one thread it sometimes waits ten seconds for it. Its preprocessing
    calls some feasible levels infeasible; it is left out then.
    """
    found: dict[str, float] = {}
    for name, objective in objectives.items():
        model.setObjective(objective)
        model.solve(pulp.PULP_CBC_CMD(msg=False, gapRel=0))
        if pulp.LpStatus[model.status] != "Optimal":
            options = {"presolve": False, "options": ["preprocess off"]}
            model.solve(pulp.PULP_CBC_CMD(msg=False, gapRel=0, **options))
        assert pulp.LpStatus[model.status] == "Optimal", name
        found[name] = float(pulp.value(objective) or 0.0)
        model += objective <= found[name] + slack(name, found[name])
    return found


def relative(share: float) -> Callable[[str, float], float]:
    """Return a slack of a share of values above one, and of half a unit for counts."""

    def slack(name: str, value: float) -> float:
        whole = name == "changes" or name.endswith("servers")
        return 0.5 if whole else share * max(1.0, abs(value))

    return slack
