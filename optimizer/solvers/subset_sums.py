"""Servers that the optimum of a service level proves to be served, or to be unserved.

The weights of the unserved servers add up to the value of the level. Often only one or a few sets of servers
have that sum, so most servers are determined before the next levels are solved. Equation numbers refer to
``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray

MAX_BITS = 100_000_000
"""Maximum product of total weight and number of servers that is processed; every sum is one bit per server.
"""


def fixed_by_subset_sum(weight: FloatArray, total: float) -> tuple[BoolArray, BoolArray]:
    """Return the servers in no set, and those in every set, of servers with a given total weight (eq. 134).

    Args:
        weight: integer weights, shape (S,); servers of weight 0 are ignored.
        total: total weight of the unserved servers, an integer.

    Returns:
        Masks of the servers that must be served, and of those that must be unserved, shapes (S,). Both are
        empty if the total is too large, or no set has that weight.
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
    # From the last server backwards: the sums of the servers before it that can still reach the total.
    reaching = 1 << whole
    for server, one, before in zip(servers[::-1], each[::-1], sums[-2::-1], strict=True):
        served[server] = not (before << one) & reaching
        left_out[server] = not before & reaching
        reaching |= reaching >> one
    return served, left_out
