"""Figures of servers at their current allocations: those of the plan, and what does not hold."""

from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, profile, server, service_class, system
from commands import Run

from optimizer import SpecError, load_system, solve
from optimizer.studies.current import current_service, with_rate

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.parametrize("name", ["chat.yaml", "shared-queue.yaml", "versions.yaml", "small"])
def test_figures_are_those_of_the_applied_plan(name: str) -> None:
    fleet = load_system(SPECS / name)
    plan = solve(fleet)
    found = current_service(plan.applied_to(fleet))
    assert found.holds == plan.complete
    pools = {(name, pool.accelerator): pool for name, some in plan.allocations.items() for pool in some}
    for row in found.pools:
        pool = pools.get((row.server, row.accelerator)) or plan.members[row.server]
        assert (row.itl_ms, row.ttft_ms) == pytest.approx((pool.itl_ms, pool.ttft_ms))
        assert row.rate_rpm == pytest.approx(pool.arrival_rate_rpm)


def running(**current: Any) -> Any:
    one = server("s", rate=600)
    one["currentAlloc"] |= {"accelerator": "A", "numReplicas": 1} | current
    classes = [service_class("gold", ttft=60, itl=13)]
    return system([one], [accelerator("A"), accelerator("B")], models=[profile("m", "A")], classes=classes)


def test_too_few_replicas_miss_or_overload() -> None:
    (most,) = {pool.max_rate_rpm for pool in current_service(running()).pools}
    assert most is not None
    assert current_service(with_rate(running(), 0.99 * most / 60)).holds
    (missed,) = current_service(with_rate(running(), 1.01 * most / 60)).pools
    assert not missed.holds
    assert missed.problem is None
    (flooded,) = current_service(with_rate(running(), 10 * most / 60)).pools
    assert "are stable" in str(flooded.problem)
    assert current_service(with_rate(running(numReplicas=11), 10 * most / 60)).holds


def test_what_has_no_figures_says_why() -> None:
    with pytest.raises(SpecError, match="nothing runs"):
        current_service(load_system(SPECS / "gpus.yaml"))
    (row,) = current_service(running(accelerator="B")).pools
    assert row.problem == "no token times on B"
    with pytest.raises(SpecError, match="--rate: 15 servers"):
        with_rate(load_system(SPECS / "small"), 1.0)


def test_analyze_answers_for_a_document(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    path.write_text(running(numReplicas=3).to_spec().model_dump_json(by_alias=True))
    assert "Every pool holds its targets." in run("analyze", path).out
    assert run("analyze", path, "--rate", "1000", "--json").json["holds"] is False
    assert "remove --batch" in run("analyze", path, "--batch", "x").err
