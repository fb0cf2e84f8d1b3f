"""Shared queues whose servers have request shapes: equal forms, plans, verification, simulation, refusals."""

from typing import Any

import numpy as np
import pytest
from builders import Json

from optimizer import Plan, SpecError, load_system, simulate, solve, verify
from optimizer.render.shape_sections import shape_sections

LAW = {"alpha": 7.331050698507463, "beta": 0.020968038510257643, "gamma": 4.603055311676909e-05}
CHAT = {"name": "chat", "share": 0.9, "avgInTokens": 500, "avgOutTokens": 200, "outTokensCV": 0.5}
DOCS = {"name": "docs", "share": 0.1, "avgInTokens": 6000, "avgOutTokens": 300, "outTokensCV": 0.5}
LONG = DOCS | {"avgInTokens": 30_000}
MIX: Json = {"arrivalRate": "24/s", "shapes": [CHAT, DOCS]}
WITH_LONG: Json = {"arrivalRate": "4/s", "shapes": [CHAT, LONG]}
SHORT = {
    "arrivalRate": "20/s",
    "avgInTokens": 500,
    "avgOutTokens": 200,
    "inTokensCV": 0.3,
    "outTokensCV": 0.5,
}
HEAD = {"prefixTokens": 5000, "prefixHitRate": 0.8, "prefixStored": "once"}


def document(
    *loads: Json, queue: str | None = "q", priorities: tuple[int, ...] = (1, 2), **target: Any
) -> Json:
    limits = {"model": "m", "percentile": 95, "slo-ttft": "2s", "slo-itl": "50ms"} | target
    profile = {"name": "m", "acc": "H100", "maxBatchSize": 256, "kvCapacity": 448_733, "perfParms": LAW}
    shared = {} if queue is None else {"sharedQueue": queue}
    return {
        "accelerators": [{"name": "H100", "type": "H100", "cost": 400}],
        "count": [{"type": "H100", "count": 40}],
        "models": [profile],
        "serviceClasses": [
            {"name": f"c{i}", "priority": priorities[i], "modelTargets": [limits]} for i in range(len(loads))
        ],
        "servers": [
            {"name": f"s{i}", "class": f"c{i}", "model": "m", "currentAlloc": {"load": load}, **shared}
            for i, load in enumerate(loads)
        ],
    }


def checked(source: Json) -> Plan:
    system = load_system(source)
    plan = solve(system)
    assert verify(plan, system) == []
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("load", [MIX, WITH_LONG, MIX | {"shapes": [CHAT, DOCS | HEAD]}])
def test_a_queue_of_one_server_is_that_server(load: Json) -> None:
    alone, queue = checked(document(load, queue=None)), checked(document(load))
    (plain,), (shared,), member = alone.allocations["s0"], queue.allocations["q"], queue.members["s0"]
    for name in ("num_replicas", "max_arrival_rate_rpm", "itl_ms", "ttft_ms", "utilization"):
        assert getattr(shared, name) == pytest.approx(getattr(plain, name), rel=1e-12)
    assert (member.shapes, member.targets, member.doubts) == (plain.shapes, plain.targets, plain.doubts)


def test_one_shape_of_each_server_is_its_mean_request() -> None:
    other = {
        "arrivalRate": "5/s",
        "avgInTokens": 3000,
        "avgOutTokens": 100,
        "inTokensCV": 0,
        "outTokensCV": 1,
    }
    shaped = [
        {
            "arrivalRate": load["arrivalRate"],
            "shapes": [{**load, "arrivalRate": None, "name": "x", "share": 1}],
        }
        for load in (SHORT, other)
    ]
    means, shapes = (checked(document(*loads)) for loads in ((SHORT, other), shaped))
    assert shapes.allocations == means.allocations
    assert shapes.shared_queues == means.shared_queues


@pytest.mark.slow
def test_equal_priorities_are_one_server_with_all_shapes() -> None:
    """Each member then has the latencies that its shapes have in one server with the same requests."""
    rates = [24.0, 4.0]
    loads = [MIX, WITH_LONG]
    shapes = [
        shape | {"name": f"{shape['name']}{i}", "share": shape["share"] * rates[i] / sum(rates)}
        for i, load in enumerate(loads)
        for shape in load["shapes"]
    ]
    one = checked(document({"arrivalRate": "28/s", "shapes": shapes}, queue=None))
    queue = checked(document(*loads, priorities=(3, 3)))
    (plain,), (shared,) = one.allocations["s0"], queue.allocations["q"]
    assert (shared.itl_ms, shared.ttft_ms) == pytest.approx((plain.itl_ms, plain.ttft_ms), rel=1e-9)
    members = [queue.members[name] for name in ("s0", "s1")]
    mine = [shape for member in members for shape in member.shapes]
    for found, expected in zip(mine, plain.shapes, strict=True):
        assert (found.ttft_ms, found.itl_ms) == pytest.approx((expected.ttft_ms, expected.itl_ms), rel=1e-9)
        assert [figure.value for figure in found.targets] == pytest.approx(
            [figure.value for figure in expected.targets], rel=1e-9
        )
    mean = np.average([member.ttft_ms for member in members], weights=rates)
    assert plain.ttft_ms == pytest.approx(mean, rel=1e-9)


@pytest.mark.slow
def test_every_target_of_a_member_limits_the_queue() -> None:
    """The largest rate is that at which the first target of a member, also of one of its shapes, is met."""
    shapes = {"docs": {"slo-ttft": "700ms"}}
    loose, tight = (checked(document(MIX, WITH_LONG, shapes=own)) for own in ({}, shapes))
    (pool,), (other,) = tight.allocations["q"], loose.allocations["q"]
    assert pool.max_arrival_rate_rpm < other.max_arrival_rate_rpm
    figures = [figure for shape in tight.members["s0"].shapes for figure in shape.targets]
    assert "p95 TTFT of docs" in [figure.measure for figure in figures]
    rate = pool.max_arrival_rate_rpm / pool.num_replicas / 28 / 60 * (1 - 1e-9)
    mixed, long = (load | {"arrivalRate": f"{rps * rate}/s"} for load, rps in ((MIX, 24), (WITH_LONG, 4)))
    source = document(mixed, long, shapes=shapes)
    for server in source["servers"]:
        server["maxNumReplicas"] = 1
    members = checked(source).members.values()
    docs = [shape for member in members for shape in member.shapes if shape.name == "docs"]
    figures = [
        *(figure for member in members for figure in member.targets),
        *(figure for shape in docs for figure in shape.targets),
    ]
    ratios = [figure.value / figure.limit for figure in figures]
    assert max(ratios) == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_members_are_simulated_with_their_shapes() -> None:
    source = document(WITH_LONG, SHORT | {"arrivalRate": "9/s"}, MIX, priorities=(1, 2, 2))
    system = load_system(source)
    plan = checked(source)
    found = {pool.server: pool for pool in simulate(system, plan, requests=20_000).pools}
    assert [shape.name for shape in found["s0"].shapes] == ["chat", "docs"]
    assert not found["s1"].shapes
    for name, pool in found.items():
        assert pool.ttft is not None
        assert pool.itl is not None
        assert pool.ttft.mean.value == pytest.approx(plan.members[name].ttft_ms, rel=0.2)
        assert pool.itl.mean.value == pytest.approx(plan.members[name].itl_ms, rel=0.1)
        for shape in pool.shapes:
            assert shape.itl is not None
            assert shape.itl.mean.value == pytest.approx(shape.itl.predicted_mean, rel=0.15)


def test_loads_of_members_change_in_proportion() -> None:
    system = load_system(document(MIX, WITH_LONG))
    queue = system.servers["q"]
    load = queue.current.load.model_copy(update={"arrival_rate_rpm": 2 * queue.current.load.arrival_rate_rpm})
    doubled = queue.with_load(load)
    assert doubled.current.load.arrival_rate_rpm == pytest.approx(2 * 28 * 60)
    assert doubled.current.load.shapes == queue.current.load.shapes


def test_tables_name_members_and_their_shapes() -> None:
    section, *_ = shape_sections(checked(document(MIX, WITH_LONG)))
    assert [row[:2] for row in section.rows] == [
        ("s0", "chat"), ("s0", "docs"), ("s1", "chat"), ("s1", "docs"),
    ]  # fmt: skip
    assert "is set by docs" in " ".join(section.notes)


def test_too_many_shapes_are_refused() -> None:
    many = [CHAT | {"name": f"n{i}", "share": 0.2, "avgInTokens": 100 * (i + 1)} for i in range(5)]
    load = {"arrivalRate": "9/s", "shapes": many}
    with pytest.raises(SpecError, match="10 request shapes share 'q', at most 8 can; join some"):
        load_system(document(load, load))
