"""How estimated figures are marked, wherever figures are shown."""

from optimizer.plan import Plan

MARK = " ~"
"""Behind the name of an accelerator whose token times are estimated."""
_ENDS = {
    "upper": "the slow end of their intervals",
    "middle": "the middle of their intervals",
    "lower": "the fast end of their intervals",
}


def marked(accelerator: str, estimated: str | None) -> str:
    """Return the name of an accelerator, with the mark where its figures rest on an estimate."""
    return accelerator if estimated is None else accelerator + MARK


def estimates_note(*plans: Plan) -> str | None:
    """Say in a sentence what the mark means and how much rests on estimates; none where nothing does."""
    pools = [pool for plan in plans for pools in plan.allocations.values() for pool in pools]
    ends = {pool.estimated for pool in pools if pool.estimated is not None}
    if not ends:
        return None
    count = sum(pool.estimated is not None for pool in pools)
    return (
        f"~ token times are estimated from data sheets, not measured ({count:,} of {len(pools):,} pools), "
        f"at {' and '.join(_ENDS[end] for end in sorted(ends))}; measure before you buy"
    )
