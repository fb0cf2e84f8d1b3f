"""Figures of one server: every curve against an independent queue, a second sizing or plain arithmetic."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from builders import accelerator, document, profile, server, service_class, system
from panels import curves, points
from queue_oracles import Linear, Machine

from optimizer import Figure, SpecError, System, find_candidates, load_system, make_figure, solve
from optimizer.studies.figures.figure_document import CurvePanel
from optimizer.studies.figures.prices import front
from optimizer.timing import PerfParms

TTFT, ITL = 60.0, 13.0
"""Targets of the fleet below, in ms: on A the ITL binds at large batches."""


@pytest.fixture(scope="module")
def fleet() -> System:
    """One loaded server on a fast dear accelerator A and a slow cheap one B, and an idle one."""
    return system(
        [server("s", rate=1500), server("idle", rate=0)],
        [accelerator("A", cost=30), accelerator("B", cost=12)],
        models=[profile("m", "A"), profile("m", "B", alpha=12.0)],
        classes=[service_class("gold", ttft=TTFT, itl=ITL)],
    )


def machine(alpha: float = 10.0, batch: int = 8) -> Machine:
    """Return the replica of `fleet` as the oracle knows it; see `builders.profile` and `builders.server`."""
    return Machine(Linear(alpha, 0.5, 5.0, 0.01, 16, 64), batch, 10 * batch)


def guide(panel: CurvePanel, name: str) -> float:
    return next(item.value for item in panel.guides if item.name.startswith(name))


def test_occupancy_is_the_stationary_distribution(fleet: System) -> None:
    """Against the null vector of the whole generator matrix, which knows nothing of birth and death."""
    panel = curves(make_figure(fleet, "occupancy", server="s", accelerator="A"))
    column = {c["accelerator"]: c for c in find_candidates(fleet).to_wire()["candidates"]}["A"]
    assert isinstance(column["numReplicas"], int)
    rate = 1500 / 60_000 / column["numReplicas"]
    departures = machine().departures()
    size = 8 + 80 + 1
    generator = np.zeros((size, size))
    for state in range(size - 1):
        generator[state, state + 1] = rate
        generator[state + 1, state] = departures[min(state, 7)]
    generator -= np.diag(generator.sum(axis=1))
    equations = np.vstack([generator.T, np.ones(size)])
    expected = np.linalg.lstsq(equations, np.append(np.zeros(size), 1), rcond=None)[0]
    shown = [pair for series in panel.series for pair in points(series)]
    assert [x for x, _ in shown] == list(range(len(shown)))
    assert [y for _, y in shown] == pytest.approx(expected[: len(shown)], rel=1e-6, abs=1e-12)
    assert 1 - 1e-3 < sum(y for _, y in shown) <= 1 + 1e-12
    assert max(x for x, _ in points(panel.series[0])) == 8
    assert guide(panel, "mean") == pytest.approx(float(expected @ np.arange(size)), rel=1e-9)


def test_latencies_against_load_are_those_of_the_queue(fleet: System) -> None:
    figure = make_figure(fleet, "latency", server="s", accelerator="A")
    for panel, name, target in ((0, "itl", ITL), (1, "ttft", TTFT)):
        found = curves(figure, panel)
        for rpm, value in points(found.series[0])[::40]:
            assert value == pytest.approx(getattr(machine().see(rpm / 60), name), rel=1e-6)
        assert guide(found, "target") == target
        largest = machine().largest_rate(TTFT, ITL)
        assert largest is not None
        assert guide(found, "largest") == pytest.approx(60 * largest, rel=1e-6)
        assert guide(found, "load") <= guide(found, "largest")


def test_every_batch_limit_has_its_largest_load_and_latencies(fleet: System) -> None:
    figure = make_figure(fleet, "batch", server="s", accelerator="A")
    rates, itl, ttft = (dict(points(curves(figure, panel).series[0])) for panel in range(3))
    assert list(rates) == list(range(1, 9))
    for batch in rates:
        replica = machine(batch=int(batch))
        largest = replica.largest_rate(TTFT, ITL)
        assert largest is not None
        assert rates[batch] == pytest.approx(60 * largest, rel=1e-6)
        assert itl[batch] == pytest.approx(replica.see(largest).itl, rel=1e-6)
        assert ttft[batch] == pytest.approx(replica.see(largest).ttft, rel=1e-5)


@pytest.mark.slow
def test_batch_limits_are_shown_over_equal_factors(fleet: System, specs: Path) -> None:
    batch = make_figure(fleet, "batch", server="s", accelerator="A")
    of_batches = make_figure(load_system(specs / "queue-servers"), "batch", server="flask")
    for panel in (*batch.panels, *of_batches.panels):
        assert isinstance(panel, CurvePanel)
        assert "x" in panel.logarithmic


def test_missing_occupancy_of_estimated_profiles_is_explained() -> None:
    source: dict[str, Any] = document([server("s", rate=60)], [accelerator("H100", "H100")])
    source["models"] = [{"name": "llama-3.1-8b", "acc": "H100", "perfParms": "estimate"}]
    source["servers"][0]["model"] = "llama-3.1-8b"
    source["serviceClasses"][0]["modelTargets"] = [{"model": "llama-3.1-8b", "slo-itl": 60}]
    figure = make_figure(load_system(source), "occupancy")
    assert figure.panels == ()
    assert "the token times of llama-3.1-8b on H100 are estimated, and estimates use" in figure.note
    assert "set queueModel: reference in the profile" in figure.note
    source["models"][0]["queueModel"] = "reference"  # what the note says to do gives the figure
    assert make_figure(load_system(source), "occupancy").panels


def test_token_times_are_the_law_of_the_profile(fleet: System) -> None:
    figure = make_figure(fleet, "timing", server="s", accelerator="B")
    for batch, value in points(curves(figure, 0).series[0]):
        assert value == pytest.approx(12 + 0.5 * batch)
    for batch, value in points(curves(figure, 1).series[0]):
        assert value == pytest.approx(5 + 0.01 * 16 * batch)


def test_token_times_of_the_iteration_law_step_with_the_chunks() -> None:
    """At a constant batch n the prefill is n-1 others' shares of c iterations and the prompt's own work."""
    parms = {"alpha": 10.0, "beta": 0.05, "gamma": 0.0}
    one = system(
        [server("s", rate=60)],
        [accelerator("A")],
        models=[profile("m", "A") | {"decodeParms": None, "prefillParms": None, "perfParms": parms,
                                     "maxNumTokens": 64}],
    )  # fmt: skip
    law = PerfParms.model_validate(parms)
    chunks = {}
    for n in range(1, 9):
        chunks[n] = next(k for k in range(1, 99) if (k + 64) * (64 - 16 / k) >= n * 80)
    figure = make_figure(one, "timing", accelerator="A")
    prefill = dict(points(curves(figure, 1).series[0]))
    for batch, value in prefill.items():
        c = chunks[int(batch)]
        per_iteration = law.compute_per_token_ms * (16 + 64) / (c + 64)
        expected = c * (law.base_ms + (batch - 1) * per_iteration) + law.compute_per_token_ms * 16
        assert value == pytest.approx(expected)


@pytest.mark.parametrize("rate", [1.0, 333.0, 1500.0, 2222.0, 3000.0])
def test_the_cost_curve_says_what_sizing_at_that_load_says(fleet: System, rate: float) -> None:
    panel = curves(make_figure(fleet, "cost", server="s"))
    at_rate = find_candidates(fleet.with_load("s", arrival_rate_rpm=rate)).to_wire()["candidates"]
    expected = {c["accelerator"]: c["cost"] for c in at_rate}
    assert {series.name for series in panel.series} == set(expected)
    for series in panel.series:
        after = next(y for x, y in points(series) if x >= rate)
        assert after == expected[series.name]
    assert guide(panel, "load") == 1500


def test_the_cost_curve_starts_at_the_least_number_of_replicas() -> None:
    one = system([server("s", rate=60, replicas=3)], [accelerator("A", cost=7)])
    panel = curves(make_figure(one, "cost"))
    assert points(panel.series[0])[0] == (0, 21)


def test_cost_curve_ends_at_the_replica_limit() -> None:
    one = system(
        [server("s", rate=1500, maxNumReplicas=2)],
        [accelerator("A", cost=7)],
        classes=[service_class("gold", itl=13)],
    )
    panel = curves(make_figure(one, "cost"))
    assert max(y for _, y in points(panel.series[0])) == 14
    most = machine().largest_rate(0, 13)
    assert most is not None
    assert max(x for x, _ in points(panel.series[0])) == pytest.approx(2 * 60 * most, rel=1e-6)


def test_occupancy_of_a_long_queue_is_cut_at_rare_states() -> None:
    """Room for 10⁹ behind the batch; a queue that hardly waits, and one that is full all the time."""
    one = system([server("s", rate=300, maxQueueSize=10**9)], [accelerator("A")])
    panel = curves(make_figure(one, "occupancy"))
    shown = [pair for series in panel.series for pair in points(series)]
    assert len(shown) < 200
    assert sum(y for _, y in shown) == pytest.approx(1, abs=1e-3)
    low, high = (machine().see(5.0), sum(x * y for x, y in shown))
    assert high == pytest.approx(low.in_service + low.wait / 1000 * low.throughput, rel=0.01)


def test_front_points_are_undominated_and_match_the_queue(fleet: System) -> None:
    """Brute force: every accelerator, every halved batch, every number of replicas that was looked at."""
    panel = curves(make_figure(fleet, "pareto", server="s"), 1)
    assert panel.series[-2].style == "front"
    shown = points(panel.series[-2])
    ways = []
    for (alpha, cost), batch, count in product(((10.0, 30.0), (12.0, 12.0)), (8, 4, 2, 1), range(1, 80)):
        rate = 1500 / 60 / count
        replica = machine(alpha, batch)
        if rate < replica.stable() and cost * count <= shown[-1][0]:
            seen = replica.see(rate)
            if seen.itl <= ITL:
                ways.append((cost * count, seen.ttft))
    for cost, latency in shown:
        assert any(c == cost and t == pytest.approx(latency, rel=1e-6) for c, t in ways)
        assert not [t for c, t in ways if c <= cost and t < latency * (1 - 1e-6)]
    assert [x for x, _ in shown] == sorted({x for x, _ in shown})
    assert [y for _, y in shown] == sorted({y for _, y in shown}, reverse=True)


def test_front_spans_expensive_fast_and_cheap_slow() -> None:
    """A costs nine times as much as B, and B meets the target; the TTFT of B with few replicas is far off."""
    one = system(
        [server("s", rate=3000)],
        [accelerator("A", cost=90), accelerator("B", cost=10)],
        models=[profile("m", "A", alpha=2.0), profile("m", "B", alpha=12.0)],
        classes=[service_class("gold", ttft=TTFT, itl=20)],
    )
    figure = make_figure(one, "pareto")
    itl, ttft = curves(figure, 0), curves(figure, 1)
    fast = points(next(series for series in itl.series if series.name == "A"))
    assert fast[-1] == points(itl.series[-2])[-1]
    assert fast[-1][0] > 3 * points(itl.series[-2])[0][0]
    assert points(ttft.series[-2])[0][1] > 2 * TTFT
    assert ttft.logarithmic == ("x", "y")


def test_accelerators_without_points_are_counted_in_the_note() -> None:
    names = "ABCDEFGH"
    one = system(
        [server("s", rate=1500)],
        [accelerator(name, cost=10 + i) for i, name in enumerate(names)],
        models=[profile("m", name) for name in names],
    )
    figure = make_figure(one, "pareto")
    assert len(curves(figure).series) == 6 + 2
    assert "points of 6 accelerators" in figure.note
    assert "2 others" in figure.note
    assert "others" not in make_figure(one, "pareto", accelerator="A").note


def test_accelerator_markers_match_in_both_front_panels() -> None:
    """Signs go by the place among the series; 4xG2 and 4xMI250 cross between the two latencies."""
    large = load_system(Path(__file__).parents[2] / "specs" / "large")
    figure = make_figure(large, "pareto", server="Premium-llama_70b")
    named = [[series.name for series in curves(figure, panel).series] for panel in (0, 1)]
    assert named[0] == named[1]
    assert named[0][-2] == "Pareto front"
    assert {"4xG2", "4xMI250"} <= set(named[0])


def test_the_point_that_the_plan_has_chosen_is_marked(fleet: System) -> None:
    (pool,) = solve(fleet).allocations["s"]
    for panel, latency_ms in ((0, pool.itl_ms), (1, pool.ttft_ms)):
        chosen = curves(make_figure(fleet, "pareto", server="s"), panel).series[-1]
        assert chosen.style == "chosen"
        assert chosen.name == f"plan: {pool.num_replicas} × {pool.accelerator}"
        assert points(chosen) == [(pool.cost_cents_per_h, latency_ms)]


def test_an_expensive_accelerator_does_not_flatten_cost_curves() -> None:
    one = system(
        [server("s", rate=1500)],
        [accelerator("A", cost=10), accelerator("B", cost=15), accelerator("C", cost=9000)],
        models=[profile("m", name) for name in "ABC"],
    )
    figure = make_figure(one, "cost")
    panel = curves(figure)
    assert [series.name for series in panel.series] == ["A", "B"]
    ends = [max(y or 0 for y in series.y) for series in panel.series]
    assert panel.y_most == 3 * ends[0] >= ends[1]
    assert figure.note.endswith("far above the axis: C")
    assert curves(make_figure(one, "cost", accelerator="C")).y_most is None


def test_the_front_is_what_no_other_row_beats() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        cost, latency = rng.integers(0, 8, (2, 12)).astype(float)
        kept = set(zip(cost[front(cost, latency)], latency[front(cost, latency)], strict=True))
        expected = {
            (c, t)
            for c, t in zip(cost, latency, strict=True)
            if not any((a <= c and b < t) or (a < c and b <= t) for a, b in zip(cost, latency, strict=True))
        }
        assert kept == expected
    assert len(front(np.zeros(0), np.zeros(0))) == 0


def test_without_an_accelerator_it_is_the_one_of_the_plan(fleet: System) -> None:
    (pool,) = solve(fleet).allocations["s"]
    figure = make_figure(fleet, "latency", server="s")
    assert figure.title.endswith(f"s on {pool.accelerator}")
    assert guide(curves(figure), "load") == pytest.approx(pool.arrival_rate_rpm / pool.num_replicas)


def test_a_mixed_server_shows_its_largest_pool() -> None:
    one = system(
        [server("s", rate=1500)],
        [accelerator("A", cost=30), accelerator("B", cost=12)],
        {"A": 1, "B": 2},
        heterogeneous=True,
        milpSolver=True,
    )
    pools = solve(one).allocations["s"]
    assert len(pools) == 2
    figure = make_figure(one, "occupancy")
    assert "the largest of its 2 pools" in figure.note
    assert "s on B" in figure.title


@pytest.mark.parametrize("kind", ["batch", "latency", "cost", "pareto"])
def test_without_a_target_no_figure_speaks_of_one(kind: str) -> None:
    one = system([server("s", rate=60)], [accelerator("A")], classes=[service_class("gold")])
    figure = make_figure(one, kind, accelerator="A")
    said = [figure.title, figure.note.replace("there is no target", ""), *(p.title for p in figure.panels)]
    assert len(figure.panels) > 0
    assert not [text for text in said if "target" in text]


def test_of_two_targets_the_other_one_is_held() -> None:
    one = system([server("s", rate=60)], [accelerator("A")], classes=[service_class("gold", itl=20)])
    titles = [panel.title for panel in make_figure(one, "pareto").panels]
    assert titles == ["Inter-token latency", "Time to first token, with the ITL target held"]


REPLICA_AND_SERVER = ["occupancy", "batch", "latency", "timing", "cost", "pareto"]


NO_TIMES: dict[str, Any] = {"decodeParms": {"alpha": 0, "beta": 0.5}, "prefillParms": {}}
NO_PROMPT = {"currentAlloc": {"load": {"arrivalRate": 60, "avgInTokens": 0, "avgOutTokens": 1}}}
A, A_AND_B = [accelerator("A")], [accelerator("A"), accelerator("B")]
UNATTAINABLE = [service_class("gold", itl=1)]


@pytest.mark.parametrize(
    ("one", "accelerators", "kinds", "words"),
    [
        (system([server("s", 0)], A), (None, "A"), REPLICA_AND_SERVER, ["s is idle"]),
        (
            system([server("s")], A, classes=UNATTAINABLE),
            (None, "A"),
            ["occupancy", "batch", "cost", "pareto"],
            ["no accelerator meets its targets", "best ITL at batch 1"],
        ),
        (
            system([server("s")], A_AND_B, models=[profile("m", "A")]),
            ("B",),
            REPLICA_AND_SERVER,
            ["no token times of m on B are known"],
        ),
        (
            system([server("s") | NO_PROMPT], A, models=[profile("m", "A") | NO_TIMES]),
            ("A",),
            REPLICA_AND_SERVER,
            ["service time of a request is zero"],
        ),
    ],
    ids=["idle", "no accelerator will do", "no profile", "no time"],
)
def test_where_nothing_can_be_shown_the_note_says_why(
    one: System, accelerators: Sequence[str | None], kinds: Sequence[str], words: Sequence[str]
) -> None:
    for kind, name in product(kinds, accelerators):
        figure = make_figure(one, kind, accelerator=name)
        assert figure.panels == ()
        assert any(text in figure.note for text in words)


@pytest.mark.parametrize("kind", ["latency", "timing"])
def test_what_misses_its_target_can_be_looked_at(kind: str) -> None:
    one = system([server("s")], A, classes=UNATTAINABLE)
    assert len(make_figure(one, kind, accelerator="A").panels) == 2


def test_a_missing_or_wrong_name_is_an_error_with_the_choices(fleet: System) -> None:
    with pytest.raises(SpecError, match="server: not given; name one of idle, s"):
        make_figure(fleet, "cost")
    with pytest.raises(SpecError, match="server: 'S9' does not exist"):
        make_figure(fleet, "cost", server="S9")
    for kind in ("latency", "cost"):
        with pytest.raises(SpecError, match="accelerator: 'Z' does not exist; name one of A, B"):
            make_figure(fleet, kind, server="s", accelerator="Z")
    with pytest.raises(SpecError, match="kind: 'pie' does not exist; there are plan, load"):
        make_figure(fleet, "pie")


@pytest.mark.parametrize("kind", REPLICA_AND_SERVER)
def test_a_figure_is_a_document(fleet: System, kind: str) -> None:
    figure = make_figure(fleet, kind, server="s", accelerator="A")
    assert Figure.model_validate_json(figure.to_json()) == figure
    assert make_figure(fleet, kind, server="s", accelerator="A").to_json() == figure.to_json()


def test_figures_of_a_server_do_not_depend_on_others(fleet: System) -> None:
    alone = replace(fleet, servers=MappingProxyType({"s": fleet.servers["s"]}))
    for kind in REPLICA_AND_SERVER:
        assert make_figure(alone, kind) == make_figure(fleet, kind, server="s")
