"""Replicas for a backlog: optima by enumeration, and the fluid model by simulation in small steps."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.stabilisation.backlog import OVERLOADED_S, Queue, ReplicaCapacity, starting_times
from optimizer.stabilisation.decisions import Moment

NOW_S = 1000.0
QUEUE = Queue(
    waiting=2000.0, rate_rps=80.0, desired=8, ready=4, starting_s=[NOW_S + 60.0] * 4,
    capacity=ReplicaCapacity(10.58, 13.32, 4), startup_s=150.0, late_cost=20.0, is_common=True,
)  # fmt: skip

queues = st.builds(
    Queue,
    waiting=st.floats(0, 5000),
    rate_rps=st.floats(0.5, 200),
    desired=st.integers(1, 30),
    ready=st.integers(0, 12),
    starting_s=st.lists(st.floats(900, 1300), max_size=8),
    capacity=st.builds(
        lambda within, more, batch: ReplicaCapacity(within, within * more, batch),
        st.floats(0.5, 20),
        st.floats(1.0, 2.0),
        st.integers(1, 64),
    ),
    startup_s=st.floats(5, 400),
    late_cost=st.floats(0.5, 100),
    is_common=st.sampled_from([True]),
)


def cost(queue: Queue, number: float, backlog: float) -> float:
    """Return the cost of more replicas: their time, and late requests until the queue is empty."""
    speed = (queue.desired + number) * queue.capacity.most_rps - queue.rate_rps
    if speed <= 0:
        return float("inf")
    drain_s = backlog / speed
    late = queue.late_cost / queue.capacity.within_rps * queue.rate_rps * drain_s
    return number * (queue.startup_s + drain_s) + late


@given(queues)
def test_the_drain_of_a_common_queue_has_the_least_cost(queue: Queue) -> None:
    backlog, found = queue.backlog(NOW_S), queue.replicas(NOW_S)
    if backlog <= queue.capacity.max_batch * queue.desired:
        assert found == 0
    elif found < 400:
        least = min(range(400), key=lambda number: cost(queue, number, backlog))
        near = [cost(queue, number, backlog) for number in (found - 1, found, found + 1) if number >= 0]
        assert abs(found - least) <= 1
        assert cost(queue, least, backlog) in near


def test_the_backlog_is_that_of_a_fluid_in_small_steps() -> None:
    """Steps of 10 ms; nothing is served to below zero because the queue never empties before the end."""
    waiting, now_s = QUEUE.waiting, NOW_S
    while now_s < NOW_S + QUEUE.startup_s:
        ready = QUEUE.ready + sum(at_s <= now_s for at_s in QUEUE.starting_s)
        waiting += 0.01 * (QUEUE.rate_rps - ready * QUEUE.capacity.most_rps)
        now_s += 0.01
    assert QUEUE.backlog(NOW_S) == pytest.approx(waiting, abs=1.0)


def test_overdue_replicas_are_counted_as_ready() -> None:
    late = replace(QUEUE, starting_s=[NOW_S - 60.0] * 4)
    assert late.backlog(NOW_S) == replace(QUEUE, ready=8, starting_s=()).backlog(NOW_S)


def test_a_cost_of_zero_and_a_short_backlog_add_nothing() -> None:
    assert QUEUE.replicas(NOW_S) > 0
    assert replace(QUEUE, late_cost=0.0).replicas(NOW_S) == 0
    assert replace(QUEUE, waiting=0.0, ready=8, starting_s=()).replicas(NOW_S) == 0


@given(queues)
def test_with_own_queues_replicas_are_for_new_requests(queue: Queue) -> None:
    """All or none of the replicas that new requests need beside those with a queue, by the lower cost."""
    own = replace(queue, is_common=False)
    assert own.replicas_with_queue(NOW_S) == own.ready  # unless the queue of each replica is known
    backlog, found = own.backlog(NOW_S), own.replicas(NOW_S)
    queued = own.ready
    without = own.desired - queued
    missing = ceil(own.rate_rps / own.capacity.within_rps - 1e-9) - without
    if not found:
        return
    assert queued >= 1
    assert found == missing > 0
    surplus = own.desired * own.capacity.most_rps - own.rate_rps
    late_s = backlog / surplus if surplus > 0 else OVERLOADED_S
    late = own.late_cost / own.capacity.within_rps * own.rate_rps * late_s
    assert late > found * (own.startup_s + backlog / (queued * own.capacity.most_rps))


def test_a_dearer_late_request_never_gets_fewer_replicas() -> None:
    found = [replace(QUEUE, late_cost=cost).replicas(NOW_S) for cost in (0, 1, 2, 5, 20, 80, 300)]
    assert found == sorted(found)
    assert found[0] == 0 < found[-1]


def test_starting_replicas_are_the_newest_orders() -> None:
    past = [
        Moment(at_s, at_s, {}, {"A": number})
        for at_s, number in ((0.0, 2), (100.0, 5), (115.0, 9), (130.0, 7), (145.0, 8))
    ]
    assert starting_times(past, "A", 6, 150.0, 200.0) == [250.0] * 3 + [265.0] * 2 + [295.0]
    assert starting_times(past, "A", 2, 150.0, 200.0) == [265.0, 295.0]
    assert starting_times(past, "A", 7, 150.0, 200.0)[0] == 200.0  # of unknown age
    assert starting_times((), "A", 0, 150.0, 200.0) == []
