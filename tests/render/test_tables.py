"""Tables: every figure of a plan, its unit, and what was asked of it."""

import io
import random
from typing import Any

import pytest
from builders import accelerator, document, random_document, running, server, service_class

from optimizer import (
    AnalysisError,
    LatencyTargets,
    Plan,
    Replica,
    analyze_replicas,
    find_candidates,
    load_system,
    size_replicas,
    solve,
)
from optimizer.render.tables import (
    WIDTH_WITHOUT_TERMINAL,
    candidate_tables,
    performance_table,
    plan_tables,
    show,
    sizing_tables,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def text_of(renderable: Any, file: io.StringIO | None = None) -> str:
    file = file or io.StringIO()
    show(renderable, file)
    return file.getvalue()


def shown(source: dict[str, Any], **options: Any) -> tuple[Plan, str]:
    system = load_system(source)
    plan = solve(system, **options)
    return plan, text_of(plan_tables(plan, system.with_options(**options)))


def row(text: str, first: str) -> list[str]:
    """Return the cells of the line that begins with a word."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_a_row_shows_load_latencies_against_targets_and_cost() -> None:
    source = document(
        [server("s", 90.0)],
        [accelerator("A", cost=12.5)],
        {"A": 9},
        classes=[service_class("gold", itl=40, ttft=900)],
    )
    plan, text = shown(source)
    pool = plan.allocations["s"][0]
    cells = row(text, "s")
    assert cells[1:5] == ["1", "A", "1", str(pool.max_batch)]
    assert cells[5] == "90"
    assert f"{pool.itl_ms:,.1f} (40)" in text
    assert f"{pool.ttft_ms:,.0f} (900)" in text
    assert cells[-2:] == [f"{pool.utilization:.0%}", "12.50"]


def test_a_missing_target_is_shown_as_none_and_not_as_zero() -> None:
    _, text = shown(document([server("s")], [accelerator("A")], {"A": 9}))
    assert text.count("(none)") == 2
    assert "(0)" not in text


def test_an_idle_server_is_shown_as_idle_at_no_cost() -> None:
    _, text = shown(document([server("s", 0), server("t")], [accelerator("A")], {"A": 9}))
    assert row(text, "s")[:3] == ["s", "1", "idle"]
    assert row(text, "s")[-1] == "0.00"


def test_servers_are_shown_in_the_order_of_their_priority() -> None:
    classes = [service_class("gold", 7), service_class("iron", 3)]
    source = document(
        [server("a"), server("b") | {"class": "iron"}], [accelerator("A")], {"A": 9}, classes=classes
    )
    _, text = shown(source)
    lines = [line.split()[0] for line in text.splitlines() if line.split()[:1] in (["a"], ["b"])]
    assert lines == ["b", "a"]


def test_units_are_shown_by_type_with_what_is_left() -> None:
    source = document(
        [server("s", replicas=3)], [accelerator("4xA", "A", multiplicity=4)], {"A": 1500, "B": 2}
    )
    _, text = shown(source)
    assert row(text, "A") == ["A", "12", "1,500", "1,488"]
    assert row(text, "B") == ["B", "0", "2", "2"]


def test_an_unlimited_plan_says_so_in_place_of_a_limit() -> None:
    _, text = shown(document([server("s")], [accelerator("A")], {"A": 9}), unlimited=True)
    assert "unlimited plan" in text
    assert row(text, "A") == ["A", "1", "unlimited", "-"]


def test_what_is_not_served_is_shown_with_reason_and_numbers() -> None:
    source = document([server("s", replicas=3), server("t", replicas=3)], [accelerator("A")], {"A": 4})
    plan, text = shown(source)
    missing = plan.unserved[0]
    assert "Not served in full" in text
    assert "1 of 2 servers served in full" in text
    table = text[text.index("Not served in full") :]
    cells = row(table, missing.server)
    assert cells[:4] == [missing.server, "1", f"{missing.served_fraction:.0%}", "capacity"]
    assert missing.detail in text


def test_a_complete_plan_has_no_table_of_what_is_missing() -> None:
    _, text = shown(document([server("s")], [accelerator("A")], {"A": 4}))
    assert "Not served" not in text
    assert "Objectives" not in text


def test_a_server_that_gets_a_part_shows_the_part() -> None:
    source = document(
        [server("s", 20_000.0)], [accelerator("A")], {"A": 4}, saturationPolicy="PriorityExhaustive"
    )
    plan, text = shown(source)
    fraction = plan.unserved[0].served_fraction
    assert 0 < fraction < 1
    assert f"{fraction:.0%}" in text[text.index("Not served in full") :]


def test_an_open_gap_is_shown_objective_by_objective() -> None:
    system = load_system(document([server("s")], [accelerator("A")], {"A": 4}))
    plan = solve(system)
    last = plan.levels[-1]
    opened = plan.model_copy(
        update={
            "status": "feasible",
            "gap": 0.25,
            "levels": (*plan.levels[:-1], last.model_copy(update={"value": 4.0, "bound": 3.0, "gap": 0.25})),
        }
    )
    text = text_of(plan_tables(opened, system))
    assert "the solver stopped early, gap 25.00%" in text
    assert "Objectives not closed" in text
    assert "25.00%" in text[text.index("Objectives") :]


def test_lost_traffic_is_shown_beside_the_load() -> None:
    source = document([server("s", 400.0, maxQueueSize=0)], [accelerator("A")], {"A": 1}, maxLoss="none")
    plan, text = shown(source)
    assert plan.allocations["s"][0].loss > 1e-4
    assert "% lost)" in text


def test_the_number_of_changes_is_in_the_headline() -> None:
    source = document(
        [server("s", current=running("A", 1)), server("t", current=running("A", 5))],
        [accelerator("A")],
        {"A": 9},
    )
    plan, text = shown(source)
    assert len(plan.changes) == 1
    assert "1 changed" in text


def test_columns_and_rejections_are_all_in_the_candidate_tables() -> None:
    source = document(
        [server("s", accelerators=["B"]), server("t")],
        [accelerator("A"), accelerator("B", "kindB", multiplicity=2)],
    )
    candidates = find_candidates(load_system(source))
    text = text_of(candidate_tables(candidates))
    assert f"Candidates ({len(candidates.table)})" in text
    assert "2 kindB" in text
    assert row(text[text.index("Rejected") :], "s")[:3] == ["s", "A", "not_allowed"]


def test_without_rejections_there_is_no_table_of_them() -> None:
    candidates = find_candidates(load_system(document([server("s")], [accelerator("A")])))
    assert "Rejected" not in text_of(candidate_tables(candidates))


def test_output_that_goes_to_no_terminal_has_a_fixed_width_and_no_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    _, text = shown(document([server("s" * 40)], [accelerator("A" * 20)], {"A" * 20: 4}))
    assert "\x1b" not in text
    assert "s" * 40 in text
    assert max(map(len, text.splitlines())) <= WIDTH_WITHOUT_TERMINAL


def test_at_a_terminal_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("TERM", "dumb")
    system = load_system(document([server("s")], [accelerator("A")], {"A": 4}))
    text = text_of(plan_tables(solve(system), system), Terminal())
    assert max(map(len, text.splitlines())) <= 90


@pytest.mark.parametrize("seed", range(8))
def test_every_plan_of_a_random_system_can_be_shown_with_every_server(seed: int) -> None:
    system = load_system(random_document(random.Random(seed)))
    plan = solve(system)
    text = text_of(plan_tables(plan, system))
    for name in system.servers:
        assert row(text, name)
    assert f"{plan.total_cost_cents_per_h:,.2f} cents/h" in text
    assert "nan" not in text


REPLICA = Replica.model_validate(
    {"maxBatch": 4, "inTokens": 10.0, "outTokens": 20.0, "decodeParms": {"alpha": 10.0, "beta": 1.0}}
)


def test_every_figure_of_a_replica_is_shown_with_its_unit() -> None:
    found = analyze_replicas([REPLICA], [0.5])[0]
    text = text_of(performance_table(found))
    for name, value, unit in (
        ("throughput", found.throughput_rps, "req/s"),
        ("ITL", found.itl_ms, "ms"),
        ("waiting", found.in_queue, "requests"),
    ):
        line = next(line for line in text.splitlines() if line.strip().startswith(name))
        assert f"{value:.6g}" in line
        assert line.rstrip().endswith(unit)


@pytest.mark.parametrize(
    ("targets", "rows"),
    [
        ({"itl": 12.0}, ["ITL of 12 ms alone", "all targets"]),
        (
            {"ttft": 500.0, "itl": 12.0, "tps": True},
            ["TTFT of 500 ms alone", "ITL of 12 ms alone", "throughput target alone", "all targets"],
        ),
    ],
)
def test_the_largest_rate_is_shown_target_by_target(targets: dict[str, Any], rows: list[str]) -> None:
    wanted = LatencyTargets.model_validate(targets)
    sizing = size_replicas([REPLICA], [wanted])[0]
    assert not isinstance(sizing, AnalysisError)
    text = text_of(sizing_tables(sizing, wanted))
    for name in rows:
        assert name in text
    assert text.count(" alone") == len(rows) - 1  # a target that was not asked for is not shown
    assert f"{sizing.max_rate_rps:.7g}" in text
    assert f"{sizing.max_rate_rps * 60:.7g}" in text


def test_names_with_markup_are_shown_literally() -> None:
    for name in ("[bold]x[/bold]", "[/x]", "[link=y]z", ":warning:"):
        system = load_system(document([server(name)], [accelerator(name)], {name: 4}))
        plan = solve(system)
        assert name in text_of(plan_tables(plan, system))
        assert name in text_of(candidate_tables(find_candidates(system)))
