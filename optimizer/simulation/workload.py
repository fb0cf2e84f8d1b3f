"""Loads of a simulated replica: arrivals and lengths, from which the requests of a run are drawn.

Each random quantity has its own stream, spawned from one seed. So another length distribution leaves the
arrivals unchanged, and the same seed gives the same requests.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import IntArray
from optimizer.simulation.arrivals import POISSON_CV, arrival_times_ms
from optimizer.simulation.lengths import Lengths
from optimizer.simulation.requests import Requests

SPARE_DEVIATIONS = 2.0
"""Number of standard deviations by which the requests drawn for each merged load exceed their expected
number, so that no load ends much earlier than the others.
"""


@dataclass(frozen=True, slots=True)
class ShapeLengths:
    """Lengths of the requests of one shape."""

    share: float
    """Share of the load's requests."""
    own_lengths: Lengths
    """Distribution of the prompt lengths without a shared prefix [tokens]."""
    out_lengths: Lengths
    """Distribution of output lengths [tokens], at least one token."""
    prefix_tokens: int = 0
    """Length of the prefix that the prompts share [tokens]."""
    hit_rate: float = 0.0
    """Probability that a request finds the prefix in the prefix cache."""
    stored_once: bool = False
    """Whether all requests that find the prefix hold one copy of it in the KV cache."""


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Clients that send requests at a given rate, independent of the responses."""

    rate_rps: float
    """Mean rate [requests/s]."""
    in_lengths: Lengths
    """Distribution of prompt lengths [tokens]."""
    out_lengths: Lengths
    """Distribution of output lengths [tokens], at least one token."""
    arrival_cv: float = POISSON_CV
    """Coefficient of variation of the interarrival times."""
    shapes: tuple[ShapeLengths, ...] = ()
    """Request shapes, whose lengths replace those of the load; empty if all requests have one shape."""

    def draw(self, count: int, seed: np.random.SeedSequence) -> Requests:
        """Draw `count` random requests."""
        if self.shapes:
            return self._draw_shapes(count, seed)
        rng, prompts, answers = _drawn(self, count, seed)
        return Requests(prompts, answers, arrival_times_ms(self.rate_rps, count, rng, self.arrival_cv))

    def _draw_shapes(self, count: int, seed: np.random.SeedSequence) -> Requests:
        """Draw a shape for each request, then its lengths; a single shape draws the same as its lengths."""
        times, own, outputs, marks = (np.random.default_rng(part) for part in seed.spawn(4))
        shares = np.array([shape.share for shape in self.shapes])
        which = marks.choice(len(shares), count, p=shares / shares.sum())
        prompts, answers, cached, shared = np.zeros((4, count), np.int64)
        for i, shape in enumerate(self.shapes):
            rows = np.flatnonzero(which == i)
            lengths = shape.own_lengths.draw(len(rows), own)
            prompts[rows] = (
                lengths if not shape.prefix_tokens else np.maximum(lengths, 1) + shape.prefix_tokens
            )
            answers[rows] = np.maximum(shape.out_lengths.draw(len(rows), outputs), 1)
            cached[rows] = shape.prefix_tokens * (marks.random(len(rows)) < shape.hit_rate)
            shared[rows] = cached[rows] if shape.stored_once else 0
        arrival_ms = arrival_times_ms(self.rate_rps, count, times, self.arrival_cv)
        return Requests(prompts, answers, arrival_ms, shape=which, cached_tokens=cached, shared_tokens=shared)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Requests that all arrive at time zero."""

    in_lengths: Lengths
    out_lengths: Lengths

    def draw(self, count: int, seed: np.random.SeedSequence) -> Requests:
        """Draw `count` random requests."""
        _, prompts, answers = _drawn(self, count, seed)
        return Requests(prompts, answers, np.zeros(count))


@dataclass(frozen=True, slots=True)
class TraceLoad:
    """Recorded requests, which are randomly split between replicas."""

    requests: Requests
    share: float = 1.0
    """Probability that a request is sent to this replica, 0 … 1."""

    def draw(self, _count: int, seed: np.random.SeedSequence) -> Requests:
        """Draw the recorded requests that are sent to this replica; the count is ignored."""
        if self.share == 1:
            return self.requests
        here = np.random.default_rng(seed).random(len(self.requests)) < self.share
        assert self.requests.arrival_ms is not None
        return self.requests.take(np.flatnonzero(here))


@dataclass(frozen=True, slots=True)
class MergedLoad:
    """Several independent loads of one replica, each with its own priority.

    A load with rate 0 sends nothing.
    """

    streams: tuple[OpenLoad, ...]
    priorities: tuple[int, ...]
    """Priority of each load, 1 is the highest."""

    def draw(self, count: int, seed: np.random.SeedSequence) -> Requests:
        """Draw about `count` requests in total, up to the time at which the first load ends."""
        total = sum(stream.rate_rps for stream in self.streams)
        seeds, parts, arrivals = seed.spawn(len(self.streams)), {}, {}
        for i, stream in enumerate(self.streams):
            if stream.rate_rps > 0:
                mean = count * stream.rate_rps / total
                spare = SPARE_DEVIATIONS * max(stream.arrival_cv, 1.0) * np.sqrt(mean) + 1
                parts[i] = stream.draw(int(np.ceil(mean + spare)), seeds[i])
                arrivals[i] = np.array(parts[i].arrival_ms)
        arrival_ms = np.concatenate([*arrivals.values()])
        stream_of = np.concatenate([np.full(len(part), i) for i, part in parts.items()])
        rows = np.argsort(arrival_ms, kind="stable")
        of_shapes = {}
        if any(stream.shapes for stream in self.streams):
            for name in ("shape", "cached_tokens", "shared_tokens"):
                given = [(getattr(part, name), len(part)) for part in parts.values()]
                of_shapes[name] = np.concatenate(
                    [np.zeros(size, np.int64) if values is None else values for values, size in given]
                )
        last_ms = min(times[-1] for times in arrivals.values())
        return Requests(
            np.concatenate([part.in_tokens for part in parts.values()]),
            np.concatenate([part.out_tokens for part in parts.values()]),
            arrival_ms,
            priority=np.array(self.priorities)[stream_of],
            stream=stream_of,
            **of_shapes,
        ).take(rows[arrival_ms[rows] <= last_ms])


def _drawn(
    load: OpenLoad | Backlog, count: int, seed: np.random.SeedSequence
) -> tuple[np.random.Generator, IntArray, IntArray]:
    """Return a random generator for times, and random prompt and output lengths from two other streams."""
    times, prompts, outputs = (np.random.default_rng(part) for part in seed.spawn(3))
    out_tokens = np.maximum(load.out_lengths.draw(count, outputs), 1)
    return times, load.in_lengths.draw(count, prompts), out_tokens


Load = OpenLoad | Backlog | TraceLoad | MergedLoad
