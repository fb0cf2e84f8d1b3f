"""Check that separate servers have no common accelerator type."""

from collections.abc import Iterator

from optimizer.candidates import Candidates
from optimizer.features.separate.fields import apart_from
from optimizer.plan.checks.facts import Facts


def check(facts: Facts, _: Candidates | None) -> Iterator[str]:
    """Yield separate servers on a common accelerator type."""
    system = facts.whole

    def types(name: str) -> set[str]:
        pools = facts.plan.allocations.get(name, ())
        return {system.accelerators[pool.accelerator].type for pool in pools}

    for name, server in system.servers.items():
        other = apart_from(server)
        if other is not None and (common := types(name) & types(other)):
            yield f"{name}: runs on {', '.join(sorted(common))}, as does {other}, from which it is separate"
