"""The loop's policy for one server: steps, release, constant load; and its replay of past loads."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import accelerator, document, server, service_class

from optimizer import load_system
from optimizer.errors import SpecError
from optimizer.jobs.replaying import ReplayOptions, replay_loads
from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.system import System
from optimizer.stabilisation.backlog import ReplicaCapacity
from optimizer.stabilisation.decisions import ReplicaStatus
from optimizer.studies.replay.scaled_server import ScaledServer

CAPACITY = ReplicaCapacity(10.0, 13.0, 4)
PERIOD_S, STARTUP_S = 15.0, 150.0


class Fluid:
    """A scaled server with a fluid queue, driven by given counts."""

    def __init__(self, policy: ScaledServer, replicas: int) -> None:
        self.policy, self.waiting, self.now_s = policy, 0.0, 0.0
        self.ready_at_s = [0.0] * replicas
        self.desired = [replicas]

    def run(self, counts: list[float]) -> list[int]:
        """Return the desired replicas after each period."""
        begin = len(self.desired)
        for count in counts:
            ready = sum(at_s <= self.now_s for at_s in self.ready_at_s)
            self.waiting = max(0.0, self.waiting + count - CAPACITY.most_rps * ready * PERIOD_S)
            self.now_s += PERIOD_S
            now = sum(at_s <= self.now_s for at_s in self.ready_at_s)
            there = ReplicaStatus(now, len(self.ready_at_s) - now)
            wanted = self.policy.replicas(self.now_s, count, self.waiting, there)
            self.ready_at_s = sorted(self.ready_at_s)[:wanted]
            self.ready_at_s += [self.now_s + STARTUP_S] * (wanted - len(self.ready_at_s))
            self.desired.append(wanted)
        return self.desired[begin:]


def policy(**more: float) -> ScaledServer:
    return replace(ScaledServer(CAPACITY, STARTUP_S, 48), **more)  # type: ignore[arg-type]


def test_a_step_is_ordered_at_once_and_its_backlog_leaves() -> None:
    """From 19 to 57 requests/s: six replicas for the rate from the first count on, more for the queue."""
    fluid = Fluid(policy(), 2)
    fluid.run([285.0] * 20)
    after = fluid.run([855.0] * 60)
    assert after[0] > 6
    assert max(after) > 8
    ended = next(k for k, number in enumerate(after) if number == 6)
    assert set(after[ended:]) == {6}
    assert fluid.waiting == 0.0


def test_without_a_price_of_late_requests_only_the_rate_counts() -> None:
    fluid = Fluid(policy(late_cost=0.0), 2)
    fluid.run([285.0] * 20)
    assert max(fluid.run([855.0] * 40)) == 6


def test_a_significant_fall_frees_replicas_after_a_start_up_time() -> None:
    """The dispersion that the jump itself has raised keeps a margin for the usual 300 s."""
    fluid = Fluid(policy(), 6)
    fluid.run([855.0] * 40)
    after = fluid.run([285.0] * 60)
    kept_s = PERIOD_S * sum(number == 6 for number in after)
    assert STARTUP_S - 2 * PERIOD_S <= kept_s <= STARTUP_S + 2 * PERIOD_S
    assert max(after[round(STARTUP_S / PERIOD_S) + 2 :]) <= 4
    assert after[-1] == 2


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_two_hours_of_constant_load_change_nothing(seed: int) -> None:
    """Poisson counts at 60 % of five replicas; the plan needs three, which the server has."""
    rng = np.random.default_rng(seed)
    rate_rps = 0.6 * 4 * CAPACITY.within_rps
    fluid = Fluid(policy(), 3)
    assert set(fluid.run(rng.poisson(rate_rps * PERIOD_S, 480).astype(float).tolist())) == {3}


# --- replays -------------------------------------------------------------------------------------------


def fleet() -> System:
    """Return a fleet whose replicas serve about 60 requests/min."""
    source = document([server("s", 60.0)], [accelerator("A")], {"A": 40})
    source["models"] = [
        {"name": "m", "acc": "A", "maxBatchSize": 4, "atTokens": 64,
         "decodeParms": {"alpha": 50.0, "beta": 1.0}, "prefillParms": {"gamma": 5.0, "delta": 0.01}}
    ]  # fmt: skip
    source["serviceClasses"] = [service_class("gold", itl=1e6)]
    return load_system(source)


def test_a_replay_of_the_loop_has_foresight_and_headrooms(tmp_path: Path) -> None:
    """A step to three times the load: the loop is late for a start-up time, perfect foresight is not."""
    path = tmp_path / "loads.csv"
    rows = [f"{60 * i},s,{600 if i < 30 else 1800}" for i in range(61)]
    path.write_text("\n".join(["time,server,arrivalRate", *rows]))
    found = replay_loads(fleet(), ReplayOptions(loads=path, loop=True, queue="common"))
    loop, foresight = found.variants[-3:-1]
    assert (loop.name, foresight.name) == ("the loop", "perfect foresight")
    assert foresight.missed < 0.1 * loop.missed
    assert 0.02 < loop.missed / loop.offered < 0.3
    assert len(loop.points) == len(found.variants[0].points)
    hours = [item.replica_hours_per_day for item in found.headrooms]
    assert hours == sorted(hours)
    assert found.headrooms[-1].late <= found.headrooms[0].late
    assert found.headrooms[0].replica_hours_per_day / 24 == pytest.approx(
        sum(point.desired for point in loop.points) / len(loop.points), rel=0.1
    )


def test_records_of_the_loop_are_loads(tmp_path: Path) -> None:
    def record(now_s: float, rate_rps: float | None, held: bool = False) -> str:  # noqa: FBT001, FBT002
        load = {} if rate_rps is None else {"s": {"arrived_rps": rate_rps, "offered_rps": 1.0}}
        holds = {"s": "Stale: no answer"} if held else {}
        return json.dumps({"inputs": {"now_s": now_s}, "loads": load, "holds": holds})

    path = tmp_path / "records.jsonl"
    path.write_text("\n".join([record(15.0, 2.0), record(30.0, 3.0, held=True), record(45.0, 4.0)]))
    steps = read_load_trace(fleet(), path)
    assert [step.time_s for step in steps] == [15.0, 45.0]
    (owner,) = steps[1].items
    assert owner.current.load.arrival_rate_rpm == pytest.approx(240.0)  # type: ignore[union-attr]
    path.write_text('{"time": 3}')
    with pytest.raises(SpecError, match=r"records.jsonl:1: not a record of 'inferplan loop'"):
        read_load_trace(fleet(), path)
