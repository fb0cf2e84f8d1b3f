"""Live replicas: a run by the clock, in random steps, equals the whole run of the same machine."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import pytest
from second_engine import SecondEngine
from slow_cases import mostly_slow
from test_second_engine import FULL_LAW, limits_of, requests_of, with_prefixes

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.batches import CLOCK, TRIGGERS, BatchServer
from optimizer.simulation.engine import simulate
from optimizer.simulation.law import Coefficients, ProcessorSharingCoefficients, StaticCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.live.batches import LiveBatches
from optimizer.simulation.live.lines import LiveJobs, LiveLine, live_line
from optimizer.simulation.live.replica import LiveReplica
from optimizer.simulation.live.statics import LiveStatics
from optimizer.simulation.live.tokens import LiveTokens
from optimizer.simulation.live.turns import LiveTurns
from optimizer.simulation.machine.passing import run_line
from optimizer.simulation.machine.time_sharing import empty_card, run_turns
from optimizer.simulation.replicas import StaticReplica
from optimizer.simulation.requests import Requests
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem

LINEAR = ProcessorSharingCoefficients(7.0, 0.08, 10.0, 0.002)
STATIC = StaticCoefficients(7.0, 0.08, 10.0, 0.02, padded=False)
NEVER_MS = 1e15


@dataclass
class Player:
    """A client of a live replica, which records its tokens."""

    replica: LiveReplica
    first_ms: FloatArray
    last_ms: FloatArray
    tokens: IntArray
    most: IntArray
    """Tokens after which the client has enough."""
    row_of: dict[int, int] = field(default_factory=dict)
    """Request by its number in the replica."""
    scheduled_ms: dict[int, float] = field(default_factory=dict)
    """First times in the batch by request, asked with its first token."""

    def take_until(self, until_ms: float) -> None:
        for step in self.replica.run_until(until_ms):
            for number in step.made:
                row = self.row_of[number]
                self.tokens[row] += 1
                if self.tokens[row] == 1:
                    self.first_ms[row] = step.time_ms
                    self.scheduled_ms[row] = self.replica.scheduled_ms(number)
                if number in step.ended or self.tokens[row] == self.most[row]:
                    self.last_ms[row] = step.time_ms
                    del self.row_of[number]
                    if number not in step.ended:
                        self.replica.cancel(number, step.time_ms)
            for number in step.rejected:
                del self.row_of[number]


def played(
    replica: LiveReplica,
    requests: Requests,
    rng: np.random.Generator,
    levels: IntArray | None = None,
    asked: IntArray | None = None,
    cancels: dict[int, float] | None = None,
) -> Player:
    """Send requests when they arrive, with random steps of the clock in between; `asked` tokens at most."""
    size, arrival_ms = len(requests), requests.arrival_ms
    assert arrival_ms is not None
    player = Player(
        replica, np.full(size, np.nan), np.full(size, np.nan), np.zeros(size, int), requests.out_tokens
    )
    events = [(float(time), "send", row) for row, time in enumerate(arrival_ms)]
    events += [(time, "cancel", row) for row, time in (cancels or {}).items()]
    for time, what, row in sorted(events):
        for pause in np.sort(rng.uniform(0, time, rng.integers(0, 3))):
            player.take_until(pause)
        player.take_until(np.nextafter(time, 0))
        if what == "cancel":
            for number in [number for number, one in player.row_of.items() if one == row]:
                del player.row_of[number]
                replica.cancel(number, time)
            continue
        tokens = requests.out_tokens if asked is None else asked
        level = 0 if levels is None else int(levels[row])
        lengths = int(requests.in_tokens[row]), int(tokens[row])
        if isinstance(replica, LiveTokens) and requests.cached_tokens is not None:
            assert requests.shared_tokens is not None
            found = int(requests.cached_tokens[row]), int(requests.shared_tokens[row])
            added = replica.add(time, *lengths, level, *found)
        else:
            added = replica.add(time, *lengths, level)
        if added is not None:
            assert added not in player.row_of
            player.row_of[added] = row
    player.take_until(NEVER_MS)
    assert not player.row_of
    assert (replica.running, replica.waiting, replica.next_ms()) == (0, 0, np.inf)
    return player


def agree(player: Player, first_ms: FloatArray, last_ms: FloatArray, case: object) -> None:
    np.testing.assert_allclose(player.first_ms, first_ms, rtol=1e-12, err_msg=str(case))
    np.testing.assert_allclose(player.last_ms, last_ms, rtol=1e-12, err_msg=str(case))


@pytest.mark.parametrize("cases", mostly_slow([range(20), range(20, 500)], 1))
def test_prefixes_by_the_clock_equal_the_whole_run(cases: range) -> None:
    faster = 0
    for seed in cases:
        rng = np.random.default_rng(seed)
        bare = open_requests(rng)
        requests = with_prefixes(bare, rng)
        limits = limits_of(rng, requests)._replace(max_in_flight=UNLIMITED)
        whole = simulate(requests, FULL_LAW, limits)
        player = played(LiveTokens(FULL_LAW, limits, 1), requests, rng)
        agree(player, whole.first_ms, whole.last_ms, seed)
        without = simulate(bare, FULL_LAW, limits)
        faster += np.nanmean(whole.first_ms) < np.nanmean(without.first_ms)
    assert faster > len(cases) / 2


def open_requests(rng: np.random.Generator) -> Requests:
    while True:
        requests = requests_of(rng, int(rng.integers(5, 150)))
        if requests.arrival_ms is not None:
            return requests


@pytest.mark.slow
@pytest.mark.parametrize("law", [FULL_LAW, LINEAR])
@pytest.mark.parametrize("cases", mostly_slow([range(30), range(30, 1500)], 1))
def test_tokens_by_the_clock_equal_the_whole_run(law: Coefficients, cases: range) -> None:
    preempted = rejected = early = 0
    for seed in cases:
        rng = np.random.default_rng(seed)
        requests = open_requests(rng)
        limits = limits_of(rng, requests)._replace(max_in_flight=UNLIMITED)
        priority = rng.integers(1, int(rng.integers(1, 4)) + 1, len(requests))
        ranks, levels = np.unique(priority, return_inverse=True)
        requests = replace(requests, priority=priority)
        whole = simulate(requests, law, limits)
        replica = LiveTokens(law, limits, len(ranks))
        # Some outputs would be longer, but their clients have enough; not if that could be too much to store.
        more = rng.integers(0, 200, len(requests)) * (limits.kv_tokens == UNLIMITED)
        player = played(replica, requests, rng, levels, requests.out_tokens + more)
        agree(player, whole.first_ms, whole.last_ms, (seed, limits))
        np.testing.assert_array_equal(player.tokens, requests.out_tokens * ~whole.rejected)
        for row, scheduled_ms in player.scheduled_ms.items():
            assert whole.sent_ms[row] <= scheduled_ms <= whole.first_ms[row] * (1 + 1e-12)
            assert scheduled_ms < whole.first_ms[row] or not requests.in_tokens[row]
        preempted += int(whole.preemptions.sum())
        rejected += int(whole.rejected.sum())
        early += int((more > 0).sum())
    assert rejected > 100
    assert early > 300
    assert preempted > 150 or law is LINEAR


@pytest.mark.slow
@pytest.mark.parametrize("seeds", mostly_slow([range(30), range(30, 110)], 1))
def test_cancelled_requests_free_what_they_hold(seeds: range) -> None:
    cancelled = preempted = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        requests = open_requests(rng)
        limits = limits_of(rng, requests)._replace(max_in_flight=UNLIMITED)
        assert requests.arrival_ms is not None
        gone = np.flatnonzero(rng.random(len(requests)) < 0.3)
        waits = rng.exponential(100, len(gone))
        cancels = dict(zip(gone.tolist(), (requests.arrival_ms[gone] + waits).tolist(), strict=True))
        second = SecondEngine(FULL_LAW, limits, requests, cancels=cancels)
        begun_ms, first_ms, last_ms = np.full((3, len(requests)), np.nan)
        for job in second.run():
            begun_ms[job.row] = job.begun
            first_ms[job.row], last_ms[job.row] = job.first, job.last
            preempted += job.losses
        player = played(LiveTokens(FULL_LAW, limits, 1), requests, rng, cancels=cancels)
        agree(player, first_ms, last_ms, (seed, limits))
        known = sorted(player.scheduled_ms)
        found = [player.scheduled_ms[row] for row in known]
        np.testing.assert_allclose(found, begun_ms[known], rtol=1e-12, err_msg=str(seed))
        cancelled += int(np.isnan(last_ms[gone]).sum())
    assert cancelled > 3 * len(seeds)
    assert preempted > len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("seeds", mostly_slow([range(30), range(30, 110)], 1))
def test_static_batches_by_the_clock_equal_the_whole_run(seeds: range, *, padded: bool) -> None:
    rejected = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        requests = open_requests(rng)
        limits = limits_of(rng, requests)
        law = STATIC._replace(padded=padded)
        whole = StaticReplica(law, limits).run(requests)
        player = played(LiveStatics(law, limits), requests, rng)
        agree(player, whole.first_ms, whole.last_ms, (seed, limits))
        np.testing.assert_array_equal(player.tokens, requests.out_tokens * ~whole.rejected)
        rejected += int(whole.rejected.sum())
    assert rejected > len(seeds)


def test_early_end_leaves_a_static_batch() -> None:
    # Two outputs of 9 tokens, one of which ends after 3: two steps of two, six of one.
    requests = Requests(np.array([10, 10, 10]), np.array([1, 9, 3]), np.array([0.0, 1.0, 2.0]))
    player = played(
        LiveStatics(STATIC, Limits(4, 1)), requests, np.random.default_rng(1), asked=np.array([1, 9, 9])
    )
    begun_ms, step_ms = 2 * 10 + 3 * 0.2, 7.0
    assert player.first_ms[1:] == pytest.approx(begun_ms)
    assert player.scheduled_ms[2] == pytest.approx(player.last_ms[0])
    assert player.last_ms[2] == pytest.approx(begun_ms + 2 * (step_ms + 2 * 0.08))
    assert player.last_ms[1] == pytest.approx(begun_ms + 2 * (step_ms + 2 * 0.08) + 6 * (step_ms + 0.08))


def server_of(rng: np.random.Generator) -> BatchServer:
    trigger = int(rng.integers(len(TRIGGERS)))
    size = int(rng.choice([1, 3, 8]))
    window_ms = float(rng.choice([5.0, 40.0] if trigger == CLOCK else [0.0, 5.0, 40.0]))
    room = UNLIMITED if rng.random() < 0.5 else size + int(rng.integers(0, 8))
    return BatchServer(size, window_ms, 10.0, 3.0, room, bool(rng.random() < 0.5), trigger)


def arrivals_of(rng: np.random.Generator, size: int = 200) -> Requests:
    ones = np.ones(size, int)
    return Requests(ones, ones, np.cumsum(rng.exponential(float(rng.choice([2, 8, 40])), size)))


def line_of(rng: np.random.Generator, *, alone: bool, jobs: bool) -> Tandem:
    server = server_of(rng)
    if alone:
        return Tandem(server)
    stages = [
        Station(bool(before), float(rng.choice([1.0, 10.0])), 0.0, int(rng.integers(1, 5)))
        for before in rng.integers(0, 2, rng.integers(1, 4))
    ]
    if not jobs:
        return Tandem(server, tuple(stages))
    return Tandem(BatchServer(server.size, 0.0, 10.0, 3.0), tuple(stages), int(rng.integers(1, 12)))


def live_of(line: Tandem, times: Callable[[], FloatArray]) -> LiveReplica:
    if line.is_server_alone:
        return LiveBatches(line.server)
    return LiveLine(line, times) if line.jobs == ALL_JOBS else LiveJobs(line, times)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alone", "jobs"), [(True, False), (False, False), (False, True)], ids=["alone", "line", "jobs"]
)
@pytest.mark.parametrize("seeds", mostly_slow([range(40), range(40, 140)], 1))
def test_batch_servers_by_the_clock_equal_the_whole_run(seeds: range, *, alone: bool, jobs: bool) -> None:
    rejected = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        line, requests = line_of(rng, alone=alone, jobs=jobs), arrivals_of(rng)
        stage_ms = rng.exponential(5.0, (len(line.stations), len(requests)))
        start_ms, last_ms = np.empty(len(requests)), np.empty(len(requests))
        assert requests.arrival_ms is not None
        run_line(line, np.array(requests.arrival_ms), stage_ms, start_ms, last_ms)
        row = count()
        player = played(live_of(line, lambda: stage_ms[:, next(row)]), requests, rng)  # noqa: B023
        agree(player, last_ms, last_ms, (seed, line))
        rejected += int(np.isnan(last_ms).sum())
    assert jobs or rejected > len(seeds)


@pytest.mark.parametrize("seeds", mostly_slow([range(20), range(20, 60)], 1))
def test_turns_by_the_clock_equal_the_whole_run(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        servers = [
            server_of(rng)._replace(trigger=0, queue_limit=UNLIMITED) for _ in range(rng.integers(2, 5))
        ]
        requests = arrivals_of(rng, 400)
        owner = rng.integers(0, len(servers), len(requests))
        rows = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=len(servers)))
        assert requests.arrival_ms is not None
        card = empty_card(servers, np.array([0, *ends[:-1]]), requests.arrival_ms[rows])
        card.ends[:] = ends
        run_turns(card, np.inf)
        last_ms = np.empty(len(requests))
        last_ms[rows] = card.last_ms
        agree(played(LiveTurns(servers), requests, rng, owner), last_ms, last_ms, (seed, servers))


@pytest.mark.parametrize("seeds", mostly_slow([range(20), range(20, 60)], 1))
def test_batch_servers_serve_what_is_not_cancelled(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        lines = [line_of(rng, alone=rng.random() < 0.5, jobs=bool(rng.random() < 0.5)) for _ in range(2)]
        turns = [server_of(rng)._replace(trigger=0, queue_limit=UNLIMITED) for _ in range(3)]
        replicas = [
            *(live_line(line, rng) for line in lines),
            LiveTurns(turns),
            LiveStatics(STATIC, Limits(8, 1)),
        ]
        for replica in replicas:
            requests = arrivals_of(rng)
            assert requests.arrival_ms is not None
            gone = np.flatnonzero(rng.random(len(requests)) < 0.3)
            cancels = dict(zip(gone.tolist(), (requests.arrival_ms[gone] + 30.0).tolist(), strict=True))
            levels = rng.integers(0, 3, len(requests))
            player = played(replica, requests, rng, levels, cancels=cancels)
            late = np.nan_to_num(player.last_ms[gone] - requests.arrival_ms[gone])
            assert (late <= 30.0).all()
            assert (player.tokens <= 1).all()


def test_oldest_request_that_leaves_takes_its_window_along() -> None:
    replica = LiveBatches(BatchServer(4, 50.0, 10.0, 0.0))
    oldest, other = replica.add(0.0), replica.add(20.0)
    assert oldest is not None
    replica.cancel(oldest, 30.0)
    (step,) = replica.run_until(NEVER_MS)
    assert (step.time_ms, step.ended) == (80.0, [other])


@pytest.mark.slow
@pytest.mark.parametrize("requests", mostly_slow([5_000, 1_000_000], 1))
def test_memory_of_a_live_replica_stays_flat(requests: int) -> None:
    rng = np.random.default_rng(1)
    replica = LiveTokens(FULL_LAW, Limits(16, 512, kv_tokens=3000), 1)
    arrivals = np.cumsum(rng.exponential(60.0, requests))
    sizes = []
    tracemalloc.start()
    for i, time in enumerate(arrivals.tolist()):
        for _ in replica.run_until(time):
            pass
        replica.add(time, 64, int(i % 7) + 1)
        if i % (requests // 4) == requests // 8:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(sizes) - min(sizes) < 20_000, sizes
