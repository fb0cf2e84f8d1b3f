"""Plans as rows: in data frames and in notebooks, with every server of the plan."""

import re
import sys

import pytest
from builders import accelerator, document, server

from optimizer import InferplanError, MissingExtraError, Plan, load_system, solve

NAMES = ["a<b>&", "t", "z idle"]


@pytest.fixture(scope="module")
def plan() -> Plan:
    servers = [server("t", replicas=2), server("a<b>&", 1e6), server("z idle", 0.0)]
    return solve(load_system(document(servers, [accelerator("A")], {"A": 3})))


@pytest.mark.slow
def test_data_frames_have_rows_for_pools_and_unserved_servers(plan: Plan) -> None:
    frame = plan.to_dataframe()
    assert list(frame["server"]) == NAMES
    assert list(frame["num_replicas"]) == [0, 2, 0]
    assert frame["cost_cents_per_h"].sum() == plan.total_cost_cents_per_h
    row = frame[frame["server"] == "t"].iloc[0]
    pool = plan.allocations["t"][0]
    assert {name: row[name] for name, value in pool if value is not None} == {
        name: value for name, value in pool if value is not None
    }
    assert list(frame["reason"].fillna("")) == ["capacity", "", ""]
    assert list(frame["served_fraction"]) == [0.0, 1.0, 1.0]
    assert frame["ttft_ms"].isna().tolist() == [True, False, True]


@pytest.mark.slow
def test_a_mixed_plan_has_a_row_for_each_pool(specs: object) -> None:
    found = solve(load_system(f"{specs}/small").with_options(heterogeneous=True))
    assert len(found.to_dataframe()) >= sum(map(len, found.allocations.values()))


def test_a_notebook_shows_names_as_text(plan: Plan) -> None:
    html = plan._repr_html_()
    caption = "optimal plan, 20.00 cents/h, 2 of 3 servers served in full"
    assert html.startswith(f"<table><caption>{caption}</caption>")
    assert len(re.findall("<tr[ >]", html)) == 1 + len(NAMES)
    assert "<td>a&lt;b&gt;&amp;</td>" in html
    assert "<b>" not in html


def test_a_notebook_shows_the_currency_estimates_and_latencies() -> None:
    """An estimated profile, prices in euros, a percentile; a server that is not served stands out."""
    name = "llama-3.1-8b"
    target = {"model": name, "percentile": 95, "slo-ttft": 2000, "slo-itl": 90}
    source = document(
        [server("a", 60.0, service="chat", model=name), server("b", 1e6, service="chat", model=name)],
        [accelerator("L40S") | {"cost": "0.90 EUR/h"}],
        {"L40S": 2},
        classes=[{"name": "chat", "priority": 1, "modelTargets": [target]}],
        models=[{"name": name, "acc": "L40S", "perfParms": "estimate"}],
    )
    found = solve(load_system(source))
    (pool,) = found.allocations["a"]
    html = found._repr_html_()
    assert "0.90 EUR/h, 1 of 2 servers served in full; token times are estimated, not measured" in html
    assert "<th>cost [EUR/h]</th>" in html
    assert "<td>L40S</td>" in html
    assert f'<td style="text-align:right">{pool.itl_ms:,.1f}</td>' in html
    assert f'<td style="text-align:right">{pool.ttft_ms:,.0f}</td>' in html
    assert "p95 TTFT" in html
    assert [row.count("color:") for row in html.split("<tr")[2:]] == [0, 1]


def test_a_notebook_shows_batch_servers_by_their_latency(plan: Plan) -> None:
    """A pool with a window answers requests together; what it shows as TTFT is the latency of these."""
    pools = {
        name: tuple(pool.model_copy(update={"batch_window_ms": 5.0}) for pool in mine)
        for name, mine in plan.allocations.items()
    }
    html = plan.model_copy(update={"allocations": pools})._repr_html_()
    assert "<th>mean latency [ms]</th>" in html
    assert f'<td style="text-align:right">{plan.allocations["t"][0].ttft_ms:,.0f}</td>' in html
    assert "ITL [ms]" not in html


def test_without_pandas_one_line_says_what_to_install(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError) as caught:
        plan.to_dataframe()
    assert (
        str(caught.value)
        == "pandas is not installed; in a clone of the repository, run: pip install -e '.[pandas]'"
    )
    assert isinstance(caught.value, InferplanError)
    assert isinstance(caught.value, ImportError)
