"""Explains a plan: placement of each server, value of cards and targets, and repairs."""

from optimizer.candidates import Candidates, SizingMemo
from optimizer.errors import SpecError
from optimizer.pipeline import solve_in_full
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.spec.messages import known_name
from optimizer.spec.schema import Server
from optimizer.spec.shared_queues import members_of
from optimizer.spec.system import System
from optimizer.spec.versions import versions_text
from optimizer.studies.explanation.answering import answered, expect_questions
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.document import Explanation
from optimizer.studies.explanation.repair import find_repair
from optimizer.studies.explanation.resolving import QuestionBudget
from optimizer.studies.explanation.routes import price_losses
from optimizer.studies.explanation.servers import explain_servers, server_questions, settled
from optimizer.studies.explanation.targets import price_targets, target_questions
from optimizer.studies.explanation.units import explain_units, unit_questions
from optimizer.studies.explanation.wishes import wish_costs
from optimizer.studies.overload import LIMIT_S, Overload, overload_of

QUESTIONS_SHARE = 0.9
"""Share of the remaining time for servers, units and targets if a repair is searched for as well."""
ALONE_SHARE = 0.97
"""Share of the remaining time without a repair."""

OVERLOAD_SHARE = 0.2
"""Fraction of the remaining time for options that serve more of an overloaded fleet."""


def explain(system: System, server: str | None = None, **options: object) -> Explanation:
    """Explain the best plan of a system by solving it again with one thing changed at a time.

    The exact solver is always used, because differences of unproved plans are meaningless. The time limit
    covers the entire explanation: up to half of it the plan, the rest the questions. Unproved effects have an
    interval; unanswered repairs are listed.

    Args:
        system: the system to plan.
        server: the server to explain in depth, with every candidate forced once; None explains all servers
            and the accelerator types.
        options: optimizer options by their Python names (``unlimited=True``), which override the document's.

    Raises:
        SpecError: the server or an option does not exist, or a value is out of range.
        SolverError: the solver failed, or the plan does not pass verification.
    """
    system = system.with_options(**options)
    if server is not None:
        known_name(server, system.named, "server")
        server = _planned_name(system, server)
    notes = _notes(system)
    system = system.with_options(milp_solver=True)
    budget = QuestionBudget(Deadline.after(system.options.time_limit_s))
    if server is None:
        expect_questions(system)
    memo = SizingMemo()
    found = solve_in_full(system, deadline=budget.deadline.share(0.5), memo=memo)
    plan, candidates = found.plan, found.candidates
    names = list(system.servers)
    servers = list(range(len(names))) if server is None else [names.index(server)]
    own = None if server is None else _names(system.servers[server])
    needs_repair = any(own is None or item.server in own for item in plan.unserved)
    before = BasePlan(candidates, plan)
    overload = _overload(candidates, plan, budget) if needs_repair else None
    of_servers = server_questions(before, servers, in_depth=server is not None)
    of_units = unit_questions(before) if server is None else {}
    of_targets = target_questions(before, servers)
    asked = budget.part(QUESTIONS_SHARE if needs_repair else ALONE_SHARE)
    answers = answered(before, {**of_targets, **of_servers, **of_units}, asked)
    alternatives = settled(before, {key: answers[key] for key in of_servers}, budget.part(1 / 3))
    units = {key: answers[key] for key in of_units}
    types, limits = explain_units(before, units, budget) if server is None else ((), ())
    wishes = wish_costs(system, before.outcome, budget, memo) if server is None else ()
    losses = price_losses(system, before.outcome, budget, memo) if server is None else ()
    repair = find_repair(candidates, plan, budget) if needs_repair else None
    return Explanation(
        plan=plan,
        server=server,
        notes=notes,
        servers=explain_servers(before, servers, alternatives),
        types=types,
        limits=limits,
        wishes=wishes,
        losses=losses,
        overload=overload,
        repair=repair,
        targets=price_targets(before, {key: answers[key] for key in of_targets}),
        unanswered=tuple(budget.unanswered),
    )


def _planned_name(system: System, server: str) -> str:
    """Return the name under which a server is planned.

    Raises:
        SpecError: the server is split, so its versions are planned instead.
    """
    if server in system.servers or not system.named[server].split:
        return next(name for name, one in system.servers.items() if server in _names(one))
    raise SpecError(f"server {server!r} is split; name a version: {versions_text(system.named[server])}")


def _names(server: Server) -> set[str]:
    """Return the names that refer to a planned server: its own, and those of its queue's members."""
    return {server.name, *(member.name for member in members_of(server))}


def _overload(candidates: Candidates, plan: Plan, budget: QuestionBudget) -> Overload | None:
    """Return options that serve more load than a plan, if found within a fraction of the time."""
    return overload_of(
        candidates, plan, Deadline.after(LIMIT_S).sooner(budget.deadline.share(OVERLOAD_SHARE))
    )


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
    if system.options.unlimited:
        notes.append("the plan ignores the capacities, so that cards have no price")
    return tuple(notes)
