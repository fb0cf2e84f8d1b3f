"""Marks on estimated values in tables, and notes about the sources of token times."""

from collections.abc import Iterator, Sequence

from optimizer.plan import Plan, Pool
from optimizer.plan.notebook import MARK
from optimizer.quantities import counted_of
from optimizer.schema import EstimateEnd

MAX_NAMED = 5
"""Maximum number of profiles or pools named in a sentence."""
ENDS = {
    "upper": "cautious: the slow end of their intervals",
    "middle": "typical: the middle of their intervals",
    "lower": "the fast end of their intervals",
}


def marked(accelerator: str, estimated: str | None) -> str:
    """Return the name of an accelerator, marked if the pool's metrics are based on an estimate."""
    return accelerator if estimated is None else accelerator + MARK


def estimate_note(
    estimated: Sequence[EstimateEnd | None], noun: str = "pool", *, is_marked: bool = False
) -> str:
    """State which token times are estimates, and of what; empty if none are.

    Args:
        estimated: for each row, the end of its estimates; None for token times that are no estimates.
        noun: noun of the rows.
        is_marked: whether estimates are marked even if all are estimates, as in CSV, which has no notes.
    """
    ends = sorted({end for end in estimated if end is not None})
    if not ends:
        return ""
    known = estimated.count(None)
    count = f"{counted_of(len(estimated) - known, len(estimated), noun)}; " if known else ""
    return (
        f"{'~ token' if known or is_marked else 'Token'} times are estimated from data sheets, not measured "
        f"({count}{' and '.join(ENDS[end] for end in ends)}); measure before you buy"
    )


def estimates_notes(*plans: Plan) -> list[str]:
    """Return a note on the sources of token times: estimates, measurements, and pools outside their domain.

    There is none if all token times were given as plain numbers.
    """
    pools = [pool for plan in plans for pools in plan.allocations.values() for pool in pools]
    estimated = estimate_note([pool.estimated for pool in pools])
    notes = [*([estimated] if estimated else []), *_measured(pools), *outside_range(plans)]
    return [". ".join(notes)] if notes else []


def _measured(pools: Sequence[Pool]) -> Iterator[str]:
    origins = sorted({pool.provenance for pool in pools if pool.provenance is not None})
    if origins:
        rest = f"; and {len(origins) - MAX_NAMED} more" if len(origins) > MAX_NAMED else ""
        yield f"Token times: {'; '.join(origins[:MAX_NAMED])}{rest}"


def outside_range(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a sentence on the pools whose load is outside the measured range of their token times, if any."""
    missed = sorted(
        {
            f"{server} on {pool.accelerator}: {', '.join(pool.outside)}"
            for plan in plans
            for server, pools in plan.allocations.items()
            for pool in pools
            if pool.outside
        }
    )
    if missed:
        rest = f"; and {len(missed) - MAX_NAMED} more" if len(missed) > MAX_NAMED else ""
        yield f"Outside the measured range: {'; '.join(missed[:MAX_NAMED])}{rest}"
