"""Comparisons: the sum of the parts is the whole, and every figure is what two solves say."""

import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, random_document, running, server, service_class, shuffled, system

from optimizer import Comparison, Plan, SpecError, System, compare, load_system, scale_loads, solve
from optimizer.plan.sums import total

CENTS = 1e-9
"""Relative tolerance of sums of costs."""


def costs(rows: Iterable[Any]) -> list[float]:
    return [row.difference.cost_cents_per_h for row in rows]


@pytest.fixture(scope="module")
def large(specs: Path) -> Comparison:
    return compare(load_system(specs / "large"))


# --- sums ------------------------------------------------------------------------------------------------


def test_scarcity_costs_what_two_solves_say(large: Comparison, specs: Path) -> None:
    """Source: issues 2 and 3 of this project, 26,300.5 limited and 18,205 unlimited."""
    sample = load_system(specs / "large")
    unlimited, limited = solve(sample, unlimited=True), solve(sample, unlimited=False)
    assert large.kind == "scarcity"
    assert (large.first.plan, large.second.plan) == (unlimited, limited)
    assert large.total.difference.cost_cents_per_h == 26300.5 - 18205
    assert large.relative_cost_difference == pytest.approx(8095.5 / 18205)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plans"), [("large", "single"), ("small", "mixed")])
def test_the_parts_of_the_samples_add_up_exactly(name: str, plans: str, specs: Path) -> None:
    """Their prices are multiples of a quarter of a cent: every sum is exact in binary."""
    found = compare(load_system(specs / name), heterogeneous=plans == "mixed")
    whole = Fraction(found.total.difference.cost_cents_per_h)
    for rows in (found.servers, found.classes, found.class_models):
        assert sum(map(Fraction, costs(rows))) == whole
    assert sum(Fraction(row.cost_difference_cents_per_h or 0) for row in found.types) == whole
    totals = [Fraction(side.plan.total_cost_cents_per_h) for side in (found.first, found.second)]
    assert whole == totals[1] - totals[0]


def test_equal_costs_differ_by_zero_and_parts_add_up() -> None:
    """At 120.84 cents/h, 2 + 3 replicas and 4 + 1 cost the same, but not to the last bit of binary sums."""
    price, moved = 120.84, (2, 3, 4, 1)
    one = system(
        [server(name, rate=0, replicas=count) for name, count in zip("abcd", moved, strict=True)],
        [accelerator("A", cost=price)],
    )
    two = system(
        [server(name, rate=0, replicas=count) for name, count in zip("abcd", moved[::-1], strict=True)],
        [accelerator("A", cost=price)],
    )
    found = compare(one, two)
    assert not found.same
    assert str(found.total.difference.cost_cents_per_h) == "0.0"  # and not -0.0
    assert str(found.relative_cost_difference) == "0.0"
    parts = [Decimal(str(cost)) for cost in costs(found.servers)]
    assert parts == [Decimal(n) * Decimal("120.84") for n in (-1, 1, -1, 1)]
    for side in ("first", "second"):
        rows = [Decimal(str(getattr(row, side).cost_cents_per_h)) for row in found.servers]
        assert sum(rows) == Decimal(str(getattr(found.total, side).cost_cents_per_h)) == Decimal("1208.4")


@pytest.mark.parametrize("values", [(0.1, 0.2, -0.3), (1e15, 0.01, -1e15, -0.01), (1e-199, -1e-199), ()])
def test_sums_that_cancel_are_nothing(values: tuple[float, ...]) -> None:
    assert str(total(values)) == "0.0"


def test_the_cost_of_a_type_is_that_of_its_accelerators(large: Comparison, specs: Path) -> None:
    """Units × price, from the documents."""
    sample = load_system(specs / "large")
    for row in large.types:
        for use, plan in ((row.first, large.first.plan), (row.second, large.second.plan)):
            cost = sum(
                Fraction(sample.accelerators[pool.accelerator].cost_cents_per_h)
                * sample.profiles[sample.servers[name].model, pool.accelerator].acc_count
                * pool.num_replicas
                for name, pools in plan.allocations.items()
                for pool in pools
                if sample.accelerators[pool.accelerator].type == row.type
            )
            assert use is not None
            assert use.cost_cents_per_h == cost


def test_means_weight_servers_of_a_class_and_model_by_requests() -> None:
    """Two servers of one class and model at different rates: eq. 55 of docs/math.md, by hand."""
    source = system(
        [server("a", rate=60.0), server("b", rate=300.0), server("c", rate=10.0, service="free")],
        [accelerator("A")],
        {"A": 9},
        classes=[service_class("gold"), service_class("free", 2)],
    )
    found = compare(source)
    gold = next(row for row in found.class_models if row.service_class == "gold")
    assert gold.first is not None
    pools = [pool for name in "ab" for pool in found.first.plan.allocations[name]]
    for name in ("itl_ms", "ttft_ms", "wait_ms"):
        mean = sum(Fraction(p.arrival_rate_rpm) * Fraction(getattr(p, name)) for p in pools) / 360
        assert getattr(gold.first, name) == pytest.approx(float(mean), rel=1e-12)
    assert (gold.first.servers, gold.first.arrival_rate_rpm, gold.first.in_tokens) == (2, 360.0, 16.0)
    assert gold.model == "m"
    assert [row.service_class for row in found.classes] == ["gold", "free"]


def test_token_lengths_are_weighted_by_arrivals() -> None:
    long = {"load": {"arrivalRate": 30.0, "avgInTokens": 100, "avgOutTokens": 64}}
    source = system([server("a", rate=90.0), server("b") | {"currentAlloc": long}], [accelerator("A")])
    total = compare(source, scale_loads(source, 0.0), transition=True).total
    busy, idle = total.first, total.second
    assert busy is not None
    assert idle is not None
    assert busy.in_tokens == (90 * 16 + 30 * 100) / 120
    assert idle.in_tokens == (16 + 100) / 2
    assert (idle.arrival_rate_rpm, idle.itl_ms, idle.ttft_ms, idle.wait_ms) == (0.0, None, None, None)
    assert total.difference.itl_ms is None


# --- what changes ----------------------------------------------------------------------------------------


def changes(found: Comparison) -> dict[str, str]:
    return {row.server: row.change for row in found.servers}


def test_every_kind_of_change_is_named() -> None:
    before = system(
        [
            server("batch", replicas=2),
            server("gone", replicas=1),
            server("moved", replicas=1, accelerators=["A"]),
            server("same", replicas=1),
            server("scaled", replicas=1),
            server("started", rate=0.0),
            server("stopped", replicas=1),
        ],
        [accelerator("A"), accelerator("B")],
    )
    after = system(
        [
            server("batch", replicas=2, maxBatchSize=4),
            server("moved", replicas=1, accelerators=["B"]),
            server("new", replicas=1),
            server("same", replicas=1),
            server("scaled", replicas=3),
            server("started", replicas=1),
            server("stopped", rate=0.0),
        ],
        [accelerator("A"), accelerator("B")],
    )
    found = compare(before, after)
    assert changes(found) == {
        "batch": "batch",
        "gone": "removed",
        "moved": "moved",
        "new": "added",
        "same": "none",
        "scaled": "scaled",
        "started": "started",
        "stopped": "stopped",
    }
    assert [row.server for row in found.changed("moved", "scaled")] == ["moved", "scaled"]
    assert len(found.changed()) == 7
    gone, new = (row for row in found.servers if row.change in {"removed", "added"})
    assert (gone.first is None, gone.second is None) == (False, True)
    assert (new.first is None, new.second is None) == (True, False)
    assert (gone.difference.cost_cents_per_h, new.difference.cost_cents_per_h) == (-10.0, 10.0)
    assert not found.equal_service
    assert "different servers" in found.notes[0]


def test_mixed_servers_move_if_their_accelerators_differ() -> None:
    source = system([server("a", replicas=3)], [accelerator("A", cost=1), accelerator("B", cost=2)], {"A": 2})
    source = load_system(
        source.to_spec().model_dump(mode="json", by_alias=True)
        | {"count": [{"type": "A", "count": 2}, {"type": "B", "count": 9}]}
    )
    found = compare(source, second_options={"heterogeneous": True, "milp_solver": True})
    assert found.kind == "options"
    assert changes(found) == {"a": "moved"}
    row = found.servers[0]
    assert row.second is not None
    assert [(x.accelerator, x.num_replicas) for x in row.second.accelerators] == [("A", 2), ("B", 1)]
    assert row.second.cost_cents_per_h == 4


def test_a_server_that_the_limits_leave_out_is_newly_unserved() -> None:
    servers = [server("a", rate=120.0, replicas=2), server("b", rate=60.0, replicas=2)]
    found = compare(system(servers, [accelerator("A")], {"A": 3}))
    assert {row.server: row.service for row in found.servers} == {"a": "same", "b": "newly_unserved"}
    assert changes(found)["b"] == "stopped"
    assert not found.equal_service
    assert "not every server is served to the same fraction" in found.notes[0]


def test_more_units_serve_a_server_newly() -> None:
    scarce = system([server("a", replicas=2)], [accelerator("A")], {"A": 1})
    plenty = system([server("a", replicas=2)], [accelerator("A")], {"A": 2})
    found = compare(scarce, plenty)
    assert found.kind == "plans"
    assert [(row.service, row.change) for row in found.servers] == [("newly_served", "started")]
    assert (found.total.difference.cost_cents_per_h, found.relative_cost_difference) == (20.0, None)


def test_a_server_counts_in_its_class_of_each_side() -> None:
    classes = [service_class("gold", 1), service_class("free", 2)]
    sides = [
        system([server("a", replicas=1, service=name)], [accelerator("A")], classes=classes)
        for name in ("gold", "free")
    ]
    found = compare(*sides)
    assert {(row.service_class, row.difference.cost_cents_per_h) for row in found.classes} == {
        ("gold", -10.0),
        ("free", 10.0),
    }
    assert found.servers[0].service_class == "free"
    assert found.total.difference.cost_cents_per_h == 0


# --- equal sides -----------------------------------------------------------------------------------------


def test_a_system_beside_itself_is_the_same(specs: Path) -> None:
    sample = load_system(specs / "small")
    found = compare(sample, sample)
    assert found.same
    assert found.equal_service
    assert not found.changed()
    assert found.total.difference.cost_cents_per_h == 0
    assert all(row.first == row.second for row in found.servers)


def test_slack_limits_make_no_difference() -> None:
    found = compare(system([server("a", replicas=2)], [accelerator("A")], {"A": 2}))
    assert found.kind == "scarcity"
    assert found.same
    assert [row.first and row.first.limit for row in found.types] == [None]
    assert [row.second and row.second.limit for row in found.types] == [2]


def test_another_load_is_a_difference_even_where_nothing_else_is() -> None:
    source = system([server("a", rate=60.0, replicas=1)], [accelerator("A")])
    found = compare(source, source.with_load("a", in_tokens=17))
    assert not found.same


@pytest.mark.parametrize(
    ("units", "rate"), [({"A": 0}, 60.0), ({"A": 9}, 0.0)], ids=["nothing fits", "everything is idle"]
)
def test_nothing_that_runs_is_compared_like_anything_else(units: dict[str, int], rate: float) -> None:
    source = system([server("a", rate=rate), server("b", rate=rate)], [accelerator("A")], units)
    found = compare(source, scale_loads(source, 2.0), transition=True)
    assert found.total.difference.cost_cents_per_h == 0
    assert found.relative_cost_difference is None


# --- load changes ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_a_load_change_the_first_plan_is_what_runs(specs: Path) -> None:
    """Eq. 31 of docs/math.md, added up from the rows; the penalty of the sample is the default, 0.1."""
    sample = load_system(specs / "large")
    changed = scale_loads(sample, 1.1)
    found, first = compare(sample, changed, transition=True), solve(sample)
    assert found.first.plan == first
    assert found.second.plan == solve(first.applied_to(changed))
    assert (found.kind, found.first.label, found.second.label) == ("load_change", "before", "after")
    value = Fraction(0)
    for row in found.servers:
        assert row.first is not None
        assert row.second is not None
        old, new = Fraction(row.first.cost_cents_per_h), Fraction(row.second.cost_cents_per_h)
        value += new - old + (Fraction(1, 10) * (old + new) if row.change == "moved" else 0)
    assert found.changed("moved")
    assert found.transition_value_cents_per_h == pytest.approx(float(value), rel=1e-9)


@pytest.mark.slow
def test_all_pools_of_a_mixed_plan_run_before_a_load_change(specs: Path) -> None:
    sample = load_system(specs / "small").with_options(heterogeneous=True)
    changed = scale_loads(sample, 1.05)
    found, first = compare(sample, changed, transition=True), solve(sample)
    assert found.second.plan == solve(first.applied_to(changed))
    assert found.second.plan is not None
    several = [item for item in found.second.plan.changes if len(item.before) > 1]
    assert several
    for item in several:
        pools = first.allocations[item.server]
        assert [(one.accelerator, one.num_replicas) for one in item.before] == [
            (pool.accelerator, pool.num_replicas) for pool in pools
        ]


# --- plans -----------------------------------------------------------------------------------------------


def two_plans() -> tuple[System, Plan, Plan]:
    source = system([server("a", replicas=2), server("b", replicas=1)], [accelerator("A")], {"A": 3})
    return source, solve(source), solve(scale_loads(source, 20.0))


def test_plans_are_compared_without_what_only_a_system_says() -> None:
    _, first, second = two_plans()
    found = compare(first, second)
    assert found.kind == "plans"
    assert (found.first.options, found.second.options) == (None, None)
    assert [(row.service_class, row.priority) for row in found.classes] == [(None, None)]
    assert found.total.first is not None
    assert (found.total.first.arrival_rate_rpm, found.total.first.in_tokens) == (None, None)
    assert [row.cost_difference_cents_per_h for row in found.types] == [None]
    assert sum(costs(found.servers)) == sum(costs(found.classes)) == found.total.difference.cost_cents_per_h
    assert sum("is a finished plan" in note for note in found.notes) == 2


def test_a_plan_equals_its_system_and_uses_its_catalogue() -> None:
    source, plan, _ = two_plans()
    for found in (compare(plan, source), compare(source, plan)):
        assert found.same
        assert [row.service_class for row in found.classes] == ["gold"]
        assert [row.cost_difference_cents_per_h for row in found.types] == [0.0]


def test_unknown_accelerators_have_no_cost_by_type() -> None:
    _, plan, _ = two_plans()
    found = compare(plan, system([server("a", replicas=2)], [accelerator("B")]))
    assert [(row.type, row.cost_difference_cents_per_h) for row in found.types] == [("A", None), ("B", 20.0)]


def test_what_cannot_be_compared_is_refused() -> None:
    source, plan, _ = two_plans()
    with pytest.raises(SpecError, match="a plan alone cannot be compared"):
        compare(plan)
    with pytest.raises(SpecError, match="an existing plan cannot start from another plan"):
        compare(source, plan, transition=True)
    elsewhere = system([server("a", replicas=1)], [accelerator("B")])
    with pytest.raises(SpecError, match="accelerator 'A' of the first plan does not exist"):
        compare(source, elsewhere, transition=True)
    with pytest.raises(SpecError, match=r"optimizer\.colour: unknown option"):
        compare(source, second_options={"colour": 1})


# --- options, notes, bytes -------------------------------------------------------------------------------


def test_second_options_apply_to_the_second_side_only(specs: Path) -> None:
    sample = load_system(specs / "small")
    found = compare(sample, second_options={"heterogeneous": True}, unlimited=True)
    assert found.kind == "options"
    assert found.first.plan == solve(sample, unlimited=True)
    assert found.second.plan == solve(sample, unlimited=True, heterogeneous=True)
    assert found.second.options is not None
    assert (found.second.options.unlimited, found.second.options.heterogeneous) == (True, True)


def test_limits_on_one_side_are_always_scarcity(specs: Path) -> None:
    sample = load_system(specs / "small").with_options(unlimited=True)
    assert compare(sample, second_options={"unlimited": False}).kind == "scarcity"
    other = {"unlimited": False, "milp_solver": False}
    found = compare(sample, second_options=other)
    assert found.kind == "options"
    assert found.notes == ("changed was found by a heuristic, without proof",)


def test_running_replicas_that_hide_scarcity_are_noted() -> None:
    """On B the server stays for the penalty, limited or not; the units of A would be there."""
    source = system(
        [server("a", replicas=1, current=running("B", 1))],
        [accelerator("A", cost=10), accelerator("B", cost=11)],
        {"A": 1, "B": 1},
    )
    found = compare(source)
    assert found.same
    assert any("what runs now" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_shuffled_input_gives_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    source = random_document(rng)

    def texts(one: System) -> list[str]:
        return [compare(one).to_json(), compare(one, scale_loads(one, 2.0), transition=True).to_json()]

    assert texts(load_system(source)) == texts(load_system(shuffled(source, rng)))


ways: list[Callable[[System], Comparison]] = [
    compare,
    lambda source: compare(source, scale_loads(source, 0.5), transition=True),
    lambda source: compare(source, solve(source, unlimited=True)),
]


@pytest.mark.slow
@pytest.mark.parametrize("way", ways)
def test_the_document_survives_json(way: Callable[[System], Comparison], specs: Path) -> None:
    found = way(load_system(specs / "small"))
    assert Comparison.model_validate_json(found.to_json()) == found


def test_a_service_target_in_tokens_carries_more_than_arrives() -> None:
    """A throughput target is the load: 128 tokens/s of 64-token answers are 120 requests/min."""
    source = load_system(
        document([server("a", rate=60.0)], [accelerator("A")], classes=[service_class("gold", tps=128)])
    )
    total = compare(source).total.first
    assert total is not None
    assert (total.arrival_rate_rpm, total.carried_rate_rpm) == (60.0, 120.0)
