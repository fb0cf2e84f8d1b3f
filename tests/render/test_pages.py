"""The report as a page: complete, self-contained, escaped, and the same bytes for the same report."""

import base64
import hashlib
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, profile, server, service_class
from markdown_it import MarkdownIt
from shown_text import csv_rows, page_of

from optimizer import Report, System, load_system, make_report, render_report, scale_loads, solve
from optimizer.render.pages import PageMetadata
from optimizer.schema.accelerators import Power

ROOT = Path(__file__).parents[2]
SECTIONS = [
    "headline", "targets-picture", "types", "servers", "unserved", "overload", "repairs", "growth",
    "estimates", "risks", "assignment", "overview", "cards", "targets", "comparison",
    "classes", "replicas", "assumptions", "prices",
]  # fmt: skip
OF_SHORTAGE = {"unserved", "overload", "repairs"}
"""Only of a plan with a server that is not served in full."""
COMPLETE = [name for name in SECTIONS if name not in OF_SHORTAGE | {"estimates"}]
MEMO = 3
"""Number of parts of the first page, which are not linked."""


@pytest.fixture(scope="module")
def small() -> System:
    return load_system(ROOT / "specs" / "small")


@pytest.fixture(scope="module")
def report(small: System) -> Report:
    return make_report(small)


@pytest.fixture(scope="module")
def page(report: Report, small: System) -> str:
    return render_report(report, small, "html")


class Page(HTMLParser):
    """The parts of a page that tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.cells: list[str] = []
        self.in_cell = False
        self.cell_tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag in {"td", "th"}:
            self.cells.append("")
            self.cell_tags.append(tag)
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.in_cell = self.in_cell and tag not in {"td", "th"}

    def handle_data(self, data: str) -> None:
        if self.in_cell:
            self.cells[-1] += data


def rows(markdown: str, title: str) -> list[list[str]]:
    """Return the rows of the table under a heading of the Markdown page."""
    part = markdown.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [
        line.removeprefix("|").removesuffix("|").split(" | ")
        for line in part.splitlines()
        if line.startswith("|")
    ]
    return [[cell.strip().replace("\\", "") for cell in line] for line in lines[2:]]


@pytest.mark.slow
def test_every_section_is_there_and_linked(page: str) -> None:
    found = Page(page)
    assert found.ids == COMPLETE
    links = [value for tag, name, value in found.attributes if (tag, name) == ("a", "href")]
    assert links == [f"#{name}" for name in COMPLETE[MEMO:]]


def test_page_is_self_contained_with_one_script(page: str) -> None:
    found = Page(page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert "{{" not in script
    for tag, name, value in found.attributes:
        assert not name.startswith("on"), tag
        if name in {"src", "href"}:
            assert value.startswith(("data:", "#"))
    assert "@import" not in page
    assert "url(" not in page
    policy = next(value for _, name, value in found.attributes if name == "content")
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        policy == f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{own}'"
    )


@pytest.mark.slow
def test_the_page_has_its_pictures_and_is_the_same_every_time(
    page: str, report: Report, small: System
) -> None:
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) == 1
    assert all(base64.b64decode(picture).startswith(b"<?xml") for picture in pictures)
    assert "<dt>cards</dt><dd>1,587</dd>" in page
    assert len(page.encode()) < 3_000_000
    assert render_report(report, small, "html") == page
    assert render_report(make_report(small), small, "markdown") == render_report(report, small, "markdown")
    assert not re.search(r"20\d\d-\d\d-\d\d", page)


def test_the_tables_say_what_the_plan_says(report: Report, small: System) -> None:
    text = render_report(report, small, "markdown")
    plan = solve(small)
    assignment = {row[0]: row for row in rows(text, "Assignment")}
    assert set(assignment) == set(small.servers)
    for name, pools in plan.allocations.items():
        (pool,) = pools
        assert assignment[name][3:5] == [pool.accelerator, f"{pool.num_replicas:,}"]
    for row in rows(text, "Servers"):
        (pool,) = plan.allocations[row[0]]
        assert row[2] == f"{pool.num_replicas:,} × {pool.accelerator}"
        assert float(row[6].replace(",", "")) == pool.cost_cents_per_h
    types = rows(text, "Cards and cost by accelerator type")
    capacity = {row[0]: row[2:5] for row in types}
    assert capacity == {
        use.type: [f"{use.used:,}", f"{use.limit:,}", f"{(use.limit or 0) - use.used:,}"]
        for use in plan.capacity
    }  # fmt: skip
    costs = [float(row[6].replace(",", "")) for row in types]
    assert sum(costs) == pytest.approx(plan.total_cost_cents_per_h)


def test_a_report_states_each_target_with_its_value_and_share(report: Report, small: System) -> None:
    text = render_report(report, small, "markdown")
    shown = {row[0]: row for row in rows(text, "Servers")}
    for name, (pool,) in solve(small).allocations.items():
        target = small.targets[small.servers[name].service_class, small.servers[name].model]
        assert f"ITL {pool.itl_ms:.1f} of {target.itl_ms:g} ms" in shown[name][3]
        assert f"{pool.ttft_ms:,.0f} of {target.ttft_ms:,g} ms" in shown[name][3]


def test_the_comparison_adds_up(report: Report, small: System) -> None:
    page = render_report(report, small, "markdown")
    classes, servers = (
        {row[0]: float(row[place].replace(",", "")) for row in rows(page, title)}
        for title, place in (("Cost by service class", 5), ("Replicas by server", 4))
    )
    total = solve(small, unlimited=False).total_cost_cents_per_h
    without = solve(small, unlimited=True).total_cost_cents_per_h
    assert classes.pop("all") == pytest.approx(total - without)
    assert sum(classes.values()) == pytest.approx(total - without)
    assert sum(servers.values()) == pytest.approx(total - without)
    moved = list(servers)
    assert moved == sorted(moved, key=lambda name: (small.priority(small.servers[name]), name))


def test_markdown_and_html_show_the_same_cells(page: str, report: Report, small: System) -> None:
    text = render_report(report, small, "markdown")
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    shown = [cell for title in titles for row in rows(text, title) for cell in row]
    found = Page(page)
    headings = {value for tag, value in zip(found.cell_tags, found.cells, strict=True) if tag == "th"}
    assert [value for tag, value in zip(found.cell_tags, found.cells, strict=True) if tag == "td"] == shown
    assert all(heading in text for heading in headings)


def test_the_csv_has_every_pool_with_every_digit(report: Report, small: System) -> None:
    lines = csv_rows(render_report(report, small, "csv"))
    plan = solve(small)
    first = [line for line in lines if line["replicas"]]
    assert len(first) == sum(len(pools) for pools in plan.allocations.values())
    assert len(lines) == 2 * len(first)  # every server has targets of the ITL and of the TTFT
    for line in first:
        (pool,) = plan.allocations[line["server"]]
        assert float(line["mean ITL [ms]"]) == pool.itl_ms
        assert float(line["cost [cents/h]"]) == pool.cost_cents_per_h
        assert int(line["replicas"]) == pool.num_replicas
    assert math.isclose(sum(float(line["cost [cents/h]"]) for line in first), plan.total_cost_cents_per_h)
    for line in lines:
        (pool,) = plan.allocations[line["server"]]
        assert line["statistic"] == "mean"
        assert float(line["value [ms]"]) == (pool.itl_ms if line["target"] == "ITL" else pool.ttft_ms)
        assert line["limit [ms]"]


NAMES = ["<script>alert(1)</script>", "a|b", "*x* `y` [z](javascript:1)", "&amp; \x07 ＡＩ"]


@pytest.mark.slow
def test_names_are_escaped_everywhere() -> None:
    source = {
        "accelerators": [accelerator('<img src="x" onerror="1">')],
        "models": [profile("m", '<img src="x" onerror="1">')],
        "serviceClasses": [service_class("<b>gold</b>")],
        "servers": [server(name, service="<b>gold</b>") for name in NAMES],
        "count": [{"type": '<img src="x" onerror="1">', "count": 2}],
    }
    system = load_system(source)
    report = make_report(system)
    assert report.plan.unserved
    page = render_report(report, system, "html")
    found = Page(page)
    assert page.count("<script") == 1  # our own
    assert "b" not in found.tags
    assert [value for tag, name, value in found.attributes if tag == "img" and value == "x"] == []
    for name in NAMES[:3]:
        assert name in found.cells
    assert "\x07" not in page
    for picture in re.findall(r'base64,([^"]+)"', page):
        assert b"<script" not in base64.b64decode(picture)
    text = render_report(report, system, "markdown")
    assert "<script" not in text
    assert "<img" not in text
    assert "a\\|b" in text
    assert "\\[z\\](javascript" in text
    assert {line["server"] for line in csv_rows(render_report(report, system, "csv"))} <= set(NAMES)


def one_server(name: str) -> System:
    return load_system(document([server(name)], [accelerator("A")], {"A": 9}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["_x_", "a_b", "__x__", "~~x~~", "http://x.y/z", "*x*", "![x](y)", "&amp;", "`x`"]
)
def test_markdown_shows_a_name_as_it_is(name: str) -> None:
    """Read by a program for Markdown that is not our own; an underscore within a word stays as it is."""
    text = page_of(one_server(name))
    page = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    assert Page(page).cells.count(name) == 3
    assert not {"em", "strong", "s", "a", "img", "code"} & Page(page).tags
    assert "http://" not in text
    assert "a\\_b" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *((name, f"'{name}") for name in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1")),
        *((name, name.replace("\r", "?")) for name in ('a,"b"', "a\nb", "a\rb", "名 🚀", " ")),
    ],
)
def test_no_name_is_a_formula_or_breaks_a_row_of_the_csv(name: str, shown: str) -> None:
    (line,) = csv_rows(page_of(one_server(name), "csv"))
    assert (line["server"], line["accelerator"]) == (shown, "A")


def edge(**changes: Any) -> System:
    """Return two servers on two types."""
    rate = changes.pop("rate", 60.0)
    source = document(
        [server("s", rate, replicas=changes.pop("replicas", 0)), server("t", rate)],
        [accelerator("A"), accelerator("B", cost=5)],
        changes.pop("units", {"A": 5, "B": 5}),
        **changes,
    )
    return load_system(source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"units": {"A": 0, "B": 0}}, ["2 servers are not served in full", "not served", "0 of 0 are"]),
        ({"units": {"A": 5}}, ["There are no cards of B.", "Every server is served in full."]),
        ({"classes": [service_class("gold", itl=0.1)]}, ["best ITL at batch 1", "No server runs."]),
        ({"rate": 0.0}, ["Every server is idle and needs nothing.", "No server runs."]),
        ({"rate": 0.0, "replicas": 1}, ["Every server is served in full.", "idle"]),
        ({"units": None}, ["with any number of cards", "with any number of cards"]),
        ({}, ["The numbers of cards change nothing"]),
    ],
)  # fmt: skip
def test_every_case_has_its_words(changes: dict[str, Any], words: list[str]) -> None:
    system = edge(**changes)
    report = make_report(system)
    text, page = (render_report(report, system, form) for form in ("markdown", "html"))
    for word in words:
        assert word in text
        assert word in page
    ids = Page(page).ids
    assert ids == [name for name in SECTIONS if name in ids]
    assert set(ids) >= {"headline", "types", "servers", "assignment", "assumptions", "prices"}
    assert ("unserved" in ids) is not report.plan.complete
    assert ("replicas" in ids) == (changes.get("units", {}) is not None and not report.comparison.same)
    assert ("Serve all: " in text) == (changes.get("units") == {"A": 0, "B": 0})
    assert render_report(report, system, "csv").startswith("server,class,model,priority,")


def scarce() -> System:
    """Return a server of priority 1 that three cards cannot serve, and one of priority 2 that one serves."""
    source = document(
        [server("big", 2000.0), server("small", 60.0, service="tin"), server("idle", 0.0)],
        [accelerator("A", cost=250.0) | {"power": {"idle": 100, "full": 700}}],
        {"A": 3},
        classes=[service_class("gold"), service_class("tin", 2)],
    )
    return load_system(source)


@pytest.mark.slow
def test_servers_that_are_not_served_stand_out() -> None:
    system = scarce()
    report = make_report(system)
    page, text = (render_report(report, system, form) for form in ("html", "markdown"))
    assert Page(page).ids[:6] == ["headline", "targets-picture", "types", "servers", "unserved", "overload"]
    assert '<p class="bad">Not served: ' in page
    assert '<section id="unserved" class="alert">' in page
    assert '<div class="alert"><dt>served in full</dt><dd>2 of 3 servers</dd><dd class="note">' in page
    assert page.count('class="alert"') == 2
    assert "| served in full | **2 of 3 servers** |" in text
    shown = {row[0]: row[3:5] for row in rows(text, "Assignment")}
    assert shown == {"big": ["not served", "0"], "small": ["A", "1"], "idle": ["idle", "0"]}
    places = {row[0]: row[2] for row in rows(text, "Servers")}
    assert places["big"] == "not served: 0 of 33.3 requests/s"
    assert (places["small"], places["idle"]) == ("1 × A", "idle")
    table = {row["server"]: row for row in csv_rows(render_report(report, system, "csv"))}
    assert {name: row["served [share]"] for name, row in table.items()} == {
        "big": "0.0", "small": "1.0", "idle": "1.0"
    }  # fmt: skip
    assert (table["big"]["replicas"], table["big"]["class"]) == ("0", "gold")


@pytest.mark.slow
def test_power_is_shown_per_pool_and_per_card() -> None:
    system = scarce()
    report = make_report(system)
    (row,) = (row for row in report.overview.pools if row.server == "small")
    assert row.power_w is not None
    shown = {row[0]: row for row in rows(render_report(report, system, "markdown"), "Assignment")}
    assert ["small", *shown["small"][-2:]] == [
        "small", f"{row.power_w:,.0f}", f"{row.power_w / row.cards:,.0f}"
    ]  # fmt: skip
    without = {name: item.model_copy(update={"power": Power()}) for name, item in system.accelerators.items()}
    plain = system.with_items(*without.values())
    report = make_report(plain)
    for form in ("html", "markdown", "csv"):
        assert "power" not in render_report(report, plain, form)
    assert "power" not in report.to_json()


@pytest.mark.slow
@pytest.mark.parametrize(("percentile", "words"), [({}, "% ITL "), ({"percentile": 95}, "% p95 ITL ")])
def test_latencies_are_called_what_they_are(percentile: dict[str, int], words: str) -> None:
    classes = [service_class("gold", itl=60, ttft=3000)]
    classes[0]["modelTargets"][0] |= percentile
    source = document(
        [server("a")], [accelerator("A")], {"A": 3}, classes=classes,
        models=[{"name": "m", "acc": "A", "queueModel": "continuous", "maxBatchSize": 8,
                 "perfParms": {"alpha": 10, "beta": 0.05, "gamma": 0.0002}}],
    )  # fmt: skip
    system = load_system(source)
    report = make_report(system)
    text, page = (render_report(report, system, form) for form in ("markdown", "html"))
    assert words in text.partition("## Servers")[2].partition("##")[0]
    assert "Figures in steady state, by the queue model continuous; costs in cents/h." in page


@pytest.mark.slow
def test_an_unlimited_report_compares_the_same_two_plans(small: System, report: Report) -> None:
    other = make_report(small, unlimited=True)
    assert other.comparison == report.comparison
    assert "with any number of cards" in render_report(other, small, "markdown")


@pytest.mark.slow
def test_a_page_says_where_it_comes_from_and_of_which_day_it_is(small: System, report: Report) -> None:
    origin = PageMetadata("1.2.3", "<b>fleet", "2026-11-22")
    page = render_report(report, small, "html", origin)
    text = render_report(report, small, "markdown", origin)
    assert "Made by inferplan 1.2.3 from &lt;b&gt;fleet as of 2026-11-22." in page
    assert text.splitlines()[2] == "Made by inferplan 1.2.3 from &lt;b&gt;fleet as of 2026-11-22."
    assert "Made by inferplan." in render_report(report, small, "html")


@pytest.fixture(scope="module")
def grown(specs: Path) -> str:
    """The page of gpus.yaml at 50 % more load."""
    return page_of(scale_loads(load_system(specs / "gpus.yaml"), 1.5))


@pytest.mark.slow
def test_a_report_starts_with_a_memo_that_stands_alone(specs: Path, grown: str) -> None:
    """Costs are those of solve, 730 and 8,760 hours of them; the missing cards are those of compare."""
    start = grown[: grown.index("## Cards and cost by accelerator type")]
    for row in (
        "total cost | 180.80 USD/h", "cost per month (730 h) | 131,984.00 USD",
        "cost per year (8,760 h) | 1,583,808.00 USD", "served in full | **8 of 10 servers**",
    ):  # fmt: skip
        assert f"| {row} |" in start
    assert "Not served: " in start
    assert "Serve all: +7 H100 +11 H200, 171.60 USD/h in total." in start
    assert "The tightest target is TTFT of batch-llama-3.1-70b: 60,000 of 60,000 ms (100%, met)" in start
    system = load_system(specs / "gpus.yaml")
    complete = page_of(system).partition("## Cards and cost")[0]
    assert "129.20 USD/h, 72.80 if token times are typical (the middle of their estimates)." in complete
    assert (
        "All targets hold up to 1.25 times the load; at 1.5 times, 2 servers are not served in full"
        in complete
    )
    assert "Measure first: " in complete
    assert "With 12 more H200 the same service would cost 121.40 USD/h, 7.80 USD/h less." in complete
    assert "Less than 5% of a target is left: " in grown


@pytest.mark.slow
def test_a_report_states_growth_reasons_and_prices(specs: Path, grown: str) -> None:
    """Costs and repairs at 50 % more load are those of sweep and explain."""
    system = load_system(specs / "gpus.yaml")
    report = make_report(system)
    page = render_report(report, system, "markdown")
    growth = [*rows(page, "If loads grow")]
    assert [row[:2] for row in growth] == [
        ["1", "129.20"], ["1.25", "155.60"], ["1.5", "180.80"], ["1.75", "160.80"], ["2", "178.80"]
    ]  # fmt: skip
    assert (
        "1.25 times the load is served in full, for 155.60 USD/h. "
        "At 1.5 times, 2 servers are not served in full. What is not served costs nothing" in page
    )
    reasons = {row[0]: row[1:] for row in rows(page, "Why this accelerator")}
    assert reasons["chat-llama-3.1-70b"][:2] == ["2 × 4xH100", "ITL target"]
    assert rows(page, "What a card is worth")[2] == ["H200", "16", "16", "0", "-2.20", "+1.00", "1.76"]
    assert ["4xH100", "H100", "4", "12.00", "3.00", "yes"] in rows(page, "Prices")
    assert "load is served in part by the policy PriorityExhaustive." in page
    repairs = grown.partition("## What would serve everything")[2]
    assert "fewest cards: +1 H100 +2 H200; the plan then costs 187.80 USD/h (+7.00)" in repairs
    short = render_report(make_report(system, brief=True), system, "markdown")
    assert "## If loads grow" not in short
    assert "## Why this accelerator" not in short


def test_a_brief_report_states_the_use_of_limits(specs: Path) -> None:
    system = load_system(specs / "robust.yaml")
    used = solve(system).limits
    found = rows(render_report(make_report(system, brief=True), system, "markdown"), "Limits")
    assert [row[:2] for row in found] == [["budget", "total cost"], ["power", "all replicas"]]
    assert [row[2] for row in found] == [f"{use.used:,.0f}" for use in used]


@pytest.mark.slow
def test_requests_without_tokens_have_no_lengths(specs: Path) -> None:
    system = load_system(specs / "queue-servers")
    page = render_report(make_report(system, brief=True), system, "markdown")
    assert "## Assignment" in page
    assert "input [tokens]" not in page
    mixed = page_of(load_system(specs / "multi-model-service"))
    assert "input [tokens]" in mixed
    assert ["-", "-"] in [row[6:8] for row in rows(mixed, "Assignment")]


@pytest.mark.slow
def test_a_report_of_a_greedy_plan_has_no_reasons(specs: Path) -> None:
    report = make_report(load_system(specs / "gpus.yaml"), milp_solver=False)
    assert report.explanation is None
    assert report.growth is not None


def test_risks_state_errors_and_ranges_of_measured_times() -> None:
    domain = {"inTokens": [100, 200], "outTokens": [10, 900], "rate": [1, 9], "concurrency": [1, 99]}
    errors = {"ttft": 0.12, "itl": 0.034, "ttftMedian": 0.1, "itlMedian": 0.03, "runs": 8}
    measured = profile("m", "A") | {
        "provenance": {"source": "bench", "runs": 8, "domain": domain, "errors": errors}
    }
    system = load_system(document([server("s")], [accelerator("A")], {"A": 9}, models=[measured]))
    risks = page_of(system).partition("## Risks")[2].partition("\n## ")[0]
    assert (
        "Fits of measured token times (1 pool) have errors of up to 12% of the TTFT and 3% of the ITL."
        in risks
    )
    assert "Outside the measured range: s on A: prompts of" in risks


@pytest.mark.slow
def test_measured_token_times_need_no_measurement(specs: Path) -> None:
    system = load_system(specs / "chat.yaml")
    assert "Measure first" not in render_report(make_report(system), system, "markdown")
