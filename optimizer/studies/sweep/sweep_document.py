"""Result of a sweep, as a document."""

from math import inf
from operator import not_
from typing import Any, Literal

from pydantic import Field

from optimizer.documents import OutputDocument, is_none
from optimizer.features.disaggregation.uses import SizedWay
from optimizer.money import CENTS, cost_unit, in_cost_unit
from optimizer.plan import Plan
from optimizer.plan.document import Warned
from optimizer.plan.tabular import data_frame
from optimizer.printed import Printed


class Axis(OutputDocument):
    """A parameter that a sweep varies."""

    parameter: str
    """Name of the parameter, such as `load` or `count:H100`."""
    unit: str
    """Unit of the values; empty for factors and fractions."""
    whole: bool
    """Whether the values are integers."""
    values: tuple[float, ...] = Field(strict=False)
    """Values of the grid; only the first and last one if every integer between them is covered."""

    def unit_in(self, currency: str | None) -> str:
        """Return the unit for readers; costs are in the given currency."""
        return cost_unit(currency) if self.unit == CENTS else self.unit

    def value_in(self, value: float, currency: str | None) -> float:
        """Convert a value to the unit for readers; costs are in the given currency."""
        return in_cost_unit(value, currency) if self.unit == CENTS else value


class ServedShare(OutputDocument):
    """Served load of one priority at a point of a sweep."""

    priority: int
    """The priority."""
    share: float | None = None
    """Served fraction of the load of this priority; null without load."""


class UnitsUsed(OutputDocument):
    """Cards of one accelerator type that a plan uses."""

    type: str
    """The accelerator type."""
    used: int
    """Number of cards used by the plan."""


class SweepBinding(OutputDocument):
    """A limit that prevents the service of servers, or the use of cheaper candidates."""

    limit: str
    """Name of the limit, such as `cards`; `candidates` for servers that no accelerator can serve at any
    cost.
    """
    item: str
    """Limited item, such as an accelerator type; empty for `candidates`."""
    unserved: int
    """Number of servers that the limit prevents from being served in full."""
    dearer: int
    """Number of servers that the limit prevents from using a cheaper candidate."""


class RoleCosts(OutputDocument):
    """Costs of both ways to serve a server that can have prefill and decode pools, regardless of limits."""

    server: str
    """Name of the server."""
    aggregated_cents_per_h: float | None = None
    """Cost of replicas that do both [cents/h]; null if they cannot meet the targets."""
    disaggregated_cents_per_h: float | None = None
    """Cost of prefill and decode pools [cents/h]; null if they cannot meet the targets."""

    @property
    def ratio(self) -> float | None:
        """Cost of pools divided by that of replicas that do both; 0 or infinite if only one way is possible.

        None if neither is.
        """
        one, two = self.aggregated_cents_per_h, self.disaggregated_cents_per_h
        if one is None:
            return None if two is None else 0.0
        return inf if two is None else two / one if one else 1.0

    @classmethod
    def of_plan(cls, plan: Plan) -> "tuple[RoleCosts, ...]":
        """Return the costs that a plan states."""
        return tuple(
            cls(
                server=name,
                aggregated_cents_per_h=_cost_of(use.aggregated_alternative),
                disaggregated_cents_per_h=_cost_of(use.disaggregated_alternative),
            )
            for name, use in plan.disaggregation.items()
        )


def _cost_of(way: SizedWay | None) -> float | None:
    return None if way is None else way.cost_cents_per_h


class SweepPoint(OutputDocument):
    """The plan at one combination of parameter values."""

    values: tuple[float, ...] = Field(strict=False)
    """Value of each parameter."""
    until: float | None = Field(None, exclude_if=is_none)
    """Last value of an integer parameter up to which service and value stay the same; absent on grids."""
    status: Literal["optimal", "feasible", "heuristic"]
    """Proof of the plan. `optimal`: proved within the gap; `feasible`: stopped early; `heuristic`: without
    proof.
    """
    total_cost_cents_per_h: float
    """Cost of the plan [cents/h]."""
    value_cents_per_h: float
    """Transition cost of the plan [cents/h]."""
    bound_cents_per_h: float | None = None
    """Proved lower bound of the transition cost [cents/h]; null if nothing is proved."""
    unserved: int
    """Number of servers that are not served in full."""
    reserves: int = Field(0, exclude_if=not_)
    """Number of servers that require a reserve; absent if none does."""
    lacks_reserve: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Servers that lack the reserve they require; absent if there are none."""
    served: tuple[ServedShare, ...] = Field(strict=False)
    """Served fraction of each priority's load, the highest priority first."""
    units: tuple[UnitsUsed, ...] = Field(strict=False)
    """Cards in use, by accelerator type."""
    binds: tuple[SweepBinding, ...] = Field(strict=False)
    """Limits that prevent the service of servers, or the use of cheaper candidates."""
    levels: tuple[float, ...] = Field(strict=False)
    """Value of each lexicographic objective, in order."""
    disaggregation: tuple[RoleCosts, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of servers that can have prefill and decode pools; absent if there are none."""


class SafeFleet(OutputDocument):
    """The cheapest fleet found that meets all targets on a fraction of the days."""

    days_share: float
    """Required fraction of days on which all servers meet their targets."""
    load_factor: float | None = None
    """Factor on all loads for which the fleet is planned; null if no plan up to the largest factor suffices.
    """
    total_cost_cents_per_h: float | None = None
    """Cost of the fleet [cents/h]; null if there is none."""
    safe_days_share: float | None = None
    """Fraction of the sampled days on which all servers meet their targets."""
    safe_server_days_share: float | None = None
    """Fraction of server-days and route-days on which targets are met."""
    replanned_cents_per_h: float
    """Cost that suffices on this fraction of the days if each day is planned separately [cents/h]."""


class SampledDays(OutputDocument):
    """Cost of meeting all targets on sampled days."""

    samples: int
    """Number of sampled days."""
    load_cv: float | None = None
    """Coefficient of variation of each server's daily load; null for days from a trace."""
    seed: int
    """Seed of the random draw of days."""
    days_in_full_share: float
    """Fraction of days on which a plan for exactly that day serves all servers in full."""
    most_safe_days_share: float
    """Largest fraction of days on which any fleet found meets all targets."""
    fleets: tuple[SafeFleet, ...] = Field(strict=False)
    """One fleet for each fraction of days; it runs on all days."""


class Sweep(Printed, Warned):
    """Result of a sweep: plans over ranges of parameters."""

    axes: tuple[Axis, ...] = Field(strict=False)
    """Parameters that are varied."""
    points: tuple[SweepPoint, ...] = Field(strict=False)
    """Plans in the order of the values; the last parameter varies fastest."""
    exact: bool
    """Whether every plan is proved optimal, so that ranges of integer values are exact."""
    days: SampledDays | None = Field(None, exclude_if=is_none)
    """Cost of meeting all targets on sampled days; absent if not requested."""
    currency: str | None = Field(None, exclude_if=is_none)
    """Currency of the system's prices; absent if prices state none."""

    @property
    def servers_with_roles(self) -> list[tuple[int, str]]:
        """Servers whose ratio of `RoleCosts` differs between the points, with their places in the points."""
        if len({len(point.disaggregation) for point in self.points}) > 1:
            return []  # idle servers have none
        costs = zip(*(point.disaggregation for point in self.points), strict=True)
        mine = [(place, some) for place, some in enumerate(costs) if len({one.ratio for one in some}) > 1]
        return [(place, some[0].server) for place, some in mine]

    @property
    def requires_reserve(self) -> bool:
        """Whether any server requires a reserve."""
        return any(point.reserves for point in self.points)

    def to_dataframe(self) -> Any:
        """Return the points as a pandas data frame: parameters by name, then the fields of `SweepPoint`.

        Costs are in cents/h.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        names = [axis.parameter for axis in self.axes]
        fields = [name for name in SweepPoint.model_fields if name != "values"]
        rows = [
            {**dict(zip(names, point.values, strict=True)), **{name: getattr(point, name) for name in fields}}
            for point in self.points
        ]
        return data_frame(rows, (*names, *fields))
