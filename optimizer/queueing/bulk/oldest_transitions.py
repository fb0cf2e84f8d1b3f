"""Transitions to the next batch if the oldest request opens the window (trigger `oldest`); compiled."""

import math
from typing import NamedTuple

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.poisson import fill_chances
from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.bulk.service import (
    FIRST_POINTS,
    fill_window,
    queue_limit_during,
    service_ms,
    window_opens_before_end,
)
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled


class Transitions(NamedTuple):
    """Data that the transitions from all states of the chain have in common."""

    server: BatchServer
    rate: float
    """Arrival rate [1/ms]."""
    oldest: OldestLeft
    in_window: FloatArray
    """Probabilities of 0 … B arrivals during a window."""
    in_rests: FloatArray
    """Probabilities of 0 … B arrivals during the rest of a window, by its age; empty if no window continues.
    """
    in_age: FloatArray
    """Scratch array of B + 1 numbers."""
    in_rest: FloatArray
    """Scratch array of B + 1 numbers."""


@compiled
def add_after_rest(chain: Transitions, left: int, queue: FloatArray, out: FloatArray) -> None:
    """Add the probabilities of partial batches after a full one that left some requests (eq. 138)."""
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
        # The window ends during the service, so the next batch starts with the requests that wait then.
        if rest <= 0:
            for q in range(left, size):
                out[q] += share * queue[q]
        elif capped:
            fill_chances(chain.rate * rest, in_rest)
            for q in range(left, size):
                fill_window(in_rest, q, size, share * queue[q], out)
        else:
            # Without a queue limit, arrivals during and after the service are together those in the rest of
            # the window.
            filled, coming, to = few, in_rests[m, : size - left], out[left:size]
            for c in range(len(coming)):
                to[c] += share * coming[c]
            for c in range(len(coming)):
                filled -= coming[c]
            out[size] += share * max(filled, 0.0)


@compiled
def add_after_first(
    chain: Transitions, n: int, known: float, in_service: FloatArray, out: FloatArray
) -> None:
    """Add the probabilities of partial batches after a service of n requests that left none.

    The first arrival opens the window, during the service or after it (eq. 137).

    Args:
        chain: data common to all starts.
        n: number of requests served together.
        known: probability already in `out`.
        in_service: probabilities of arrivals in the service.
        out: increased by the probabilities, by batch size.
    """
    server, rate, in_window = chain.server, chain.rate, chain.in_window
    size, window = server.size, server.window_ms
    service = service_ms(server, n)
    most = queue_limit_during(server, n)
    late = math.exp(-rate * max(service - window, 0.0))
    if most < size:
        add_after_in_limited_queue(chain, n, late, in_service, out)
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
def add_after_in_limited_queue(
    chain: Transitions, n: int, late: float, in_service: FloatArray, out: FloatArray
) -> None:
    """Add the probabilities of partial batches if a queue limit below B rejects further arrivals."""
    server, rate, in_window, in_age, in_rest = (
        chain.server, chain.rate, chain.in_window, chain.in_age, chain.in_rest,
    )  # fmt: skip
    size, window = server.size, server.window_ms
    service = service_ms(server, n)
    most = queue_limit_during(server, n)
    if most <= 0:
        fill_window(in_window, 1, size, 1.0, out)
        return
    # No request arrived during the service: the first one opens a window at a free server.
    fill_window(in_window, 1, size, math.exp(-rate * service), out)
    # The window ended during the service: the batch starts at the service's end with the admitted requests.
    if service > window:
        rest = 1.0 - late
        for q in range(1, most):
            chance = max(in_service[q] - late * in_window[q], 0.0)
            out[q] += chance
            rest -= chance
        out[most] += max(rest, 0.0)
    # The window is still open at the service's end, at the age `age`: the queue is limited before the end,
    # and not after it.
    for m in range(FIRST_POINTS):
        age, weight = window_opens_before_end(server, rate, n, 1.0, m, in_age)
        fill_chances(rate * (window - age), in_rest)
        for c in range(most):
            fill_window(in_rest, 1 + c, size, weight * in_age[c], out)
    # The remaining probability, which quadrature misses, is that of full batches.
    total = 0.0
    for j in range(size + 1):
        total += out[j]
    out[size] += 1.0 - total
