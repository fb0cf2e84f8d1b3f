"""What is asked of a replica: arrivals and lengths, from which the requests of a run are drawn.

Each kind of chance has a stream of its own, spawned from one seed: another law of lengths leaves the
arrivals as they are, and the same seed gives the same requests.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import IntArray
from optimizer.simulation.arrivals import POISSON_CV, arrival_times_ms
from optimizer.simulation.lengths import Lengths
from optimizer.simulation.requests import Requests


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Clients who send at a rate, whatever becomes of their requests."""

    rate_rps: float
    """Mean rate [requests/s]."""
    in_lengths: Lengths
    """Prompts."""
    out_lengths: Lengths
    """Answers; one token at least."""
    arrival_cv: float = POISSON_CV
    """Coefficient of variation of the times between arrivals."""

    def draw(self, count: int, seed: np.random.SeedSequence) -> Requests:
        """Return `count` requests."""
        rng, prompts, answers = _drawn(self, count, seed)
        return Requests(prompts, answers, arrival_times_ms(self.rate_rps, count, rng, self.arrival_cv))


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """Users who send a request, wait for the answer, think, and send the next."""

    users: int
    think_mean_ms: float
    """Mean thinking time, exponential [ms]; 0: none."""
    in_lengths: Lengths
    out_lengths: Lengths

    def draw(self, count: int, seed: np.random.SeedSequence) -> Requests:
        """Return `count` requests; each user thinks before the first."""
        rng, prompts, answers = _drawn(self, count, seed)
        think_ms = rng.exponential(self.think_mean_ms, count)
        wakes_ms = np.sort(rng.exponential(self.think_mean_ms, self.users))
        return Requests(prompts, answers, think_ms=think_ms, wakes_ms=wakes_ms)


@dataclass(frozen=True, slots=True)
class TraceLoad:
    """Recorded requests, of which each goes to this replica by chance."""

    requests: Requests
    share: float = 1.0
    """Probability that a request comes here, 0 … 1."""

    def draw(self, _count: int, seed: np.random.SeedSequence) -> Requests:
        """Return all recorded requests that come here, however many."""
        if self.share == 1:
            return self.requests
        here = np.random.default_rng(seed).random(len(self.requests)) < self.share
        assert self.requests.arrival_ms is not None
        return Requests(
            self.requests.in_tokens[here], self.requests.out_tokens[here], self.requests.arrival_ms[here]
        )


def _drawn(
    load: OpenLoad | ClosedLoad, count: int, seed: np.random.SeedSequence
) -> tuple[np.random.Generator, IntArray, IntArray]:
    """Return a generator for times, and prompt and output lengths from two separate streams."""
    times, prompts, outputs = (np.random.default_rng(part) for part in seed.spawn(3))
    out_tokens = np.maximum(load.out_lengths.draw(count, outputs), 1)
    return times, load.in_lengths.draw(count, prompts), out_tokens


Load = OpenLoad | ClosedLoad | TraceLoad
