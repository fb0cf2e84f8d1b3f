"""What features add to the hours of a horizon; pydantic orders fields by the last base first."""

from typing import Any

from optimizer.errors import AnalysisError
from optimizer.features.disaggregation.streams import check_without_roles
from optimizer.features.length_pools.streams import check_without_lengths
from optimizer.features.nodes.feature import NODES
from optimizer.features.routes.hourly import HourlyRoutesField, hourly_routes
from optimizer.features.shared_cards.hourly import HourlyCardsField, hourly_cards
from optimizer.plan import Plan
from optimizer.spec.system import System


class HourFeatureFields(HourlyRoutesField, HourlyCardsField):
    """All fields of features in the plan of an hour."""


def check_hours(system: System) -> None:
    """Check that hours can be planned for the features of a system.

    Raises:
        SpecError: a server has pools by length.
        AnalysisError: the system has nodes.
    """
    check_without_lengths(system.servers.values(), "horizon")
    check_without_roles(system.servers.values(), "horizon")
    if NODES.name in system.features:
        text = "nodes: reserving and renting nodes by the hour is not planned; plan each load with solve"
        raise AnalysisError(text)


def hour_fields(plan: Plan, system: System) -> dict[str, Any]:
    """Return the fields of features for the plan of an hour, given the system with the loads of that hour."""
    return {"shared_cards": hourly_cards(plan), "routes": hourly_routes(plan, system)}
