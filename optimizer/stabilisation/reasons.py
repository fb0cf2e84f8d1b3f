"""Reasons for the desired replicas on each accelerator, and whether the number is held.

A number is held if it differs from the plan. Its reason is then a rule, replicas that are not ready yet, or
missing cards. Otherwise the reason states how the number has changed, and whether the load has changed.
"""

from collections.abc import Mapping
from dataclasses import replace

from optimizer.stabilisation.decisions import ReplicaTarget, ServerDecision, TargetReason
from optimizer.stabilisation.pools import Recommendation, Ruled
from optimizer.stabilisation.running import RunningPool

WAITS = "removed once the replicas that replace it are ready"
NO_CARDS = "its cards are used by replicas that must be replaced first"


def decided_targets(
    wanted: Recommendation,
    way: Ruled,
    step: Mapping[str, int],
    last: ServerDecision | None,
    running: Mapping[str, RunningPool],
    now_s: float,
) -> dict[str, ReplicaTarget]:
    """Return the targets of a server by accelerator, including planned and just removed replicas.

    If the server has no replicas, all accelerators that it can use have the reason for that.

    Args:
        wanted: the plan's recommendation.
        way: the recommendation after the rules.
        step: replicas to run now, by accelerator.
        last: the previous decision; None for a new server.
        running: the current pools.
        now_s: time [s since the epoch].
    """
    before = {} if last is None else last.targets
    left = [name for name, target in before.items() if target.replicas]
    nowhere = sorted(wanted.may_use) if _runs_nowhere(wanted, way, step) else []
    names = dict.fromkeys((*way.targets, *wanted.targets, *step, *left, *running, *nowhere))
    return {
        name: _target(name, wanted, way, step.get(name, 0), last, running.get(name), now_s)
        for name in names
        if step.get(name, 0) or name in wanted.targets or name in left or name in nowhere
    }


def _runs_nowhere(wanted: Recommendation, way: Ruled, step: Mapping[str, int]) -> bool:
    """Return whether a server has no replicas now or in the plan, and none on shared cards."""
    has_none = not wanted.targets and not any(step.values())
    return has_none and (wanted.is_idle or wanted.unserved is not None or way.stays_for is not None)


def _target(
    name: str,
    wanted: Recommendation,
    way: Ruled,
    number: int,
    last: ServerDecision | None,
    running: RunningPool | None,
    now_s: float,
) -> ReplicaTarget:
    old = None if last is None else last.targets.get(name)
    base = (
        way.targets.get(name) or wanted.targets.get(name) or old or ReplicaTarget(0, TargetReason.not_chosen)
    )
    if not base.max_batch:
        batches = {pool.accelerator: pool.max_batch for pool in wanted.server.current.stated_pools}
        base = replace(base, max_batch=old.max_batch if old else batches.get(name, 0))
    if name not in way.targets and name not in wanted.targets and running is not None:
        base = replace(base, rate_rpm=running.rate_rpm)
    there = 0 if running is None else running.replicas
    reason, detail = _reason(name, wanted, way, number, last)
    target = replace(
        base,
        replicas=number,
        reason=reason,
        detail=detail,
        held=number != wanted.replicas.get(name, 0) or (reason is TargetReason.unserved and number > 0),
        leaving=number > 0 and reason is TargetReason.waits_for_new_pool and not way.replicas.get(name, 0),
        raised_s=0.0 if old is None else old.raised_s,
        ready_before=min(number, 0 if running is None else running.ready),
        sized_rpm=wanted.offered_rpm if old is None or number != old.replicas else old.sized_rpm,
    )
    return replace(target, raised_s=now_s) if number > there else target


def _reason(
    name: str, wanted: Recommendation, way: Ruled, number: int, last: ServerDecision | None
) -> tuple[TargetReason, str]:
    """Return the reason for a number of replicas, and an explanation if the number is held.

    Args:
        name: name of the accelerator.
        wanted: the plan's recommendation.
        way: the recommendation after the rules.
        number: the number of replicas.
        last: the previous decision; None for a new server.
    """
    if wanted.unserved is not None:
        return TargetReason.unserved, f"{wanted.unserved.reason}: {wanted.unserved.detail}"
    goal = way.replicas.get(name, 0)
    if number == wanted.replicas.get(name, 0):
        rule = None if wanted.targets else way.stays_for
        return (_change(name, wanted, number, last), "") if rule is None else (rule, way.detail)
    if number > goal:
        return TargetReason.waits_for_new_pool, WAITS
    if number < goal:
        return TargetReason.units, NO_CARDS
    target = way.targets.get(name)
    if target is not None and target.held:
        old = 0 if last is None or name not in last.targets else last.targets[name].replicas
        plan = "" if number == old else f"from {old}, where the plan has {wanted.replicas.get(name, 0)}; "
        return target.reason, plan + target.detail
    assert way.stays_for is not None
    return way.stays_for, ""


def _change(name: str, wanted: Recommendation, number: int, last: ServerDecision | None) -> TargetReason:
    """Return the reason for a number of replicas that equals the plan's."""
    absent = TargetReason.idle if wanted.is_idle else TargetReason.not_chosen
    if last is None:
        return TargetReason.new if number else absent
    old = last.targets.get(name)
    before = 0 if old is None else old.replicas
    if number == before:
        return TargetReason.unchanged if number else absent
    if not before and last.replicas:
        return TargetReason.switch
    if not number and wanted.targets:
        return TargetReason.not_chosen
    sized_rpm = last.load_rpm if old is None else old.sized_rpm
    change_rpm = 0.0 if sized_rpm is None else wanted.offered_rpm - sized_rpm
    if change_rpm * (number - before) <= 0:
        return TargetReason.replanned
    return TargetReason.load_increase if change_rpm > 0 else TargetReason.load_decrease
