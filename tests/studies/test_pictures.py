"""Pictures of a plan and the overview behind them: every number is the plan's."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders import accelerator, profile, server, service_class, system
from panels import bars, curves, grid

from optimizer import System, compare, make_figure, make_report, render_report, scale_loads, solve
from optimizer.generate import generate_document
from optimizer.spec.system import load_system
from optimizer.studies.figures.making import PLAN_FIGURES
from optimizer.studies.figures.plans import CLASSES_BESIDE, MAX_ROWS, WHOLE_PLAN
from optimizer.studies.overview import describe

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def large() -> System:
    return load_system(ROOT / "specs" / "large")


@pytest.mark.slow
def test_the_whole_picture_has_every_panel(large: System) -> None:
    figure = make_figure(large, "plan")
    titles = [panel.title for panel in figure.panels]
    kinds = [kind for kind in WHOLE_PLAN if kind != "nodes"]
    assert titles == [make_figure(large, kind).panels[0].title for kind in kinds]
    assert figure.note == "26,300.50 cents/h; all 27 servers served in full"


def test_other_costs_are_stated() -> None:
    figure = make_figure(load_system(ROOT / "specs" / "robust.yaml"), "plan")
    assert figure.note.endswith("; the total includes price tiers (-1,440.00) and rented services (72.58)")
    costs = [bar.values[2] for bar in bars(figure, 2).bars]
    assert sum(cost or 0.0 for cost in costs) - 1440 + 72.58 == pytest.approx(3792.58, abs=0.01)


def test_latencies_are_shown_as_shares_of_their_targets() -> None:
    classes = [service_class("gold", itl=12.0), service_class("tin", 2, itl=20.0, ttft=200.0)]
    source = system([server("a"), server("b", service="tin")], [accelerator("A")], classes=classes)
    pools = {name: pool for name, (pool,) in solve(source).allocations.items()}
    first, second = bars(make_figure(source, "targets")).bars
    assert (first.name, second.name) == ("a", "b")  # the tightest first
    assert first.values[0] == pytest.approx(100 * pools["a"].itl_ms / 12)
    assert first.values[1] is None
    assert second.values == pytest.approx((5 * pools["b"].itl_ms, pools["b"].ttft_ms / 2))
    assert bars(make_figure(source, "targets")).line == 100.0
    changed = bars(make_figure(scale_loads(source, 3), "targets", before=source))
    assert changed.mark == "before"
    assert {bar.name: bar.marks for bar in changed.bars} == {"a": first.values, "b": second.values}


@pytest.mark.slow
def test_the_assignment_names_accelerator_and_replicas(large: System) -> None:
    plan = solve(large)
    panel = grid(make_figure(large, "assignment"))
    assert panel.columns == ("Premium", "Bronze", "Free")
    for model, row in zip(panel.rows, panel.cells, strict=True):
        for service, cell in zip(panel.columns, row, strict=True):
            (pool,) = plan.allocations[f"{service}-{model}"]
            assert cell.text == f"{pool.num_replicas} × {pool.accelerator}"
            assert cell.group == large.accelerators[pool.accelerator].type


@pytest.mark.slow
def test_types_add_up_to_the_plan_and_mark_existing_cards(large: System) -> None:
    plan = solve(large)
    panel = bars(make_figure(large, "types"))
    assert panel.mark == "cards that exist"
    assert sum(bar.values[2] or 0 for bar in panel.bars) == plan.total_cost_cents_per_h
    assert {bar.name: (bar.values[0], bar.marks[0]) for bar in panel.bars} == {
        use.type: (use.used, use.limit) for use in plan.capacity
    }
    assert bars(make_figure(large.with_options(unlimited=True), "types")).mark == ""


@pytest.mark.slow
def test_after_a_change_of_the_load_the_plan_before_is_marked(large: System) -> None:
    after = scale_loads(large, 1.2)
    figure = make_figure(after, "plan", before=large)
    found = compare(large, after, transition=True)
    assert figure.title == "Limited plan after a load change"
    assert f"{found.second.plan.total_cost_cents_per_h:,.2f} cents/h (before: 26,300.50)" in figure.note
    costs = [(bar.values[2] or 0, bar.marks[2] or 0) for bar in bars(figure, 2).bars]
    assert sum(cost for cost, _ in costs) == pytest.approx(found.second.plan.total_cost_cents_per_h)
    assert sum(cost for _, cost in costs) == pytest.approx(found.first.plan.total_cost_cents_per_h)
    texts = [cell.text for row in grid(figure, 1).cells for cell in row]
    assert sum("\nwas " in text for text in texts) == len(found.changed("moved", "scaled"))


def test_grid_fields_state_partial_idle_and_no_service() -> None:
    one = system(
        [
            server("part", rate=1200, model="a"), server("idle", rate=0, model="b"),
            server("none", rate=60, model="c"),
        ],
        [accelerator("A")],
        {"A": 1},
        models=[profile("a", "A"), profile("b", "A"), profile("c", "A")],
        classes=[service_class("gold", models=["a", "b"])],
        saturationPolicy="PriorityExhaustive",
    )  # fmt: skip
    cells = [row[0] for row in grid(make_figure(one, "assignment")).cells]
    share = solve(one).unserved[1].served_fraction
    assert [cell.text for cell in cells] == [f"1 × A ({share:.0%} served)", "idle", "not served"]
    assert 0 < share < 1
    assert cells[0].share == pytest.approx(share)  # as much of the field has the colour


def test_grid_fields_count_servers_not_served_in_full() -> None:
    """Not that the field is served to the share of the last of them, or is idle as the last of them is."""
    several = [server("s", replicas=2), server("t", replicas=2), server("u", rate=0)]
    for units, text in ((2, "2 × A (1 of 3 not in full)"), (1, "not served")):
        one = system(several, [accelerator("A")], {"A": units})
        assert grid(make_figure(one, "assignment")).cells[0][0].text == text


def test_grids_add_up_servers_of_a_model_and_class() -> None:
    one = system([server("s", replicas=2), server("t", replicas=3)], [accelerator("A")])
    assert grid(make_figure(one, "assignment")).cells[0][0].text == "5 × A"
    assert grid(make_figure(one, "load")).cells[0][0].text == "120/min, 16 → 64"


@pytest.mark.slow
def test_of_very_many_servers_the_tightest_are_shown_first() -> None:
    many = load_system(generate_document(100, 6, 3, seed=1))
    figure = make_figure(many, "targets")
    worst = [max(value for value in bar.values if value is not None) for bar in bars(figure).bars]
    assert worst == sorted(worst, reverse=True)
    overview = describe(many, solve(many))
    shares = [
        100 * max(row.itl_ms / (row.itl_target_ms or 1e9), row.ttft_ms / (row.ttft_target_ms or 1e9))
        for row in overview.pools
    ]
    assert worst == pytest.approx(sorted(shares, reverse=True)[:MAX_ROWS])
    assert figure.note.endswith(f"the {MAX_ROWS} tightest of 100 servers")


@pytest.mark.slow
def test_every_class_has_its_field_however_many_there_are() -> None:
    many = load_system(generate_document(100, 6, 3, seed=1))
    for kind in ("load", "assignment"):
        figure = make_figure(many, kind)
        columns = [name for i in range(len(figure.panels)) for name in grid(figure, i).columns]
        assert sorted(columns) == sorted({item.service_class for item in many.servers.values()})
        assert all(len(grid(figure, i).columns) <= CLASSES_BESIDE for i in range(len(figure.panels)))
        assert "shown" not in figure.note


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"units": {"A": 0}}, "0 of 2 servers"),
        ({"units": {}}, "0 of 2 servers"),
        ({"classes": [service_class("gold", itl=0.1)]}, "0 of 2 servers"),
        ({"rate": 0.0}, "all 2 servers"),
    ],
)
@pytest.mark.parametrize("kind", PLAN_FIGURES)
def test_a_fleet_that_runs_nothing_has_its_pictures(case: dict[str, object], words: str, kind: str) -> None:
    rate = float(str(case.get("rate", 60.0)))
    one = system(
        [server("s", rate), server("t", rate)],
        [accelerator("A")],
        case.get("units"),
        classes=case.get("classes"),
    )
    figure = make_figure(one, kind)
    assert words in figure.note
    assert figure.panels or kind == "nodes"


@pytest.mark.slow
def test_overview_has_every_server_once(large: System) -> None:
    source = large.with_load("Free-llama_7b", arrival_rate_rpm=0)
    overview = describe(source, solve(source))
    assert [row.server for row in overview.idle] == ["Free-llama_7b"]
    named = [row.server for row in overview.pools] + [row.server for row in overview.idle]
    assert sorted(named) == list(large.servers)
    for row in overview.pools:
        target = large.targets[row.service_class, row.model]
        assert (row.itl_target_ms, row.ttft_target_ms) == (target.itl_ms or None, target.ttft_ms or None)
    assert overview.to_json() == describe(source, solve(source)).to_json()


@pytest.mark.slow
def test_the_report_is_about_the_plan_that_solve_finds(specs: Path) -> None:
    small = load_system(specs / "small")
    for unlimited in (False, True):
        report = make_report(small, unlimited=unlimited)
        assert report.plan == solve(small, unlimited=unlimited)
        assert report.overview.limited is not unlimited
        assert report.comparison == compare(small)
    assert type(report).model_validate_json(report.to_json()) == report


@pytest.mark.slow
def test_percentiles_and_shares_use_their_own_targets() -> None:
    """Not the mean against the limit of a percentile, nor against that of single requests."""
    chat = load_system(ROOT / "specs" / "chat.yaml")
    (pool,) = solve(chat).allocations["Chat-chat_8b"]
    panel = bars(make_figure(chat, "targets"))
    limits = {figure.measure: figure for figure in pool.targets}
    assert panel.bars[0].values == pytest.approx(
        [100 * limits[name].value / limits[name].limit for name in ("p95 ITL", "p95 TTFT")]
    )
    assert panel.bars[0].values[0] != pytest.approx(100 * pool.itl_ms / 40)

    key = ("Chat", "chat_8b")
    target = chat.targets[key].model_copy(
        update={"percentile": None, "goodput_share": 0.97, "e2e_ms": 20_000.0}
    )
    shared = replace(chat, targets={key: target})
    (pool,) = solve(shared).allocations["Chat-chat_8b"]
    panel = bars(make_figure(shared, "targets"))
    assert [column.split(" [")[0].split("\n")[0] for column in panel.columns] == [
        "token time (ITL)",
        "first token (TTFT)",
        "beyond a target",
    ]
    *latencies, missed = panel.bars[0].values
    assert latencies == [None, None]
    assert missed == pytest.approx(100 * pool.targets[0].value / 0.03)


@pytest.mark.slow
def test_pictures_show_what_routes_send_to_their_servers() -> None:
    system = load_system(ROOT / "specs" / "routes.yaml")
    use = solve(system).routes["chat"]
    cells = grid(make_figure(system, "load")).cells
    assert [row[0].text.split("/")[0] for row in cells] == [
        f"{rate:,.4g}" for rate in (use.large_rpm, use.small_rpm)
    ]


def test_pictures_show_the_servers_of_shared_queues() -> None:
    """Targets of specs/shared-queue.yaml: TTFT 100, 250 and 3,000 ms, ITL 40 ms."""
    system = load_system(ROOT / "specs" / "shared-queue.yaml")
    members = solve(system).shared_queues["chat"].members
    found = {bar.name: bar.values[:2] for bar in bars(make_figure(system, "targets")).bars}
    limits = {"premium": 100, "standard": 250, "free": 3000}
    assert found.keys() == limits.keys()
    for name, limit in limits.items():
        expected = members[name].itl_ms / 40, members[name].ttft_ms / limit
        assert found[name] == pytest.approx([100 * share for share in expected])
    (row,) = grid(make_figure(system, "assignment")).cells
    assert [cell.text for cell in row] == ["3 × H100", "in chat", "in chat"]


@pytest.mark.slow
def test_reports_have_the_servers_of_shared_queues() -> None:
    system = load_system(ROOT / "specs" / "shared-queue.yaml")
    report = make_report(system)
    members = report.plan.shared_queues["chat"].members
    rows = report.overview.queues
    assert {row.server: row.member for row in rows} == members
    assert [(row.priority, row.ttft_target_ms) for row in rows] == [(1, 100), (2, 250), (3, 3000)]
    page = render_report(report, system, "markdown")
    assert "Shared queues" in page
    assert all(f"{members[name].itl_ms:.1f}" in page for name in members)


def test_pictures_of_one_server_show_no_shared_queue() -> None:
    system = load_system(ROOT / "specs" / "shared-queue.yaml")
    for kind in ("latency", "batch", "distribution"):
        figure = make_figure(system, kind, server="chat")
        assert figure.panels == ()
        assert "chat is a shared queue, whose servers have separate latencies" in figure.note
    cost = curves(make_figure(system, "cost", server="chat"))
    assert sorted(series.name for series in cost.series) == ["A100", "H100"]
