"""Tables: every figure of a plan, its unit, and what was asked of it."""

import io
import random
import re
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, profile, random_document, running, server, service_class
from shown_text import Terminal, csv_rows, row, text_of

from optimizer import (
    AnalysisError,
    LatencyTargets,
    Plan,
    Replica,
    System,
    analyze_replicas,
    find_candidates,
    load_system,
    size_replicas,
    solve,
)
from optimizer.errors import SpecError
from optimizer.quantities import percent, precise
from optimizer.render.plan_sections import candidate_sections, plan_sections
from optimizer.render.replica_sections import performance_section, sizing_sections
from optimizer.render.terminal import WIDTH_WITHOUT_TERMINAL
from optimizer.section import Column, Section, SidePair, sentence


def shown(source: dict[str, Any], **options: Any) -> tuple[Plan, str]:
    system = load_system(source)
    plan = solve(system, **options)
    return plan, text_of(plan_sections(plan, system.with_options(**options)))


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
    assert cells[1:4] == ["1", "×", "A"]
    assert cells[4:8] == [
        f"{pool.itl_ms:,.1f}/40", f"{pool.itl_ms / 40:.0%}",
        f"{pool.ttft_ms:,.0f}/900", f"{pool.ttft_ms / 900:.0%}",
    ]  # fmt: skip
    assert cells[8:12] == [f"{90 / pool.max_arrival_rate_rpm:.0%}", "12.50", "one", "replica"]
    assert cells[13:16] == [str(pool.max_batch), "1", "90"]
    assert cells[-1] == f"{pool.utilization:.0%}"


def test_a_latency_without_a_target_has_no_limit() -> None:
    _, text = shown(document([server("s")], [accelerator("A")], {"A": 9}))
    assert "/target" not in text
    assert "/" not in " ".join(row(text, "s"))
    assert "Not served" not in text
    assert "Objectives" not in text


def test_an_idle_server_is_shown_as_idle_at_no_cost() -> None:
    _, text = shown(document([server("s", 0), server("t")], [accelerator("A")], {"A": 9}))
    assert row(text, "s") == ["s", "idle", "0.00"]


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
    assert "Proved: no plan with any number of cards costs less." in text
    assert row(text, "A") == ["A", "1", "unlimited", "-"]


@pytest.mark.parametrize("policy", ["None", "PriorityExhaustive"])
def test_what_is_not_served_is_shown_with_reason_and_numbers(policy: str) -> None:
    servers = [server("s", 20_000.0, replicas=3), server("t", replicas=2)]
    plan, text = shown(document(servers, [accelerator("A")], {"A": 4}, saturationPolicy=policy))
    (missing,) = plan.unserved
    assert (missing.served_fraction > 0) == (policy != "None")
    assert "Not served in full" in text
    assert "1 of 2 servers served in full" in text
    table = text[text.index("Not served in full") :]
    cells = row(table, missing.server)
    assert cells[:4] == [missing.server, "1", f"{missing.served_fraction:.0%}", "capacity"]
    assert missing.detail in text


def test_a_table_that_is_asked_for_is_shown_even_if_empty() -> None:
    system = load_system(document([server("s")], [accelerator("A")], {"A": 4}))
    plan = solve(system)
    sections = plan_sections(plan, system)
    assert "Objectives" not in text_of(sections)
    text = text_of(sections, table="objectives")
    for level in plan.levels:
        assert row(text, level.name.split()[0])
    assert len([line for line in text.splitlines() if line.startswith(" ")]) == 2 + len(plan.levels)
    assert text_of(sections, table="unserved") == "Not served in full: none\n"


def test_every_objective_has_its_unit() -> None:
    cards = [accelerator("A") | {"cost": "0.50 EUR/h"}]
    system = load_system(document([server("s"), server("t", 9e4)], cards, {"A": 4}))
    text = text_of(plan_sections(solve(system), system), table="objectives")
    lines = {line.rpartition("  ")[0].strip() for line in text.splitlines()[4:]}
    found = {re.split(r"  +", line)[0]: re.split(r"  +", line)[1:] for line in lines}
    assert found["priority 1: unserved rate"] == ["90,000", "90,000", "requests/min"]
    assert found["priority 1: unserved servers"] == ["1", "1", "servers"]
    assert found["value"] == ["0.55", "0.55", "EUR/h"]  # 0.50 and the penalty on the move
    assert found["changes"] == ["1", "1", "servers"]


def test_an_open_gap_is_shown_objective_by_objective() -> None:
    system = load_system(document([server("s")], [accelerator("A")], {"A": 4}))
    plan = solve(system)
    last = plan.levels[-1]
    levels = (*plan.levels[:-1], last.model_copy(update={"value": 4.0, "bound": 3.0, "gap": 0.25}))
    opened = plan.model_copy(update={"status": "feasible", "gap": 0.25, "levels": levels})
    text = text_of(plan_sections(opened, system))
    assert "The best plan found in time with the cards that exist, at most 25.00% above the optimum." in text
    assert "Objectives\n" in text
    assert "25.00%" in text[text.index("Objectives") :]


def test_lost_traffic_is_shown_beside_the_load() -> None:
    source = document([server("s", 400.0, maxQueueSize=0)], [accelerator("A")], {"A": 1}, maxLoss="none")
    plan, text = shown(source)
    assert plan.allocations["s"][0].loss > 1e-4
    assert percent(plan.allocations["s"][0].loss) in row(text, "s")


def test_the_number_of_changes_is_in_the_headline() -> None:
    source = document(
        [server("s", current=running("A", 1)), server("t", current=running("A", 5))],
        [accelerator("A")],
        {"A": 9},
    )
    plan, text = shown(source)
    assert len(plan.changes) == 1
    assert "1 change to what runs" in text
    first = document([server("s")], [accelerator("A")], {"A": 9})
    assert "change" not in shown(first)[1]  # nothing ran before


def test_columns_and_rejections_are_all_in_the_candidate_tables() -> None:
    source = document(
        [server("s", accelerators=["B"]), server("t")],
        [accelerator("A"), accelerator("B", "kindB", multiplicity=2)],
    )
    all_fit = find_candidates(load_system(document([server("s")], [accelerator("A")])))
    assert "Rejected" not in text_of(candidate_sections(all_fit))
    candidates = find_candidates(load_system(source))
    text = text_of(candidate_sections(candidates))
    assert f"Candidates ({len(candidates.table)})" in text
    assert row(text, "s")[:5] == ["s", "B", "1", "2", "kindB"]
    assert row(text[text.index("Rejected") :], "s")[:3] == ["s", "A", "not_allowed"]


def narrow(sections: Any, file: io.StringIO | None = None, **output: Any) -> list[str]:
    """Return the lines that are written for a narrow terminal."""
    return text_of(sections, file, **{"wide": False} | output).splitlines()


LONG = [f"meta-llama/Llama-3.1-{size}B-Instruct-{kind}" for size in (8, 70, 405) for kind in ("FP8", "INT8")]


def named_long() -> System:
    """Return a system whose names differ in the middle, and at the end."""
    classes = ["Premium-Interactive", "Bronze-Interactive"]
    cards = ["NVIDIA-H100-80GB-HBM3-SXM5", "NVIDIA-H100-80GB-HBM2e-PCIe"]
    source = document(
        [
            server(f"{group}-{model}", 90.0, model=model) | {"class": group}
            for group in classes
            for model in LONG
        ],
        [accelerator(card) for card in cards],
        dict.fromkeys(cards, 100_000),
        classes=[service_class(group, i, models=LONG) for i, group in enumerate(classes, 1)],
        models=[profile(model, card) for model in LONG for card in cards],
    )
    return load_system(source)


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [None, 60, 80, 100, 130])
def test_tables_fit_and_names_stay_different(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    system = named_long()
    plan = solve(system)
    for tables in (plan_sections(plan, system), candidate_sections(find_candidates(system))):
        lines = narrow(tables)
        assert max(map(len, lines)) <= (width or WIDTH_WITHOUT_TERMINAL)
        assert not [line for line in lines if line != line.rstrip()]
    rows = [line.split()[0] for line in lines if "HBM" in line]
    assert len(rows) == 2 * len(system.servers)
    assert len(set(rows)) == len(system.servers)


def test_a_number_is_never_broken_however_narrow_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    system = named_long()
    plan = solve(system)
    text = "\n".join(narrow(plan_sections(plan, system)))
    for pools in plan.allocations.values():
        assert f"{pools[0].cost_cents_per_h:,.2f}" in text


def test_what_is_left_out_is_said_and_wide_shows_it() -> None:
    system = named_long()
    plan = solve(system)
    short, wide = narrow(plan_sections(plan, system)), narrow(plan_sections(plan, system), wide=True)
    said = " ".join(" ".join(short).split())
    assert "hidden columns: " in said
    assert "--wide shows all" in said
    assert not [line for line in wide if "hidden columns" in line or "…" in line]
    for name in system.servers:
        assert [line for line in wide if name in line]


@pytest.mark.slow
def test_the_most_important_columns_stay_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    system = named_long()
    plan = solve(system)
    shown = []
    for width in (70, 90, 110, 140, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = narrow(plan_sections(plan, system))
        rows = [line for line in lines if "HBM" in line]
        shown.append(len(rows[0].split()))
    assert shown == sorted(shown)
    assert shown[0] < shown[-1]


def test_eighty_columns_show_what_binds_by_its_statistic(
    specs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    tables = {}
    for name in ("small", "chat.yaml", "serving-fleet"):
        system = load_system(specs / name)
        plan = solve(system)
        tables[name] = " ".join(" ".join(narrow(plan_sections(plan, system))).split())
    assert "ITL/target TTFT/target cost server accelerators ms ms cents/h" in tables["small"]
    assert " 19.1/320 6% 3,970/4,000 99% 16,960.00 " in tables["small"]  # no target is hidden
    assert "p95 p95 load million ITL/target TTFT/target of" in tables["chat.yaml"]
    assert " 29.2/40 73% 124/1,000 12% " in tables["chat.yaml"]
    assert " p95 44.1/60 73% p95 193/1,000 19% " in tables["serving-fleet"]


def test_csv_has_whole_names_units_and_every_digit() -> None:
    system = named_long()
    plan = solve(system)
    lines = csv_rows(text_of(plan_sections(plan, system), as_csv=True))
    by_priority = sorted(system.servers, key=lambda name: (system.priority(system.servers[name]), name))
    assert [line["server"] for line in lines] == by_priority
    for line in lines:
        pool = plan.allocations[line["server"]][0]
        assert float(line["mean ITL [ms]"]) == pool.itl_ms
        assert float(line["cost [cents/h]"]) == pool.cost_cents_per_h
        assert "target" not in line


def test_one_table_can_be_had_alone_even_where_it_is_empty() -> None:
    system = load_system(document([server("s")], [accelerator("A")], {"A": 9}))
    tables = plan_sections(solve(system), system)
    assert narrow(tables, as_csv=True, table="cards") == ["type,used,exist,left", "A,1,9,8"]
    assert narrow(tables, as_csv=True, table="unserved") == ["server,prio,served,reason,detail"]
    assert narrow(tables, table="cards")[0] == "Cards by accelerator type"
    with pytest.raises(SpecError, match="this output has no table 'x'; use one of allocations, cards"):
        narrow(tables, table="x")


def test_a_pair_becomes_two_columns_of_csv() -> None:
    sides = ("before", "after")
    columns = [Column("server", content="name"), Column("rate", unit="req/min", form=".1f", sides=sides)]
    rows: list[tuple[Any, ...]] = [("=s", SidePair(1.25, None)), ("t", SidePair(2.04, 2.04))]
    section = Section("t", columns, rows, total=("all", SidePair(3.0, 2.0)))
    assert narrow([section], as_csv=True) == [
        "server,rate before [req/min],rate after [req/min]", "'=s,1.25,", "t,2.04,2.04"
    ]  # fmt: skip
    text = narrow([section])
    assert [line.split() for line in text if "→" in line] == [
        ["=s", "1.2", "→", "-"], ["all", "3.0", "→", "2.0"]
    ]  # fmt: skip


@pytest.mark.parametrize(("value", "width"), [("30", 30), ("", 80), ("0", 80), ("-5", 80), ("x", 80)])
def test_without_a_terminal_columns_sets_width_and_no_colour(
    value: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, setting in (("COLUMNS", value), ("FORCE_COLOR", "1"), ("TTY_COMPATIBLE", "1"), ("TERM", "x")):
        monkeypatch.setenv(name, setting)
    text = narrow([sentence("word " * 60, "bold red")])
    assert "\x1b" not in "".join(text)
    assert width - 5 <= max(map(len, text)) <= width


@pytest.mark.parametrize(
    ("setting", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_that_want_it(
    setting: dict[str, str], *, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"TERM": "xterm", "COLUMNS": "90"} | setting).items():
        monkeypatch.setenv(name, value)
    system = load_system(document([server("s")], [accelerator("A")], {"A": 4}))
    text = narrow(plan_sections(solve(system), system), Terminal())
    assert ("\x1b[32m" in "".join(text)) == coloured


def test_at_a_terminal_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "dumb")
    system = named_long()
    lines = narrow(plan_sections(solve(system), system), Terminal())
    assert 60 < max(map(len, lines)) <= 70


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
def test_plans_of_random_systems_show_every_server(seed: int) -> None:
    system = load_system(random_document(random.Random(seed)))
    plan = solve(system)
    text = text_of(plan_sections(plan, system))
    for name in system.servers:
        assert row(text, name)
    assert f"{plan.total_cost_cents_per_h:,.2f} cents/h" in text
    assert "nan" not in text


REPLICA = Replica.model_validate(
    {"maxBatch": 4, "inTokens": 10.0, "outTokens": 20.0, "decodeParms": {"alpha": 10.0, "beta": 1.0}}
)


def test_every_figure_of_a_replica_is_shown_with_its_unit() -> None:
    found = analyze_replicas([REPLICA], [0.5])[0]
    text = text_of([performance_section(found)])
    for name, value, unit in (
        ("throughput", found.throughput_rps, "req/s"),
        ("ITL", found.itl_ms, "ms"),
        ("waiting", found.in_queue, "requests"),
    ):
        line = next(line for line in text.splitlines() if line.strip().startswith(name))
        assert precise(value) in line
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
    text = text_of(sizing_sections(sizing, wanted))
    for name in rows:
        assert name in text
    assert text.count(" alone") == len(rows) - 1  # a target that was not asked for is not shown
    assert f"{sizing.max_rate_rps:.7g}" in text
    assert f"{sizing.max_rate_rps * 60:.7g}" in text
