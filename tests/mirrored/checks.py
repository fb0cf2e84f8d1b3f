"""Check that every replica of a mirrored server has a twin elsewhere."""

from collections import Counter
from collections.abc import Iterator

from optimizer.candidates import Candidates
from optimizer.features.mirrored.fields import is_mirrored
from optimizer.plan.checks.facts import Facts


def check(facts: Facts, _: Candidates | None) -> Iterator[str]:
    """Yield mirrored servers with too few twins or too many, and twins of other servers."""
    system = facts.whole
    for name, pools in facts.plan.allocations.items():
        here, there = Counter[str | None](), Counter[str | None]()
        for pool in pools:
            place = system.accelerators[pool.accelerator].place
            (here if pool.role is None else there)[place] += pool.num_replicas
        if not is_mirrored(system.servers[name]) and there:
            yield f"{name}: has twins, but is not mirrored"
        elif is_mirrored(system.servers[name]) and name not in facts.listed:
            if here.total() != there.total():
                yield f"{name}: {here.total()} replicas and {there.total()} twins"
            for place, count in here.items():
                twins = there.total() - there[place]
                if count > twins:
                    yield f"{name}: {count} replicas at {place}, {twins} twins elsewhere"
