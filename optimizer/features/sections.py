"""Collects the tables of all features in their display order; a feature that is not used has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.features.caches.sections import cache_section
from optimizer.features.disaggregation.sections import role_section, role_value_sections
from optimizer.features.external.sections import rental_section
from optimizer.features.length_pools.sections import length_section
from optimizer.features.nodes.sections import node_sections, node_value_sections
from optimizer.features.offline.sections import deadline_section
from optimizer.features.reserves.sections import reserve_sections
from optimizer.features.routes.sections import loss_section, replayed_route_section, route_sections
from optimizer.features.shared_cards.sections import shared_card_sections
from optimizer.features.shared_queues.sections import shared_queue_section
from optimizer.features.versions.sections import version_section
from optimizer.render.price_sections import tier_sections, token_section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from optimizer.plan import Plan
    from optimizer.render.money import Money
    from optimizer.section import Section
    from optimizer.spec.system import System
    from optimizer.studies.explanation.explanation_document import Explanation
    from optimizer.studies.overview import QueueRow
    from optimizer.studies.replay.replay_document import Replay


def explained_sections(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the tables that features add to explanations."""
    yield from _filled(loss_section(explanation, money), *node_value_sections(explanation, money))
    yield from role_value_sections(explanation, money)


def replayed_sections(replay: Replay) -> Iterator[Section]:
    """Yield the tables that features add to replays."""
    yield from _filled(replayed_route_section(replay))


def group_sections(plan: Plan, queues: Iterable[QueueRow], system: System | None = None) -> Iterator[Section]:
    """Yield the tables of servers that are served together; they follow the tables of allocations.

    Args:
        queues: rows of the tables of shared queues.
        system: the system, for more details on shared cards; None if unknown.
    """
    yield from _filled(shared_queue_section(queues))
    yield from shared_card_sections(plan, system)
    yield from _filled(*route_sections(plan), length_section(plan), role_section(plan))


def feature_sections(plan: Plan, costs: Mapping[str, float]) -> Iterator[Section]:
    """Yield the other tables of a plan's features, and the table of the cost of tokens.

    Args:
        costs: cost per million tokens [cents], by server.
    """
    yield from _filled(deadline_section(plan), version_section(plan), cache_section(plan))
    yield from reserve_sections(plan)
    yield from node_sections(plan)
    yield from tier_sections(plan)
    yield from _filled(rental_section(plan))
    yield token_section(plan, costs)


def _filled(*sections: Section) -> Iterator[Section]:
    """Yield the sections whose tables have rows."""
    yield from (section for section in sections if section.rows)
