"""A plan is carried out only on the system that it was made for."""

import pytest
from builders import accelerator, server, system

from optimizer import SpecError, System, solve


def of_another_name() -> System:
    return system([server("b", replicas=1)], [accelerator("A")])


def test_a_plan_of_other_servers_is_not_applied() -> None:
    plan = solve(system([server("a", replicas=1)], [accelerator("A")]))
    text = "^servers.a: in the plan, but not in the system; the plan was made for another system$"
    for use in (plan.applied_to, plan.reference_answer):
        with pytest.raises(SpecError, match=text):
            use(of_another_name())
    with pytest.raises(SpecError, match=r"^servers\.b: not in the plan"):
        plan.allocation_of(of_another_name().servers["b"])


def test_a_plan_that_lacks_a_server_is_not_applied() -> None:
    """Nothing is known of what it runs: it would look as if it were to be stopped."""
    plan = solve(system([server("a", replicas=1)], [accelerator("A")]))
    more = system([server("a", replicas=1), server("b", replicas=1)], [accelerator("A")])
    for use in (plan.applied_to, plan.reference_answer):
        with pytest.raises(SpecError, match=r"^servers\.b: in the system, but not in the plan; "):
            use(more)


def test_a_plan_on_accelerators_that_do_not_exist_is_not_applied() -> None:
    plan = solve(system([server("a", replicas=1)], [accelerator("A")]))
    other = system([server("a", replicas=1)], [accelerator("B")])
    for use in (plan.applied_to, plan.reference_answer):
        with pytest.raises(SpecError, match=r"^allocations\.a: accelerator 'A' is not in the system; "):
            use(other)


def test_applying_a_plan_stops_unserved_servers() -> None:
    source = system([server("served", 60), server("unserved", 60, replicas=7)], [accelerator("A")], {"A": 3})
    plan = solve(source)
    applied = plan.applied_to(source).servers
    assert not applied["unserved"].current.is_running
    assert plan.allocation_of(source.servers["unserved"]) == applied["unserved"].current
    assert applied["unserved"].current.load == source.servers["unserved"].current.load
