"""Costs of reserves, limits and prices: the plan without one of them, minus the plan.

Each option is removed from the entire system, which is then sized and planned again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from optimizer.candidates import SizingMemo, find_candidates
from optimizer.limits.table import LIMITS
from optimizer.schema import OptimizerOptions
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import WishCost
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.resolving import QuestionBudget, effect, solved


def _of_servers(system: System, **changes: Any) -> System:
    servers = {name: item.model_copy(update=changes) for name, item in system.servers.items()}
    return replace(system, servers=MappingProxyType(servers))


def _of_accelerators(system: System, **changes: Any) -> System:
    changed = {name: item.model_copy(update=changes) for name, item in system.accelerators.items()}
    return replace(system, accelerators=MappingProxyType(changed))


def _of_options(system: System, **changes: Any) -> System:
    return replace(system, options=system.options.model_copy(update=changes))


def _without_headroom(system: System) -> System:
    classes = {
        name: item.model_copy(update={"headroom_share": None})
        for name, item in system.service_classes.items()
    }
    of_all = _of_servers(_of_options(system, headroom_share=0.0), headroom_share=None)
    return replace(of_all, service_classes=MappingProxyType(classes))


def _without_amount(option: str) -> Callable[[System], System]:
    (field,) = (name for name, one in OptimizerOptions.model_fields.items() if one.alias == option)
    return lambda system: _of_options(system, **{field: None})


WITHOUT: Mapping[str, Callable[[System], System]] = {
    "headroomShare": _without_headroom,
    "rollBack": lambda system: _of_servers(system, roll_back=False),
    "spareReplicas": lambda system: _of_servers(system, spare_replicas=0),
    "availabilityTarget": lambda system: _of_servers(system, availability_target=None),
    "rollout": lambda system: _of_options(system, rollout=None),
    "safety": lambda system: _of_options(system, safety="none"),
    **{limit.option: _without_amount(limit.option) for limit in LIMITS if limit.option},
    "preferred": lambda system: _of_servers(system, preferred=None),
    "tiers": lambda system: _of_accelerators(system, tiers=()),
    "external": lambda system: _of_servers(system, external=None),
}
"""Functions that remove an option from a system, by the option's name in documents."""


def wish_costs(
    system: System, before: PlanOutcome, budget: QuestionBudget, memo: SizingMemo
) -> tuple[WishCost, ...]:
    """Return the cost of each option that a system uses, as far as time permits.

    Raises:
        SolverError: the solver failed.
    """
    asked = {name: without(system) for name, without in WITHOUT.items()}
    used = {name: other for name, other in asked.items() if other.to_spec() != system.to_spec()}
    if not used:
        return ()
    found = budget.ask(
        lambda other, due: solved(find_candidates(other, memo), due), used, lambda name: f"what {name} costs"
    )
    return tuple(
        WishCost(option=name, without=effect(before, after, system)) for name, after in found.items()
    )
