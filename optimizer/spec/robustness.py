"""Checks of reserves, limits and prices across documents."""

from collections.abc import Iterator, Mapping, Sequence

from optimizer.errors import SpecError
from optimizer.kinds.table import KINDS, kind_of_profile
from optimizer.quantities import precise
from optimizer.spec.files import Part
from optimizer.spec.names import Entry, Finding, Index, Names
from optimizer.spec.schema import Accelerator, ModelProfile, OptimizerOptions

ENDLESS = 1e9
"""Size of the last price step, larger than any plan."""


def server_problems(entry: Entry, profiles: Sequence[ModelProfile], accelerators: Names) -> Iterator[Finding]:
    """Yield preferred accelerators that do not exist, and external services for requests without tokens."""
    part, at, server = entry
    for i, name in enumerate(server.preferred or ()):
        yield from accelerators.missing(part, (*at, "preferred", i), name)
    if server.external is not None and any(kind_of_profile(profile) is not KINDS[0] for profile in profiles):
        text = f"{server.model!r} has no tokens, and a service is paid by tokens; remove it"
        yield Finding(part, (*at, "external"), text)


def option_problems(parts: Sequence[Part], index: Index) -> Iterator[Finding]:
    """Yield options that no plan can satisfy, or that need missing data."""
    accelerators = {name: entry.item for name, entry in index.accelerators.items()}
    used = {accelerator for _, accelerator in index.profiles}
    used -= {name for name, (part, at, _) in index.accelerators.items() if at in part.repaired}
    for part in parts:
        if "optimizer" in part.spec.model_fields_set:
            for key, text in _problems(part.spec.optimizer, accelerators, used):
                yield Finding(part, ("optimizer", key), text)


def check_options(options: OptimizerOptions, accelerators: Mapping[str, Accelerator], used: set[str]) -> None:
    """Check the options against the accelerators used in profiles.

    Raises:
        SpecError: no plan can satisfy the options, or they need missing data.
    """
    for key, text in _problems(options, accelerators, used):
        raise SpecError(f"optimizer.{key}: {text}")


def committed_cents_per_h(accelerators: Mapping[str, Accelerator]) -> float:
    """Return the cost of all commitments, used or not [cents/h]."""
    tiers = (tier for item in accelerators.values() for tier in item.tiers if tier.committed)
    return float(sum(tier.units * tier.cost_cents_per_h for tier in tiers))


def tiered(accelerators: Mapping[str, Accelerator]) -> list[Accelerator]:
    """Return the accelerators that have price tiers, in their order."""
    return [item for item in accelerators.values() if item.tiers]


def steps_of(item: Accelerator) -> list[tuple[float, float]]:
    """Return size and price of each price step, the cheapest first; committed units have price 0."""
    steps = [(0.0 if tier.committed else tier.cost_cents_per_h, float(tier.units)) for tier in item.tiers]
    steps.sort(key=lambda step: step[0])
    return [(size, float(price)) for price, size in [*steps, (item.cost_cents_per_h, ENDLESS)]]


def _problems(
    options: OptimizerOptions, accelerators: Mapping[str, Accelerator], used: set[str]
) -> Iterator[tuple[str, str]]:
    budget, committed = options.budget_cents_per_h, committed_cents_per_h(accelerators)
    if budget is not None and committed > budget:
        paid = f"{precise(budget)} cents/h do not pay for the commitments of {precise(committed)} cents/h"
        yield "budget", f"{paid}; raise the budget or take committed tiers out"
    if options.max_power_w is None:
        return
    for name in sorted(used & accelerators.keys()):
        if not accelerators[name].power.full_w:
            yield "maxPower", f"the power of {name} is not known; give it power.idle and power.full"
            return
