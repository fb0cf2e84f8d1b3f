"""Sizing cache of a solver process: maximum rates of replicas, kept between requests.

Apart from the fleet, it is the only state of a process. It is bounded, and its keys contain everything that a
sizing depends on, so answers do not depend on earlier requests.
"""

from functools import cache

from optimizer.candidates import SizingMemo


@cache
def memo_of_process(max_rows: int) -> SizingMemo | None:
    """Return the memo shared by all requests of this process; None if it has no rows."""
    return SizingMemo(max_rows) if max_rows else None
