"""Collects the tables of all features in their display order; a feature that is not used has none."""

from collections.abc import Iterable, Iterator, Mapping

from optimizer.features.caches.sections import cache_sections
from optimizer.features.external.sections import rental_sections
from optimizer.features.offline.sections import deadline_sections
from optimizer.features.reserves.sections import reserve_sections
from optimizer.features.routes.sections import loss_sections, replayed_route_sections, route_sections
from optimizer.features.shared_cards.sections import shared_card_sections
from optimizer.features.shared_queues.sections import shared_queue_sections
from optimizer.features.versions.sections import version_sections
from optimizer.plan import Plan
from optimizer.render.money import Money
from optimizer.render.price_sections import tier_sections, token_section
from optimizer.section import Section
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import Explanation
from optimizer.studies.overview import QueueRow
from optimizer.studies.replay.replay_document import Replay


def explained_sections(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the tables that features add to explanations."""
    yield from loss_sections(explanation, money)


def replayed_sections(found: Replay) -> Iterator[Section]:
    """Yield the tables that features add to replays."""
    yield from replayed_route_sections(found)


def group_sections(plan: Plan, queues: Iterable[QueueRow], system: System | None = None) -> Iterator[Section]:
    """Yield the tables of servers that are served together; they follow the tables of allocations.

    Args:
        plan: the plan.
        queues: rows of the tables of shared queues.
        system: the system, for more details on shared cards; None if unknown.
    """
    yield from shared_queue_sections([*queues])
    yield from shared_card_sections(plan, system)
    yield from route_sections(plan)


def feature_sections(plan: Plan, costs: Mapping[str, float]) -> Iterator[Section]:
    """Yield the other tables of a plan's features, and the table of the cost of tokens.

    Args:
        plan: the plan.
        costs: cost per million tokens [cents], by server.
    """
    yield from deadline_sections(plan)
    yield from version_sections(plan)
    yield from cache_sections(plan)
    yield from reserve_sections(plan)
    yield from tier_sections(plan)
    yield from rental_sections(plan)
    yield token_section(plan, costs)
