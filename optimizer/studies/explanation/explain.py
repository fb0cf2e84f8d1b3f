"""Explains a plan: the placement of each server, the value of cards and targets, and repairs."""

from collections.abc import Mapping
from typing import Any

from optimizer.candidates import SizingMemo
from optimizer.errors import SpecError
from optimizer.features.disaggregation.explained import explain_pools, price_handovers
from optimizer.features.length_pools.streams import owner_of_pool
from optimizer.features.nodes.explained import explain_nodes
from optimizer.features.routes.explained import price_losses
from optimizer.pipeline import solve_in_full
from optimizer.schema import Server
from optimizer.schema.messages import known_name
from optimizer.solvers.deadline import Deadline
from optimizer.spec.arguments import checks_documents
from optimizer.spec.streams import members_of, planned_names
from optimizer.spec.system import System
from optimizer.studies.explanation.answering import Answer, all_answers, expect_questions
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.explanation_document import IGNORES_CAPACITIES, Explanation
from optimizer.studies.explanation.repair import find_repair
from optimizer.studies.explanation.resolving import QuestionBudget
from optimizer.studies.explanation.servers import explain_servers, server_questions
from optimizer.studies.explanation.targets import price_targets, target_questions
from optimizer.studies.explanation.units import UnitQuestion, explain_units, unit_questions
from optimizer.studies.explanation.wishes import wish_costs
from optimizer.studies.overload import LIMIT_S, Overload, overload_of_candidates

QUESTIONS_SHARE = 0.9
"""Fraction of the remaining time for servers, units and targets if a repair is also searched for."""
ALONE_SHARE = 0.97
"""Fraction of the remaining time for servers, units and targets if no repair is needed."""

OVERLOAD_SHARE = 0.2
"""Fraction of the remaining time for finding options that serve more of an overloaded fleet."""


@checks_documents
def explain(system: System, server: str | None = None, **options: object) -> Explanation:
    """Explain the best plan of a system by solving it again with one thing changed at a time.

    The exact solver is always used, because differences of unproved plans are meaningless. The time limit
    covers the entire explanation: up to half of it the plan, the rest the questions.

    Args:
        system: the system to plan.
        server: the server to explain in depth, with every candidate forced once; None: all, and the types.
        options: optimizer options by their Python names, which override those of the document.

    Raises:
        SpecError: the server or an option does not exist, or a value is out of range.
        SolverError: the solver failed, or the plan does not pass verification.
    """
    asked = system.with_options(**options)
    server = None if server is None else _planned_name(asked, server)
    system = asked.with_options(milp_solver=True)
    budget = QuestionBudget(Deadline.after(system.options.time_limit_s))
    of_fleet = server is None
    if of_fleet:
        expect_questions(system)
    memo = SizingMemo()
    solved = solve_in_full(system, deadline=budget.deadline.share(0.5), memo=memo)
    before = BasePlan(solved)
    planned = solved.candidates.system.servers.values()
    servers = [s for s, one in enumerate(planned) if server in {None, one.name, owner_of_pool(one)}]
    own = None if server is None else _names(system.servers[server])
    lacking = {item.server for item in solved.plan.unserved}.union(solved.plan.lacks_reserve)
    needs_repair = bool(lacking if own is None else lacking & own)
    overload = None if solved.plan.complete else _overload(before, budget)
    of_servers = server_questions(before, servers, in_depth=server is not None)
    of_targets = target_questions(before, servers)
    of_units = unit_questions(before) if of_fleet else {}
    part = budget.part(QUESTIONS_SHARE if needs_repair else ALONE_SHARE)
    answers = all_answers(before, {**of_targets, **of_servers, **of_units}, part)
    return Explanation(
        plan=solved.plan,
        server=server,
        notes=_notes(asked),
        servers=explain_servers(before, servers, {key: answers[key] for key in of_servers}),
        **(
            _fleet_parts(system, before, {key: answers[key] for key in of_units}, budget, memo)
            if of_fleet
            else {}
        ),
        disaggregation=tuple(
            one for one in explain_pools(solved.plan, solved.candidates) if server in {None, one.server}
        ),
        overload=overload,
        repair=find_repair(solved.modelled[0], solved.plan, budget) if needs_repair else None,
        targets=price_targets(before, {key: answers[key] for key in of_targets}),
        unanswered=tuple(budget.unanswered),
    )


def _fleet_parts(
    documented: System,
    before: BasePlan,
    of_units: Mapping[UnitQuestion, Answer],
    budget: QuestionBudget,
    memo: SizingMemo,
) -> dict[str, Any]:
    """Return the fields of an explanation that concern the entire fleet, by name.

    `documented` is the system before its pools were chosen.
    """
    system, outcome = before.candidates.system, before.outcome
    types, limits = explain_units(before, of_units, budget)
    wishes = wish_costs(system, outcome, budget, memo)
    losses = price_losses(system, outcome, budget, memo)
    nodes = explain_nodes(before.plan, system, outcome, budget, memo)
    return {
        "types": types,
        "limits": limits,
        "wishes": wishes,
        "losses": losses,
        "nodes": nodes,
        "handovers": price_handovers(documented, outcome, budget, memo),
    }


def _planned_name(system: System, server: str) -> str:
    """Return the name under which a server is planned.

    Raises:
        SpecError: there is no such server, or its versions are planned instead.
    """
    known_name(server, {**system.in_plans, **system.documented}, "server")
    if server in system.in_plans:
        return next(name for name, one in system.servers.items() if server in _names(one))
    names = ", ".join(planned_names(system.documented[server]))
    raise SpecError(f"server {server!r} is split; name a version: {names}")


def _names(server: Server) -> set[str]:
    """Return the names that refer to a planned server: its own, and those of its queue's members."""
    return {server.name, *(member.name for member in members_of(server))}


def _overload(before: BasePlan, budget: QuestionBudget) -> Overload | None:
    """Return options that serve more load than the plan; None if none are found in their part of the time."""
    deadline = Deadline.after(LIMIT_S).sooner(budget.deadline.share(OVERLOAD_SHARE))
    return overload_of_candidates(before.candidates, before.plan, deadline)


def _notes(system: System) -> tuple[str, ...]:
    notes = []
    if not system.options.milp_solver:
        notes.append(
            "the document selects the greedy solver, but the exact plan is explained: only differences "
            "between optimal plans are meaningful"
        )
    if any(server.current.is_running for server in system.servers.values()):
        notes.append(
            "servers run already, so that the plan minimises cost and the price of moving together (the "
            "value); where the two differ in sign, both are given"
        )
    if any(server.pools_by_length is not None for server in system.servers.values()):
        notes.append("what-if plans keep the pools by length of the plan; repairs choose them anew")
    if system.options.unlimited:
        notes.append(IGNORES_CAPACITIES)
    return tuple(notes)
