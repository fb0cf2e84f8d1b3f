"""An explanation on the screen: what a planner reads, on fleets of every kind."""

from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, profile, running, server, service_class
from shown_text import row, text_of
from slow_cases import mostly_slow

from optimizer import Explanation, System, explain, load_system, scale_loads
from optimizer.generate import generate_system
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.explanation_text import factor_text
from optimizer.studies.explanation.explanation_document import EffectRange, LimitExplanation

SPECS = Path(__file__).resolve().parents[2] / "specs"


def told(explanation: Explanation, *, wide: bool = True) -> str:
    return text_of(explanation_sections(explanation), wide=wide)


def two_servers(units: int = 20, **options: Any) -> System:
    """Return two servers of different priority on a cheap and on a dear accelerator."""
    source = document(
        [server("a", 900.0), server("b", 500.0, service="tin")],
        [accelerator("A0"), accelerator("A1", cost=25.0)],
        {"A0": units, "A1": 2},
        classes=[service_class("gold", 1, itl=12), service_class("tin", 2, ttft=200)],
        **options,
    )
    return load_system(source)


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (1.2, "1.2"),
        (80.18 / 80, "1.002"),
        (1.00004, "1.00004"),
        (1 + 1e-12, "1"),
        (2.8749, "2.87"),
        (999.4, "999"),
        (999.6, "1,000"),
        (4730.4, "4,730"),
        (1.5e9, "1.5e+09"),
    ],
)
def test_a_factor_is_visibly_above_one_and_written_out(factor: float, text: str) -> None:
    assert factor_text(factor) == text


def test_overview_names_pool_limit_headroom_alternative() -> None:
    text = told(explain(two_servers()))
    assert "All 2 servers served in full" in text
    words = ["b", "2", "×", "A0", "TTFT", "target", "346.2", "69.2%", "2", "×", "A1", "+30.00"]
    assert row(text, "b") == words
    assert "with the next-best alternative\n  a: a 100% -> 0% (-900 req/min)" in text
    assert "Every number is the difference between two plans that are proved optimal." in text


def test_a_limit_shows_its_step_in_its_unit() -> None:
    explanation = explain(two_servers())
    limit = LimitExplanation(
        limit="power",
        unit="W",
        item="room",
        amount=30.0,
        used=10.0,
        left=20.0,
        step=100.0,
        shadow_price_cents_per_h=0.25,
    )
    words = row(told(explanation.model_copy(update={"limits": (limit,)})), "power")
    assert words[:7] == ["power", "room", "10", "30", "20", "100", "W"]
    assert "none to take" in " ".join(words)
    assert words[-1] == "25.00"  # the shadow price of a step


def test_a_step_of_the_budget_is_in_the_unit_of_costs() -> None:
    source = document(
        [server("a", 900.0), server("b", 500.0)],
        [accelerator("A0") | {"cost": "0.40 USD/h"}],
        {"A0": 9},
        budget="0.50 USD/h",
    )
    text = told(explain(load_system(source)))
    words = row(text, "budget")
    assert words[:8] == ["budget", "total", "cost", "0.4", "0.5", "0.1", "0.8", "USD/h"]
    assert "+0.8 USD/h (budget): a 0% -> 100% (+900 req/min)" in text


def test_units_that_are_short_show_who_gains_and_what_repairs() -> None:
    text = told(explain(two_servers(3)))
    assert "a (0% served): 4 replicas on A1 take 4 cards of A1; 2 of 2 are left" in text
    assert "+1 A0: a 0% -> 100% (+900 req/min)" in text
    assert "cheapest plan: +3 A0; the plan then costs 60.00 cents/h (+40.00)" in text
    assert "one type: +1 A0; the plan then costs 90.00 cents/h (+70.00)" in text
    assert "one target: gold/m ITL 12 -> 12." in text


@pytest.mark.parametrize(
    ("units", "policy", "share"), [(1, "PriorityExhaustive", "50% -> 100%"), (1, "None", "0% -> 100%")]
)
def test_an_idle_server_gains_a_share_and_no_load(units: int, policy: str, share: str) -> None:
    source = document(
        [server("a", 0.0, replicas=2)], [accelerator("A0")], {"A0": units}, saturationPolicy=policy
    )
    found = explain(load_system(source))
    (kind,) = found.types
    assert kind.one_more is not None
    assert kind.one_more.serves == "same"
    assert [item.load_change_rpm for item in kind.one_more.service] == [0.0]
    text = told(found)
    assert "serves as much" in text
    assert f"  +1 A0: a {share} of its replicas (idle)\n" in text
    assert "+0 req/min" not in text


def test_a_fewer_unit_serving_more_is_explained_by_idle_servers() -> None:
    """The idle one of priority 1 holds all three cards; with two it holds none, and one serves the other."""
    source = document(
        [server("idle", 0.0, replicas=3), server("busy", 60.0, service="tin")],
        [accelerator("A")],
        {"A": 3},
        classes=[service_class("gold"), service_class("tin", 2)],
    )
    found = explain(load_system(source))
    (kind,) = found.types
    assert kind.one_fewer is not None
    idle = [(item.server, item.is_idle) for item in kind.one_fewer.service]
    assert idle == [("idle", True), ("busy", False)]
    assert kind.one_fewer.serves == "more"
    text = " ".join(told(found).split())
    assert "One card fewer can serve more: an idle server then lacks its minimum number of replicas" in text
    assert "-1 A: idle 100% -> 0% of its replicas (idle), busy 0% -> 100% (+60 req/min)" in text
    assert "saturation policy" not in text


def test_a_price_of_units_that_are_left_is_put_down_to_splitting() -> None:
    found = explain(two_servers())
    first, *rest = found.types
    assert "Divisible replicas would" not in told(found)
    odd = first.model_copy(update={"shadow_price_cents_per_h": 1.0, "left": 2})
    assert "Divisible replicas would also use up types" in told(
        found.model_copy(update={"types": (odd, *rest)})
    )


def test_the_first_line_says_that_the_solver_stopped_early() -> None:
    found = explain(two_servers())
    assert "found in time" not in told(found)
    stopped = found.plan.model_copy(update={"status": "feasible", "gap": 0.25})
    text = told(found.model_copy(update={"plan": stopped}))
    assert (
        "All 2 servers served in full. The best plan found in time with the cards that exist, at most "
        "25.00% above the optimum."
    ) in " ".join(text.split())


def test_alternatives_serving_more_are_explained_by_the_policy() -> None:
    """The small one takes a cheap B, and the large one gets one card; on A it leaves two."""
    source = document(
        [server("large", 1500.0), server("small", 60.0)],
        [accelerator("A"), accelerator("B", cost=8.0)],
        {"A": 1, "B": 2},
        saturationPolicy="PriorityExhaustive",
    )
    found = explain(load_system(source))
    assert [
        item.server for item in found.servers if item.next_best and item.next_best.effect.serves == "more"
    ]
    text = " ".join(told(found).split())
    assert "A next-best alternative can serve more: capacity that the fully served servers leave" in text
    assert "idle" not in text
    assert "can serve more" not in told(explain(two_servers()))


def test_unknown_alternatives_change_no_service() -> None:
    """No other accelerator exists: a change of service if it is proved, otherwise only the search result."""
    source = document([server("a", 60.0)], [accelerator("A")], {"A": 9})
    found = explain(load_system(source))
    (item,) = found.servers
    assert item.next_best is not None
    assert (item.next_best.pools, item.next_best.effect.interval) == ((), None)
    assert "Changes of service with the next-best alternative" in told(found)
    interval = EffectRange(level="value", unit="cents/h", low=-1.0, high=0.0)
    effect = item.next_best.effect.model_copy(update={"interval": interval})
    alternative = item.next_best.model_copy(update={"effect": effect})
    unproved = item.model_copy(update={"next_best": alternative})
    text = told(found.model_copy(update={"servers": (unproved,)}))
    assert "none found" in text
    assert "Changes of service" not in text


def test_replicas_completing_a_server_count_as_more_service() -> None:
    """Two cards carry all of its load, but not its least three replicas."""
    policy = "PriorityExhaustive"
    source = document([server("a", 60.0, replicas=3)], [accelerator("A")], {"A": 2}, saturationPolicy=policy)
    found = explain(load_system(source))
    (kind,) = found.types
    assert kind.one_more is not None
    (change,) = kind.one_more.service
    assert kind.one_more.serves == "more"
    assert (change.in_full_before, change.in_full_after, change.load_change_rpm) == (False, True, 0.0)
    assert "+1 A: a now with its minimum number of replicas" in told(found)


def test_one_server_in_depth_shows_candidates_and_rejected_pairs() -> None:
    source = document(
        [server("a", 900.0)],
        [accelerator("A0"), accelerator("A1", cost=25.0), accelerator("B")],
        {"A0": 20, "A1": 20, "B": 3},
        classes=[service_class("gold", itl=12)],
        models=[profile("m", "A0"), profile("m", "A1"), profile("m", "B", alpha=20.0)],
    )
    text = told(explain(load_system(source), "a"))
    assert "a: m for class gold, priority 1, 900 requests/min" in text
    assert "limited by: ITL target." in " ".join(text.split())
    assert "Next-best alternative: 4 × A1; the plan would cost 60.00 cents/h more." in text
    assert "(* runs there)" in text
    assert "A0 *" in text
    assert row(text, "B")[:4] == ["B", "x", "1.71", "slo_unattainable"]


def test_where_moving_has_a_price_cost_and_value_are_both_given() -> None:
    source = document(
        [server("a", replicas=1, current=running("A1", 1), accelerators=["A0", "A1"])],
        [accelerator("A0", cost=10.0), accelerator("A1", cost=10.5)],
        {"A0": 2, "A1": 2},
    )
    text = told(explain(load_system(source)))
    assert "Note: servers run already" in text
    assert "-0.50 (value +1.55)" in text  # 10 - 10.5 and 0.1 x (10 + 10.5) for the move


@pytest.mark.slow
def test_mixed_pools_stand_one_below_the_other() -> None:
    source = two_servers(1).with_options(heterogeneous=True).with_capacity({"A0": 3, "A1": 2})
    found = explain(source)
    assert max(len(item.pools) for item in found.servers) == 2
    lines = told(found).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(" a "))
    assert lines[first + 1].split()[:3] == ["1", "×", "A1"]


EMPTY = {
    "nothing fits": two_servers(0).with_capacity({"A1": 0}),
    "no target can be met": two_servers()
    .with_target("gold", "m", itl_ms=1.0)
    .with_target("tin", "m", ttft_ms=0.5),
    "everything is idle": scale_loads(two_servers(), 0.0),
    "a type has no units": two_servers().with_capacity({"A0": 0}),
}


@pytest.mark.parametrize("case", EMPTY)
@pytest.mark.parametrize(
    "options",
    mostly_slow([{"unlimited": True}, {"saturation_policy": "RoundRobin"}, {}, {"heterogeneous": True}], 1),
)
def test_every_odd_fleet_has_an_answer_in_words(case: str, options: dict[str, Any]) -> None:
    source = EMPTY[case]
    text = told(explain(source, **options))
    assert "servers served in full" in text
    if case == "nothing fits" and not options.get("unlimited"):
        assert "What would serve everything" in text
    for name in source.servers:
        assert f"{name}: m for class" in told(explain(source, name, **options))


@pytest.mark.parametrize("spec", ["small", "long-prompts.yaml"])
@pytest.mark.parametrize("name", [None, "first"])
def test_an_explanation_fits_a_terminal_of_eighty_columns(spec: str, name: str | None) -> None:
    source = load_system(SPECS / spec)
    text = told(explain(source, name and next(iter(source.servers))), wide=False)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


@pytest.mark.slow
def test_explanation_of_a_scarce_fleet_fits_80_columns() -> None:
    text = told(explain(generate_system(8, 8, 4, seed=1, tightness=3.0)), wide=False)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "fewest cards" in text


def test_less_service_says_how_much_of_which_priority() -> None:
    source = document(
        [server("b", 500.0), server("c", 450.0, service="tin", accelerators=["A1"])],
        [accelerator("A0"), accelerator("A1", cost=25.0)],
        {"A0": 1, "A1": 1},
        classes=[service_class("gold", 1), service_class("tin", 2)],
    )
    text = told(explain(load_system(source), "b"))
    line = "  A1: serves less of priority 2 (-450 req/min): c 100% -> 0% (-450 req/min)"
    assert f"Changes of service if it runs there\n{line}\n" in text
    assert "the plan would serve less of priority 2 (-450 req/min)" in " ".join(text.split())


@pytest.mark.slow
def test_a_relaxed_target_says_how_much_more_is_served() -> None:
    source = document(
        [server("a", 900.0)], [accelerator("A0")], {"A0": 3}, classes=[service_class("gold", 1, itl=12)]
    )
    text = told(explain(load_system(source), "a"))
    line = "  gold/m ITL: serves more of priority 1 (+900 req/min): a 0% -> 100% (+900 req/min)"
    assert f"Changes of service with a relaxed target\n{line}\n" in text
