"""The tables of features, in their order; each is empty without its feature."""

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
    """Yield the tables of servers that are served together, which follow those of allocations.

    Args:
        plan: the plan.
        queues: members of shared queues.
        system: the system, to show more of shared cards.
    """
    yield from shared_queue_sections([*queues])
    yield from shared_card_sections(plan, system)
    yield from route_sections(plan)


def feature_sections(plan: Plan, costs: Mapping[str, float]) -> Iterator[Section]:
    """Yield the other tables of the features of a plan, and the cost of tokens.

    Args:
        plan: the plan.
        costs: cost per million tokens of each server [cents].
    """
    yield from deadline_sections(plan)
    yield from version_sections(plan)
    yield from cache_sections(plan)
    yield from reserve_sections(plan)
    yield from tier_sections(plan)
    yield from rental_sections(plan)
    yield token_section(plan, costs)
