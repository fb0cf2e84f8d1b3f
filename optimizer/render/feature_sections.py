"""The tables of features, in their order."""

from collections.abc import Iterator, Mapping

from optimizer.features.caches.sections import cache_sections
from optimizer.features.external.sections import rental_sections
from optimizer.features.offline.sections import deadline_sections
from optimizer.features.reserves.sections import reserve_sections
from optimizer.features.versions.sections import version_sections
from optimizer.plan import Plan
from optimizer.render.price_sections import tier_sections, token_section
from optimizer.section import Section

AFTER_CARDS = (
    deadline_sections,
    version_sections,
    cache_sections,
    reserve_sections,
    tier_sections,
    rental_sections,
)
"""Tables that follow those of cards and limits; each is empty without its feature."""


def feature_sections(plan: Plan, costs: Mapping[str, float]) -> Iterator[Section]:
    """Yield the tables of the features of a plan, and the cost of tokens.

    Args:
        plan: the plan.
        costs: cost per million tokens of each server [cents].
    """
    for sections in AFTER_CARDS:
        yield from sections(plan)
    yield token_section(plan, costs)
