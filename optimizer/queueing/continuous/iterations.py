"""The mean iteration of replicas, as the fixed point of its length."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.continuous.replicas import Iteration, ReplicaArrays
from optimizer.queueing.continuous.schedulers import Scheduler
from optimizer.queueing.roots import closed_brackets, zeros_or

ITERATION_WIDTH = 1e-13
"""Relative width of the bracket at which the search for the mean iteration stops."""
SECANT_WIDTH = 4e-15
MAX_SECANTS = 12
GROWTH = 1.5
MAX_GROWTHS = 60


@dataclass(frozen=True, slots=True)
class _IterationResidual:
    """Function whose root is the mean iteration: log of the iteration time for a guess over the guess."""

    scheduler: Scheduler
    replicas: ReplicaArrays
    rate: FloatArray

    def take(self, rows: IntArray) -> Self:
        return type(self)(self.scheduler, self.replicas.take(rows), self.rate[rows])

    def __call__(self, x: FloatArray, /) -> FloatArray:
        return np.log(self.scheduler.iteration(self.replicas, self.rate, x).mean_ms / x)


def mean_iterations(scheduler: Scheduler, replicas: ReplicaArrays, rate: FloatArray) -> Iteration:
    """Return the mean iterations, as a fixed point of their length (eq. 70).

    The contents of an iteration are almost linear in its length, so secant steps converge fast. With
    `prefill-first` there can be two solutions, of which the shorter one is valid. If secants do not converge,
    the solution is bracketed.
    """
    guess, closed = _secants(scheduler, replicas, rate)
    rows = np.flatnonzero(~closed)
    if len(rows):
        guess[rows] = _bracketed(
            _IterationResidual(scheduler, replicas.take(rows), rate[rows]), replicas.take(rows)
        )
    return scheduler.iteration(replicas, rate, guess)


def _secants(scheduler: Scheduler, replicas: ReplicaArrays, rate: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return iteration lengths from secant steps from below [ms], and a mask of those that converged."""
    # From below, the first crossing is the shortest solution. Rows that step past it have not converged.
    before = replicas.iteration_ms(1.0)
    found_before = scheduler.iteration(replicas, rate, before).mean_ms
    guess = found_before
    reached_ms = scheduler.iteration(replicas, rate, guess).mean_ms
    sound = found_before >= before
    for _ in range(MAX_SECANTS):
        closed = np.abs(reached_ms - guess) <= SECANT_WIDTH * guess
        if (closed | ~sound).all():
            break
        # Secant of the resulting length over the guessed length; its slope must be below 1, the slope of the
        # diagonal.
        step = guess - before
        slope = (reached_ms - found_before) / np.where(step == 0, 1.0, step)
        sound &= closed | ((slope < 1) & (step != 0))
        moved = guess + (reached_ms - guess) / np.where(slope < 1, 1 - slope, 1.0)
        before, found_before = guess, reached_ms
        guess = np.where(closed | ~sound, guess, moved)
        reached_ms = scheduler.iteration(replicas, rate, guess).mean_ms
    closed = np.abs(reached_ms - guess) <= SECANT_WIDTH * guess
    return guess, sound & closed & scheduler.has_one_solution


def _bracketed(excess: "_IterationResidual", replicas: ReplicaArrays) -> FloatArray:
    """Return iteration lengths [ms] from brackets that grow from the shortest iteration."""
    low = 0.999 * replicas.iteration_ms(1.0)
    at_low = excess(low)
    high, at_high = low * np.exp(at_low), np.zeros_like(low)
    rows = np.arange(len(low))
    for _ in range(MAX_GROWTHS):
        high[rows] *= GROWTH
        at_high[rows] = excess.take(rows)(high[rows])
        rows = rows[at_high[rows] > 0]
        if not len(rows):
            break
    ends, values = np.stack((low, high)), np.stack((at_low, at_high))
    brackets, values = closed_brackets(excess, ends, values, ITERATION_WIDTH)
    return zeros_or(brackets.max(axis=0), brackets, values)
