"""The search for the last number at which nothing is above zero: its answer, in which no path shows."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest
from scipy.optimize import bisect

from optimizer.arrays import FloatArray, IntArray
from optimizer.queueing.roots import DROPPED_BITS, largest_feasible

STEP = 2.0 ** (DROPPED_BITS - 52)
"""The largest step from one answer to the next, relative."""


@dataclass(frozen=True)
class Sets:
    """Sets of two functions that are zero at their roots; the second is steep, as close to saturation."""

    roots: FloatArray
    """Shape (2, R)."""
    shape: FloatArray
    kind: str
    asked: list[int]

    def __call__(self, x: FloatArray, /) -> FloatArray:
        self.asked.append(len(x))
        first, second = self.roots
        if self.kind == "smooth":
            return np.stack((self.shape * (x - first), np.log(second / (np.maximum(2 * second - x, 1e-9)))))
        if self.kind == "flat":
            return np.stack((np.sign(x - first) * np.abs(x - first) ** self.shape, (x - second) ** 3))
        if self.kind == "step":
            return np.stack((np.where(x > first, self.shape, -1.0), np.where(x > second, 1e-9, -1.0)))
        if self.kind == "unlimited":
            return np.stack((self.shape * (x - first), np.full(len(x), -69.0)))
        assert self.kind == "wavy"
        return np.stack((x - first + 0.1 * np.sin(20 * self.shape * x), x - second))

    def take(self, rows: IntArray) -> Self:
        return type(self)(self.roots[:, rows], self.shape[rows], self.kind, self.asked)


KINDS = ("smooth", "flat", "step", "unlimited", "wavy")
GROWING = KINDS[:-1]


def sets_of(kind: str, count: int = 500) -> Sets:
    rng = np.random.default_rng(sum(map(ord, kind)))
    roots = rng.uniform(0.5, 2.9, (2, count))
    roots[1, ::5] = roots[0, ::5]
    roots[0, 1::50] = 0.5
    return Sets(roots, rng.integers(1, 6, count).astype(np.float64), kind, [])


def searched(sets: Sets, shares: FloatArray, low: float = 0.3, high: float = 3.0) -> FloatArray:
    points = np.repeat((low + (high - low) * shares)[:, np.newaxis], len(sets.shape), axis=1)
    values = np.stack([sets(point) for point in points])
    sets.asked.clear()
    return largest_feasible(sets, points, values)


def next_of(found: FloatArray) -> FloatArray:
    """Return the next number with as few bits."""
    return (((found.view(np.int64) >> DROPPED_BITS) + 1) << DROPPED_BITS).view(np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_result_is_feasible_and_the_next_number_is_not(kind: str) -> None:
    sets = sets_of(kind)
    found = searched(sets, np.linspace(0, 1, 8))
    assert (found.view(np.int64) & ((1 << DROPPED_BITS) - 1) == 0).all(), "an answer has few bits"
    assert (sets(found) <= 0).all()
    assert (sets(next_of(found)) > 0).any(axis=0).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", GROWING)
def test_result_matches_scipy_bisect(kind: str) -> None:
    sets = sets_of(kind, 60)
    found = searched(sets, np.linspace(0, 1, 8))
    for row in range(60):
        one = sets.take(np.array([row]))

        def worst(x: float, one: Sets = one) -> float:
            return float(one(np.array([x])).max())

        assert found[row] == pytest.approx(bisect(worst, 0.3, 3.0, xtol=1e-13), rel=2 * STEP)


@pytest.mark.parametrize("kind", GROWING)
def test_result_is_independent_of_the_search_path(kind: str) -> None:
    """Other points to begin with, other neighbours, another order: the same bits."""
    sets = sets_of(kind)
    found = searched(sets, np.linspace(0, 1, 8))
    for shares in (np.linspace(0, 1, 4), np.linspace(0, 1, 23), 1 - np.linspace(1, 0, 9) ** 3):
        assert np.array_equal(searched(sets, shares), found)
    some = np.arange(len(found))[::-7]
    assert np.array_equal(searched(sets.take(some), np.linspace(0, 1, 8)), found[some])


def test_result_is_at_least_the_first_point() -> None:
    """A crossing in the same step as the first point: the answer is not before that point."""
    low = 1.0 + 0.3 * STEP
    sets = Sets(np.full((2, 1), low + 0.1 * STEP), np.ones(1), "step", [])
    assert searched(sets, np.linspace(0, 1, 8), low=low) == low


def test_crossing_within_one_step_of_the_upper_end() -> None:
    sets = Sets(np.full((2, 1), 1.0 + 0.3 * STEP), np.ones(1), "step", [])
    assert searched(sets, np.linspace(0, 1, 4), low=0.5, high=1.0 + 0.6 * STEP) == 1.0
