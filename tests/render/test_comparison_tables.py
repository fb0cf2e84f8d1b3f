"""Tables of comparisons: a sentence first, every figure in its place, narrow enough for a terminal."""

import random
from pathlib import Path

import numpy as np
import pytest
from builders import accelerator, random_document, server, service_class, system
from shown_text import row, text_of
from slow_cases import seeds

from optimizer import Comparison, System, compare, load_system, scale_loads, solve, vary_loads
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.comparison_text import headline


def told(found: Comparison, *, wide: bool = True) -> str:
    return text_of(comparison_sections(found), wide=wide)


@pytest.fixture(scope="module")
def scarcity(specs: Path) -> Comparison:
    return compare(load_system(specs / "large"))


@pytest.fixture(scope="module")
def moved_load(specs: Path) -> Comparison:
    sample = load_system(specs / "large")
    return compare(sample, vary_loads(sample, np.random.default_rng(7)), transition=True)


@pytest.mark.slow
def test_no_line_is_wider_than_a_terminal_of_eighty_columns(
    scarcity: Comparison, moved_load: Comparison, specs: Path
) -> None:
    mixed = compare(load_system(specs / "small"), second_options={"heterogeneous": True})
    for found in (scarcity, moved_load, mixed):
        assert max(map(len, told(found, wide=False).splitlines())) <= 80


def test_the_first_line_says_what_it_comes_to(scarcity: Comparison, moved_load: Comparison) -> None:
    assert headline(scarcity) == (
        "The limits on cards cost 8,095.50 cents/h (+44.47%): unlimited 18,205.00, limited 26,300.50."
    )
    assert told(scarcity).splitlines()[0].rstrip() == headline(scarcity)
    before, after = (side.plan.total_cost_cents_per_h for side in (moved_load.first, moved_load.second))
    assert headline(moved_load).startswith(f"The load change costs {after - before:,.2f} cents/h (+")


def test_every_class_and_server_and_type_has_its_row(scarcity: Comparison) -> None:
    text = told(scarcity)
    assert row(text, "Premium") == ["Premium", "1", "9", "3,067.00", "4,435.00", "+1,368.00", "+44.6%"]
    assert row(text, "all") == ["all", "27", "18,205.00", "26,300.50", "+8,095.50", "+44.5%"]
    server_row = " ".join(row(text, "Premium-granite_20b"))
    assert server_row == "Premium-granite_20b 2 × MI300X 7 × G2 moved +31.00"
    assert row(text, "MI300X")[:5] == ["MI300X", "144", "273", "144", "-129"]
    for item in scarcity.servers:
        assert text.count(f" {item.server} ") == 2


@pytest.mark.slow
def test_loads_are_shown_only_if_they_change(scarcity: Comparison, specs: Path) -> None:
    sample = load_system(specs / "small")
    text = told(compare(sample, sample.with_load("Premium-llama_70b", out_tokens=900), transition=True))
    loads = text.split("\nLoad", 1)[1].split("Cost by", 1)[0]
    assert "1,024 → 900" in loads
    assert "Free-llama_70b" not in loads
    assert f"… {len(sample.servers) - 1} unchanged" in loads
    assert "unchanged" not in told(compare(sample, scale_loads(sample, 1.5), transition=True))
    assert "\nLoad" not in told(scarcity)


def single(rate: float, units: int, **options: object) -> System:
    return system(
        [server("a", rate=rate, replicas=2 if rate else 0)], [accelerator("A")], {"A": units}, **options
    )


def test_sides_that_agree_are_told_in_words() -> None:
    assert headline(compare(single(60, 9))) == (
        "No difference: unlimited and limited run and serve the same, at 20.00 cents/h."
    )
    idle, impossible = single(0, 9), system([server("a", accelerators=[])], [accelerator("A")], {"A": 9})
    assert headline(compare(idle)) == (
        "Nothing runs, unlimited or limited: every server is idle and needs no replicas."
    )
    found = compare(impossible, scale_loads(impossible, 2), transition=True)
    assert headline(found) == "Nothing runs, before or after: no server can be served."
    assert "not_allowed" not in told(found)
    assert "not in the server's list of accelerators" in told(found)


def test_unequal_service_is_no_price_of_scarcity() -> None:
    found = compare(single(60, 1))
    text = told(found)
    assert headline(found) == (
        "The limits change what is served. Priority 1: 100% → 0% of its load, "
        "1 of 1 → 0 of 1 server in full. Cost: unlimited 20.00, limited 0.00 cents/h; "
        "per 1,000 served requests: unlimited 5.556 cents, limited none served."
    )
    assert "Served in full: unlimited 1 of 1, limited 0 of 1." in text
    assert "Note: not every server is served to the same fraction" in text
    assert row(text, "a") == ["a", "2", "×", "A", "not", "served", "stopped,", "not", "in", "full", "-20.00"]
    unserved = text.split("Not served in full", 1)[1]
    assert row(unserved, "a")[:4] == ["a", "1", "100%", "0%"]


def test_a_difference_that_is_only_rounding_reads_as_none() -> None:
    """10 × 0.7 is not 3 × 0.7 + 7 × 0.7 in binary; nobody pays the 9e-16 cents/h between them."""
    sides = [
        system(
            [server(name, replicas=count, accelerators=["A"]) for name, count in counts.items()],
            [accelerator("A", cost=0.7)],
        )
        for counts in ({"a": 10}, {"a": 3, "b": 7})
    ]
    found = compare(*sides)
    text = told(found)
    assert found.total.difference.cost_cents_per_h == 0
    assert "Cost: first 7.00, second 7.00 cents/h;" in " ".join(text.split())
    assert row(text.split("Cost by accelerator type", 1)[1], "A")[-3:] == ["7.00", "7.00", "0.00"]


def test_a_load_that_falls_saves() -> None:
    source = system([server("a", rate=720)], [accelerator("A")], {"A": 9})
    found = compare(source, scale_loads(source, 0.0), transition=True)
    assert headline(found) == "The load change saves 20.00 cents/h (-100.00%): before 20.00, after 0.00."
    assert "1 of 1 server changes: 1 to nothing." in told(found)
    assert "Transition value: -18.00 cents/h" in told(found)  # eq. 32: (0.1 - 1) × 20


def test_plans_without_systems_lack_classes_loads_and_type_costs() -> None:
    one, two = solve(single(60, 9)), solve(single(6000, 99))
    text = told(compare(one, two))
    assert "class" not in text
    assert "Load" not in text
    assert "cents/h" not in text.split("Cards by accelerator type", 1)[1]


def test_servers_of_one_side_only_are_new_or_gone() -> None:
    classes = [service_class("gold"), service_class("free", 2)]
    one = system([server("a", replicas=1)], [accelerator("A")], classes=classes)
    two = system([server("b", replicas=1, service="free")], [accelerator("A")], classes=classes)
    text = told(compare(one, two))
    assert "2 of 2 servers change: 1 new, 1 gone." in text
    replicas = text.split("Replicas by server", 1)[1]
    assert row(replicas, "a") == ["a", "1", "×", "A", "-", "removed", "-10.00"]
    assert row(replicas, "b") == ["b", "-", "1", "×", "A", "added", "+10.00"]


def test_names_that_steer_a_terminal_and_long_labels_do_no_harm() -> None:
    source = system([server("a\x1b[2J", replicas=1)], [accelerator("A")])
    found = compare(source, scale_loads(source, 20), labels=("x" * 99 + "\x1b", "y"))
    text = told(found)
    assert "\x1b" not in text
    assert "a?[2J" in text
    assert "x…" in text.split("Replicas by server")[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 8))
def test_whatever_is_compared_is_told(seed: int) -> None:
    rng = random.Random(seed)
    one, two = (load_system(random_document(rng)) for _ in range(2))
    after = vary_loads(one, np.random.default_rng(seed))
    plans = solve(one), solve(two)
    ways = (compare(one), compare(one, two), compare(one, after, transition=True), compare(*plans))
    for found in (*ways, compare(plans[0], two), compare(one, second_options={"heterogeneous": True})):
        text = told(found)
        assert text.splitlines()[0].rstrip().endswith(".")
        assert not {"nan", "None", "inf"} & set(text.split())
