"""Figures of one server: every curve against an independent queue, a second sizing or plain arithmetic."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from builders import accelerator, profile, server, service_class, system
from panels import curves, points
from queue_oracles import Linear, Machine

from optimizer import Figure, SpecError, System, find_candidates, load_system, make_figure, solve
from optimizer.studies.figures.figure_document import CurvePanel

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


@pytest.mark.parametrize("rate", [1.0, 333.0, 1500.0, 2222.0, 3000.0])
def test_the_cost_curve_says_what_sizing_at_that_load_says(fleet: System, rate: float) -> None:
    panel = curves(make_figure(fleet, "cost", server="s"))
    at_rate = find_candidates(fleet.with_load("s", arrival_rate_rpm=rate)).to_wire()["candidates"]
    expected = {c["accelerator"]: c["costCentsPerH"] for c in at_rate}
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
    figure = make_figure(one, "latency")
    assert "the largest of its 2 pools" in figure.note
    assert "s on B" in figure.title


@pytest.mark.parametrize("kind", ["batch", "latency", "cost"])
def test_without_a_target_no_figure_speaks_of_one(kind: str) -> None:
    one = system([server("s", rate=60)], [accelerator("A")], classes=[service_class("gold")])
    figure = make_figure(one, kind, accelerator="A")
    said = [figure.title, figure.note.replace("there is no target", ""), *(p.title for p in figure.panels)]
    assert len(figure.panels) > 0
    assert not [text for text in said if "target" in text]


REPLICA_AND_SERVER = ["batch", "latency", "cost"]


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
            ["batch", "cost"],
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


def test_what_misses_its_target_can_be_looked_at() -> None:
    one = system([server("s")], A, classes=UNATTAINABLE)
    assert len(make_figure(one, "latency", accelerator="A").panels) == 2


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
