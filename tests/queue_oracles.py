"""A second computation of the queueing model, in plain loops and exact or 40-digit numbers.

It shares no code and no method with `optimizer`: the states are walked one by one (no closed form of the
tail), the chunks are counted up from one, the largest rate is found by halving. The formulas are those
of docs/math.md, sections 2 to 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest

DIGITS = Context(prec=40, Emin=-(10**15), Emax=10**15)
"""Forty digits, and exponents far beyond those of a float: no weight overflows or vanishes."""


def reference_folder() -> Path:
    """Return the folder of the reference's records, or skip the test where there is none."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip(f"the reference's records are not on this machine: {folder} does not exist")
    return folder


# --- the queue ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Walked:
    """Long-run means of a birth-death queue, from a walk over its states."""

    total: float
    """Sum of the normalised probabilities."""
    in_service: float
    in_queue: float
    in_system: float
    acceptance: float
    throughput: float
    """In the unit of the rates, from the departures (not from the arrivals)."""
    p_empty: float
    log_p_full: float


def walk(rate: float, departures: Sequence[float], queue: int) -> Walked:
    """Return the stationary means at arrival `rate`, with departure rate departures[min(i, N) - 1] in i."""
    batch = len(departures)
    with localcontext(DIGITS):
        arrival, out = Decimal(rate), [Decimal(value) for value in departures]
        ratios = [arrival / value for value in out]
        weight = Decimal(1)
        total, served, system, leaving = weight, Decimal(0), Decimal(0), Decimal(0)
        last = ratios[-1]
        for state in range(1, batch + 1):
            weight *= ratios[state - 1]
            total += weight
            served += state * weight
            leaving += out[state - 1] * weight
        system = served
        waiting = Decimal(0)
        for place in range(1, queue + 1):
            weight *= last
            total += weight
            waiting += place * weight
            served += batch * weight
            leaving += out[-1] * weight
        system = served + waiting
        return Walked(
            total=float((total - weight) / total + weight / total),
            in_service=float(served / total),
            in_queue=float(waiting / total),
            in_system=float(system / total),
            acceptance=float((total - weight) / total),
            throughput=float(leaving / total),
            p_empty=float(1 / total),
            log_p_full=float((weight / total).ln()),
        )


def mm1k(rate: float, departure: float, room: int) -> tuple[Fraction, Fraction]:
    """Return mean number in system and blocking of M/M/1/K in exact fractions (any textbook)."""
    rho = Fraction(rate) / Fraction(departure)
    if rho == 1:
        return Fraction(room, 2), Fraction(1, room + 1)
    mean = rho / (1 - rho) - (room + 1) * rho ** (room + 1) / (1 - rho ** (room + 1))
    return mean, (1 - rho) * rho**room / (1 - rho ** (room + 1))


def erlang_b(load: float, servers: int) -> float:
    """Return the blocking of M/G/N/N at an offered load, by its recursion (any textbook)."""
    blocking = 1.0
    for n in range(1, servers + 1):
        blocking = load * blocking / (n + load * blocking)
    return blocking


# --- the token-time laws ----------------------------------------------------------------------------------


def count_chunks(tokens_in: int, tokens_out: int, budget: int, batch: int) -> int:
    """Return the smallest k ≥ 1 with floor(max(0, (k + m)(M - n/k)/(n + m))) ≥ B, counting up from one.

    With B ≥ 1 neither floor nor max matters; multiplied out by k(n + m) it is in whole numbers.
    """
    k = 1
    while (k + tokens_out) * (budget * k - tokens_in) < batch * (tokens_in + tokens_out) * k:
        k += 1
    return k


def chunks_fit(k: int, tokens_in: int, tokens_out: int, budget: int, batch: int) -> bool:
    """Return whether a batch fits in the budget with k chunks, by the formula as the reference writes it."""
    largest = max(
        Fraction(0),
        (k + tokens_out) * (budget - Fraction(tokens_in, k)) / Fraction(tokens_in + tokens_out),
    )
    return largest.numerator // largest.denominator >= batch


@dataclass(frozen=True, slots=True)
class Linear:
    """The linear law of one replica (math.md, section 2.1); times in ms."""

    alpha: float
    beta: float
    gamma: float
    delta: float
    tokens_in: float
    tokens_out: float

    def prefill(self, batch: float) -> float:
        return self.gamma + self.delta * self.tokens_in * batch if self.tokens_in > 0 else 0.0

    def decode(self, batch: float) -> float:
        return self.alpha + self.beta * batch

    def service(self, batch: int) -> float:
        return self.prefill(batch) + (self.tokens_out - 1) * self.decode(batch)

    def latencies(self, mean_service: float, mean_batch: float, limit: int) -> tuple[float, float, float]:
        """Return prefill, ITL and time from start to first token, at the batch with the mean service time.

        That batch is found by halving, since the service time grows with it.
        """
        low, high = 0.0, float(limit)
        if self.service(1) == self.service(2):
            low = high = min(mean_batch, high)
        for _ in range(200):
            middle = (low + high) / 2
            exact = self.prefill(middle) + (self.tokens_out - 1) * self.decode(middle)
            low, high = (middle, high) if exact < mean_service else (low, middle)
        return self.prefill(low), self.decode(low), self.prefill(low)


@dataclass(frozen=True, slots=True)
class Iteration:
    """The iteration law of one replica (math.md, section 2.2); times in ms."""

    alpha: float
    beta: float
    gamma: float
    tokens_in: int
    tokens_out: int
    budget: int = 8192

    def own_work(self, chunks: int) -> tuple[float, float]:
        n, m = self.tokens_in, self.tokens_out
        return (
            (self.beta + self.gamma * (chunks + 1) / 2) * n,
            self.beta * m + self.gamma * m * (n + (m + 1) / 2),
        )

    def chunks(self, batch: int) -> int:
        return count_chunks(self.tokens_in, self.tokens_out, self.budget, batch)

    def per_iteration(self, chunks: int) -> float:
        return sum(self.own_work(chunks)) / (chunks + self.tokens_out)

    def service(self, batch: int) -> float:
        c = self.chunks(batch)
        return (c + self.tokens_out) * (self.alpha + batch * self.per_iteration(c))

    def prefill(self, mean_batch: float, limit: int) -> float:
        c = self.chunks(min(max(int(mean_batch + 0.5), 1), limit))
        others = self.alpha + (mean_batch - 1) * self.per_iteration(c)
        return c * max(0.0, others) + self.own_work(c)[0]

    def itl(self, batch: int) -> float:
        n, m = self.tokens_in, self.tokens_out
        others = self.alpha + (batch - 1) * self.per_iteration(self.chunks(batch))
        return max(0.0, others) + self.beta + self.gamma * (n + (m + 1) / 2)

    def latencies(self, mean_service: float, mean_batch: float, limit: int) -> tuple[float, float, float]:
        """Return prefill, ITL and time from start to first token."""
        prefill = self.prefill(mean_batch, limit)
        itl = (mean_service - prefill) / self.tokens_out
        return prefill, itl, prefill + itl


# --- a replica --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What the users of a replica see; times in ms, throughput in req/s."""

    ttft: float
    itl: float
    wait: float
    service: float
    prefill: float
    throughput: float
    in_service: float


@dataclass(frozen=True, slots=True)
class Machine:
    """One replica: law, batch limit and queue capacity."""

    law: Linear | Iteration
    batch: int
    queue: int

    def departures(self) -> list[float]:
        """Return μ(1 … N) in requests per ms."""
        return [n / self.law.service(n) for n in range(1, self.batch + 1)]

    def least(self) -> float:
        """Return the lower end of the rates that sizing considers, in req/s (math.md, section 5)."""
        return 0.001 * 1000 / self.law.service(1)

    def stable(self) -> float:
        """Return the largest stable rate, in req/s (math.md, section 5)."""
        return (1 - 0.001) * 1000 * self.batch / self.law.service(self.batch)

    def see(self, rate: float) -> Seen:
        """Return the means at an arrival rate in req/s."""
        state = walk(rate / 1000, self.departures(), self.queue)
        service, wait = state.in_service / state.throughput, state.in_queue / state.throughput
        prefill, itl, first = self.law.latencies(service, state.in_service, self.batch)
        return Seen(wait + first, itl, wait, service, prefill, state.throughput * 1000, state.in_service)

    def meets(self, rate: float, ttft: float, itl: float, slack: float = 1e-9) -> bool:
        """Return whether the targets (0: none) hold at a rate."""
        seen = self.see(rate)
        return (not ttft or seen.ttft <= ttft * (1 + slack)) and (not itl or seen.itl <= itl * (1 + slack))

    def largest_rate(self, ttft: float, itl: float, halvings: int = 40) -> float | None:
        """Return the largest rate up to which the targets hold, in req/s; none where they never do."""
        low, high = self.least(), self.stable()
        if not self.meets(low, ttft, itl):
            return None
        if self.meets(high, ttft, itl):
            return high
        return bisect(lambda rate: self.meets(rate, ttft, itl), low, high, halvings)


def bisect(holds: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """Return the largest value at which `holds` is true, which it is at `low` and is not at `high`."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
