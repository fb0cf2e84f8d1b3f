"""Transitions to the next batch if the oldest request opens the window (`oldest`); compiled."""

import math
from typing import NamedTuple

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.poisson import fill_chances
from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.bulk.service import FIRST_POINTS, fill_window, queue_limit_during, service_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled


class Transitions(NamedTuple):
    """What the transitions from all starts of the chain have in common."""

    server: BatchServer
    rate: float
    """Arrival rate [1/ms]."""
    oldest: OldestLeft
    in_window: FloatArray
    """Probabilities of 0 … B arrivals in a window."""
    in_rests: FloatArray
    """Probabilities of 0 … B arrivals in the rest of a window, by its age; empty if no window continues."""
    in_age: FloatArray
    """Scratch of B + 1 numbers."""
    in_rest: FloatArray
    """Scratch of B + 1 numbers."""


@compiled
def pending_rest(chain: Transitions, left: int, queue: FloatArray, out: FloatArray) -> None:
    """Add the partial batches after a full one that left some requests (eq. 138)."""
    server, in_rests, in_rest, (ages, age_chances) = chain.server, chain.in_rests, chain.in_rest, chain.oldest
    size, window = server.size, server.window_ms
    service = service_ms(server, size)
    capped = queue_limit_during(server, size) < size
    few = 0.0
    for q in range(left, size):
        few += queue[q]
    for m in range(len(ages)):
        share, rest = age_chances[left, m], window - service - ages[m]
        if share < 1e-12:
            continue
        # The window ends during the service, so the next batch starts with what waits then.
        if rest <= 0:
            for q in range(left, size):
                out[q] += share * queue[q]
        elif capped:
            fill_chances(chain.rate * rest, in_rest)
            for q in range(left, size):
                fill_window(in_rest, q, size, share * queue[q], out)
        else:
            # Without a limit, arrivals during the service and after it count together: those of the rest of
            # the window.
            filled, coming, to = few, in_rests[m, : size - left], out[left:size]
            for c in range(len(coming)):
                to[c] += share * coming[c]
            for c in range(len(coming)):
                filled -= coming[c]
            out[size] += share * max(filled, 0.0)


@compiled
def pending_first(chain: Transitions, n: int, known: float, in_service: FloatArray, out: FloatArray) -> None:
    """Add the partial batches after a service of n that left no request.

    The first request to arrive opens the window, during the service or after it (eq. 137).

    Args:
        chain: data common to all starts.
        n: requests served together.
        known: probability already in `out`.
        in_service: probabilities of arrivals in the service.
        out: increased, by batch.
    """
    server, rate, in_window = chain.server, chain.rate, chain.in_window
    size, window = server.size, server.window_ms
    service = service_ms(server, n)
    most = queue_limit_during(server, n)
    late = math.exp(-rate * max(service - window, 0.0))
    if most < size:
        pending_in_limited_queue(chain, n, late, in_service, out)
        return
    total = known
    for j in range(1, size):
        chance = in_window[j - 1]
        if service >= window:
            chance = max(in_service[j] - late * in_window[j] + late * in_window[j - 1], 0.0)
        out[j] += chance
        total += chance
    out[size] += max(1.0 - total, 0.0)


@compiled
def pending_in_limited_queue(
    chain: Transitions, n: int, late: float, in_service: FloatArray, out: FloatArray
) -> None:
    """Add the partial batches if the queue limit is below B, so further arrivals are rejected."""
    server, rate, in_window, in_age, in_rest = (
        chain.server, chain.rate, chain.in_window, chain.in_age, chain.in_rest,
    )  # fmt: skip
    size, window = server.size, server.window_ms
    service = service_ms(server, n)
    most = queue_limit_during(server, n)
    if most <= 0:
        fill_window(in_window, 1, size, 1.0, out)
        return
    horizon = min(service, window)
    # None came during the service: the first one opens a window at a free server.
    fill_window(in_window, 1, size, math.exp(-rate * service), out)
    # The window ran out during the service: the batch starts at its end with what the queue could take.
    if service > window:
        rest = 1.0 - late
        for q in range(1, most):
            chance = max(in_service[q] - late * in_window[q], 0.0)
            out[q] += chance
            rest -= chance
        out[most] += max(rest, 0.0)
    # The window is open at the end, for `age` by then: the queue is limited up to the end and grows freely
    # after it.
    for m in range(FIRST_POINTS):
        age = (m + 0.5) * horizon / FIRST_POINTS
        weight = rate * math.exp(-rate * (service - age)) * horizon / FIRST_POINTS
        fill_chances(rate * age, in_age)
        fill_chances(rate * (window - age), in_rest)
        rest = 1.0
        for c in range(most - 1):
            fill_window(in_rest, 1 + c, size, weight * in_age[c], out)
            rest -= in_age[c]
        fill_window(in_rest, most, size, weight * max(rest, 0.0), out)
    # What the quadrature misses goes to full batches.
    total = 0.0
    for j in range(size + 1):
        total += out[j]
    out[size] += 1.0 - total
