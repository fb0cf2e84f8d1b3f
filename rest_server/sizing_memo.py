"""Sizing cache of a solver process: maximum rates of replicas, kept between requests.

Apart from the fleet, it is the only state of a process. Its size is bounded, and its keys contain everything
on which a sizing depends, so responses do not depend on earlier requests.
"""

from functools import cache

from optimizer.candidates import SizingMemo


@cache
def memo_of_process(max_rows: int) -> SizingMemo | None:
    """Return the sizing cache that all requests of this process share; None if `max_rows` is 0."""
    return SizingMemo(max_rows) if max_rows else None
