"""Check the completion of offline work: capacity times hours against requests."""

from collections.abc import Iterator

from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, Facts, close, differing
from optimizer.plan.document import DeadlineUse
from optimizer.quantities import precise


def check_deadlines(facts: Facts) -> list[str]:
    """Return the errors of the deadlines."""
    wanted = [name for name, server in facts.system.servers.items() if server.deadline is not None]
    said = [item.server for item in facts.plan.deadlines]
    if said != wanted:
        return [f"deadlines: of {', '.join(wanted) or 'no server'}, not of {', '.join(said) or 'none'}"]
    return [f"{item.server}: {line}" for item in facts.plan.deadlines for line in _item(facts, item)]


def _item(facts: Facts, item: DeadlineUse) -> Iterator[str]:
    work = facts.system.servers[item.server].deadline
    assert work is not None
    pools = facts.pools_of(item.server)
    capacity = sum(pool.max_arrival_rate_rpm for pool in pools)
    if item.server in facts.rented:
        capacity += facts.rented[item.server].arrival_rate_rpm
    by_deadline = capacity * 60 * work.hours
    enough = by_deadline >= work.requests * (1 - RELATIVE_TOLERANCE)
    for field, true, shown in (
        ("requests", work.requests, item.requests),
        ("hours", work.hours, item.hours),
        ("capacity", capacity, item.capacity_rpm),
        ("done", min(by_deadline, work.requests), item.done_in_time),
    ):
        yield from differing(f"{field} of its deadline is", true, shown)
    if (item.finishes_h is None) != (not capacity):
        yield (
            "has capacity, but no end in the plan" if capacity else "has no capacity, but an end in the plan"
        )
    elif item.finishes_h is not None and not close(item.finishes_h * capacity * 60, work.requests):
        yield (
            f"{precise(item.finishes_h)} h at {precise(capacity)} requests/min are not enough for "
            f"{precise(work.requests)} requests"
        )
    if item.in_time != enough:
        yield f"{precise(by_deadline)} of {precise(work.requests)} requests are done by its deadline"
    few = facts.listed.get(item.server)
    if enough and few is not None and few.served_fraction < 1 - RELATIVE_TOLERANCE:
        yield "done by its deadline, but listed as unserved"
