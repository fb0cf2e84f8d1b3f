"""What is asked of a replica: arrivals and lengths, from which the requests of a run are drawn.

Each kind of chance has a stream of its own, spawned from one seed: another law of lengths leaves the
arrivals as they are, and the same seed gives the same requests.
"""

from dataclasses import dataclass

import numpy as np

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
        arrivals, prompts, answers = (np.random.default_rng(part) for part in seed.spawn(3))
        return Requests(
            in_tokens=self.in_lengths.draw(count, prompts),
            out_tokens=np.maximum(self.out_lengths.draw(count, answers), 1),
            arrival_ms=arrival_times_ms(self.rate_rps, count, arrivals, self.arrival_cv),
        )


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
        thinking, prompts, answers = (np.random.default_rng(part) for part in seed.spawn(3))
        return Requests(
            in_tokens=self.in_lengths.draw(count, prompts),
            out_tokens=np.maximum(self.out_lengths.draw(count, answers), 1),
            think_ms=thinking.exponential(self.think_mean_ms, count),
            wakes_ms=np.sort(thinking.exponential(self.think_mean_ms, self.users)),
        )


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


Load = OpenLoad | ClosedLoad | TraceLoad
