"""Sizing memo of a solver process: maximum rates of replicas, kept between requests.

The one state of a process besides the fleet. It is bounded, and no answer depends on it: a row is remembered
under all that its sizing depends on, and a plan is the same whatever was asked before.
"""

from functools import cache

from optimizer.candidates import SizingMemo


@cache
def memo_of_process(max_rows: int) -> SizingMemo | None:
    """Return the memo that all requests of this process share; None if it has no rows."""
    return SizingMemo(max_rows) if max_rows else None
