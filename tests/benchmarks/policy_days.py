"""The policy of the loop against other rules: ``python tests/benchmarks/policy_days.py [SEEDS [PART…]]``.

For each kind of day of ``service_days.py`` whose name has one of the parts, it prints the means over the
seeds of replica-hours, slow requests and changes of the policy, of the former loop and of perfect foresight;
and whether some headroom of the policy has at most the hours and the slow requests of each other rule.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from former_loop import FormerLoop
from scaling_rules import HEADROOMS, REACTIVE, Maker, foresight, policy
from service_days import KINDS, Kind, day_of, simulated

SAME_HOURS, SAME_SLOW = 0.01, 0.0005
"""Relative difference of replica-hours to the former loop, and difference of shares of slow requests to any
rule, that count as equal.
"""
Outcomes = tuple[float, float, float]
"""Mean replica-hours, share of slow requests, and number of changes."""
OTHERS: Mapping[str, Maker] = {
    **{name: lambda form, _, of=of: of(form.slots) for name, of in REACTIVE.items()},  # type: ignore[misc]
    "plan for completions": lambda form, _: FormerLoop(form, counts_completions=True),
    "former loop": lambda form, _: FormerLoop(form),
    "former loop, 30 % headroom": lambda form, _: FormerLoop(form, headroom=0.3),
}
"""Rules that the policy replaces or is compared with, by name."""


def outcomes(kind: Kind, seeds: Sequence[int], made: Maker) -> Outcomes:
    """Return the mean replica-hours, share of slow requests and number of changes of a rule."""
    days = [day_of(kind, seed) for seed in seeds]
    found = [simulated(kind.form, day, made(kind.form, day), kind.pods) for day in days]
    hours, slow, _, changes, _ = np.array(found).mean(axis=0).tolist()
    return hours, slow, changes


def is_as_good(mine: Outcomes, former: Outcomes) -> bool:
    """Return whether a rule has at most the hours and the slow requests of another one, but for rounding."""
    return mine[0] <= (1 + SAME_HOURS) * former[0] and mine[1] <= former[1] + SAME_SLOW


def beyond_reach(
    kind: Kind, seeds: Sequence[int], mine: Outcomes, others: Mapping[str, Outcomes]
) -> Iterator[str]:
    """Yield the rules that no headroom of the policy equals, with the figures.

    Args:
        kind: the kind of day.
        seeds: the seeds.
        mine: outcomes of the policy without headroom.
        others: outcomes of the rules.
    """
    found, headrooms = [mine], list(HEADROOMS[1:])
    for name, (hours, slow, _) in sorted(others.items(), key=lambda item: item[1]):
        # A larger headroom is tried only while the last one needs fewer hours than the rule.
        while headrooms and found[-1][0] <= hours and best_of(found, hours) > slow + SAME_SLOW:
            share = headrooms.pop(0)
            found.append(outcomes(kind, seeds, with_headroom(share)))
        best = best_of(found, hours)
        if best > slow + SAME_SLOW:
            yield f"{name}: {hours:.2f} h, {slow:.2%}" + (f"; the policy {best:.2%}" if best < 1 else "")


def with_headroom(share: float) -> Maker:
    """Return the policy with a headroom."""
    return lambda form, _: policy(form, headroom=share)


def best_of(found: Sequence[Outcomes], hours: float) -> float:
    """Return the least share of slow requests with at most some replica-hours; 1 if there is none."""
    return min((one[1] for one in found if one[0] <= hours), default=1.0)


def main(seeds: int, parts: Sequence[str]) -> None:
    """Print the comparison."""
    seen, missed, count = range(1, seeds + 1), 0, 0
    print("| day | policy | former loop | perfect foresight | as good | rules beyond reach |")
    print("|---|---|---|---|---|---|")
    for name, kind in KINDS.items():
        if parts and not any(part in name for part in parts):
            continue
        mine, ideal = (outcomes(kind, seen, made) for made in (with_headroom(0.0), foresight))
        others = {other: outcomes(kind, seen, made) for other, made in OTHERS.items()}
        former = others["former loop"]
        beyond = list(beyond_reach(kind, seen, mine, others))
        texts = [
            f"{hours:.2f} h, {slow:.2%}, {changes:.0f}" for hours, slow, changes in (mine, former, ideal)
        ]
        verdict = "yes" if is_as_good(mine, former) else "no"
        print(f"| {name} | {' | '.join(texts)} | {verdict} | {'; '.join(beyond) or 'none'} |", flush=True)
        missed, count = missed + len(beyond), count + len(others)
    print(f"\nSome headroom is as good in {count - missed} of {count} pairs of rule and day.")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:])
