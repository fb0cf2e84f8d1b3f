"""Root finding: the bits of SciPy's, what must hold of a closed bracket, and whole numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest
from scipy.optimize.elementwise import find_root
from slow_cases import mostly_slow

from optimizer.arrays import FloatArray, IntArray
from optimizer.queueing.roots import closed_brackets, root_above, smallest_integer, zeros_or

Formula = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""A function of a point that is zero at the first parameter; the second is its shape, 1 … 9."""

FORMULAS: dict[str, Formula] = {
    "line": lambda x, root, shape: shape * (x - root),
    "cubic": lambda x, root, shape: (x - root) * (1 + shape * (x - root) ** 2),
    "flat": lambda x, root, shape: np.sign(x - root) * np.abs(x - root) ** shape,
    "steep": lambda x, root, shape: np.expm1(20 * shape * (x - root)),
    "saturating": lambda x, root, shape: np.log1p(shape * np.maximum(x - root, -0.999 / shape)),
    "step": lambda x, root, shape: np.where(x < root, -1.0, shape),
    "saw": lambda x, root, shape: x - root + 0.04 * np.sin(9 * shape * (x - root)),
}
WIDTHS = (1e-10, 1e-3, 4 * np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Family:
    """Functions of one formula, which count how often they are asked."""

    formula: Formula
    root: FloatArray
    shape: FloatArray
    asked: list[int]

    def __call__(self, x: FloatArray) -> FloatArray:
        self.asked.append(len(x))
        return self.formula(x, self.root, self.shape)

    def take(self, rows: IntArray) -> Self:
        return type(self)(self.formula, self.root[rows], self.shape[rows], self.asked)


def family(name: str, count: int = 2000) -> tuple[Family, FloatArray]:
    """Return functions and a bracket for each; every eighth root is a double that halving hits."""
    rng = np.random.default_rng(sum(map(ord, name)))
    root = rng.uniform(0.05, 0.95, count)
    root[::8] = 0.375
    root[1::64] = 0.0
    shape = rng.integers(1, 10, count).astype(np.float64)
    ends = np.stack((np.full(count, -0.25), rng.choice([1.0, 1.25, 3.0], count)))
    ends[0, ::8], ends[1, ::8] = 0.0, 1.0
    return Family(FORMULAS[name], root, shape, []), ends


def values(functions: Family, ends: FloatArray) -> FloatArray:
    found = np.stack([functions(end) for end in ends])
    functions.asked.clear()
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("width", mostly_slow(WIDTHS, 2))
@pytest.mark.parametrize("name", FORMULAS)
def test_brackets_match_scipy_bitwise(name: str, width: float) -> None:
    functions, ends = family(name)
    found, at_found = closed_brackets(functions, ends, values(functions, ends), width)
    with np.errstate(all="ignore"):
        arguments = functions.root, functions.shape
        expected = find_root(functions.formula, tuple(ends), args=arguments, tolerances={"xrtol": width})
    order = np.argsort(found, axis=0, kind="stable")
    np.testing.assert_array_equal(np.take_along_axis(found, order, axis=0), np.stack(expected.bracket))
    np.testing.assert_array_equal(np.take_along_axis(at_found, order, axis=0), np.stack(expected.f_bracket))
    # SciPy asks at both ends first; here the caller has done so.
    assert sum(functions.asked) == int((expected.nfev - 2).sum())


def test_zero_end_of_a_wide_bracket_is_the_root() -> None:
    functions, ends = family("line")
    brackets, at_ends = closed_brackets(functions, ends, values(functions, ends), 1e-10)
    wide = np.abs(brackets[1] - brackets[0]) > 1e-3
    assert wide.sum() >= 250  # every eighth root is hit by halving
    assert zeros_or(brackets.max(axis=0), brackets, at_ends) == pytest.approx(functions.root, abs=1e-9)


def test_closed_brackets_are_not_evaluated_again() -> None:
    functions, _ = family("line", 2)
    ends = np.stack((functions.root, functions.root + 1.0))
    found, at_found = closed_brackets(functions, ends, values(functions, ends), 1e-10)
    np.testing.assert_array_equal(found, ends)
    assert (at_found[0] == 0).all()
    assert not functions.asked


@pytest.mark.parametrize("high", [0.1, 3.0, 5.0, 400.0])
def test_root_is_found_from_any_upper_end(high: float) -> None:
    assert root_above(lambda x: 5.0 - x, 0.05, high, 1e-12) == pytest.approx(5.0, rel=1e-12)
    coarse = root_above(lambda x: 1 / x - 0.2, 0.05, high, 1e-12, 1e-3)
    assert coarse == pytest.approx(5.0, abs=1e-3 * max(10.0, high))


@pytest.mark.parametrize("least", [1, 2, 7, 99, 100])
def test_smallest_integer_is_found_by_bisection(least: int) -> None:
    asked: list[int] = []

    def holds(count: int) -> bool:
        asked.append(count)
        return count >= least

    assert smallest_integer(holds, 0, 100) == least
    assert len(asked) <= 7  # log2(100), rounded up
