"""Servers that the optimum of a service level proves served, or unserved.

The servers of a level that are left out weigh in sum what the level comes to. Often few sets of servers do,
or only one: then most servers are known before the levels that follow are solved. Equation numbers refer to
``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray

MAX_BITS = 100_000_000
"""Largest product of total and servers that is looked at: for each server, every sum is a bit."""


def fixed_by_subset_sum(weight: FloatArray, total: float) -> tuple[BoolArray, BoolArray]:
    """Return the servers that no set of a total weight has, and those that every such set has (eq. 134).

    Args:
        weight: whole numbers, shape (S,); servers of weight 0 are in no question.
        total: what the servers that are left out weigh, a whole number.

    Returns:
        The servers to be served, and those to be left out, both of shape (S,). None of them where the total
        is too large to look at, or no set weighs as much.
    """
    served, left_out = np.zeros((2, len(weight)), np.bool_)
    servers, whole = np.flatnonzero(weight > 0).tolist(), round(total)
    if whole < 0 or whole * len(servers) > MAX_BITS:
        return served, left_out
    each = [round(weight[server]) for server in servers]
    sums, below = [1], (2 << whole) - 1
    for one in each:
        sums.append((sums[-1] | sums[-1] << one) & below)
    if not sums[-1] >> whole:
        return served, left_out
    # From the last server back: the sums of those before it from which the total can be reached.
    reaching = 1 << whole
    for server, one, before in zip(servers[::-1], each[::-1], sums[-2::-1], strict=True):
        served[server] = not (before << one) & reaching
        left_out[server] = not before & reaching
        reaching |= reaching >> one
    return served, left_out
