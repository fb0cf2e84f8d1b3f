"""Check that prefill replicas of a plan can send to all decode replicas, and that targets add up."""

from collections.abc import Iterator

from optimizer.candidates import Candidates
from optimizer.features.disaggregation.streams import RolePool, bandwidth_gbps, is_seeded
from optimizer.plan.checks.facts import Facts
from optimizer.queueing.targets import MISS_TOLERANCE


def check(facts: Facts, _: Candidates | None) -> Iterator[str]:
    """Yield pairs of pools without a link, and mean TTFTs of both pools above the target."""
    system, plan = facts.whole, facts.plan
    for name, use in plan.disaggregation.items():
        if len(use.pools) != len({pool.role for pool in use.pools}) or len(use.pools) < 2:
            continue
        prefill, decode = (plan.allocations.get(pool.server, ()) for pool in use.pools)
        if not (prefill and decode):
            yield from [f"{name}: needs both prefill and decode replicas"] if prefill or decode else ()
            continue
        for first in prefill:
            for second in decode:
                sender, receiver = (system.accelerators[pool.accelerator] for pool in (first, second))
                if bandwidth_gbps(sender, receiver) <= 0:
                    yield f"{name}: no link from {first.accelerator} to {second.accelerator}"
        one = system.servers.get(use.pools[0].server)
        if not isinstance(one, RolePool):
            continue
        target = system.target_of(one.whole)
        if target is not None and target.ttft_ms and target.percentile is None:
            total = max(pool.ttft_ms for pool in prefill)
            total += 0.0 if is_seeded(one) else max(pool.ttft_ms for pool in decode)
            if total > target.ttft_ms * (1 + 2 * MISS_TOLERANCE):
                yield f"{name}: TTFT of both pools is {total:.4g} ms, target {target.ttft_ms:.4g} ms"
