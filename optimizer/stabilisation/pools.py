"""Stabilisation rules for one server: its accelerators and its number of replicas.

Loads are in requests/min. The maximum rate of a pool is the number of its replicas times the maximum rate of
a replica when it was last sized. So rules compare loads instead of counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor

from optimizer.plan import Pool, Unserved
from optimizer.schema import Server
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import (
    Moment,
    Observation,
    ReplicaStatus,
    ReplicaTarget,
    ServerDecision,
    TargetReason,
)
from optimizer.stabilisation.rules import Rules, StepLimit
from optimizer.stabilisation.running import RunningPool, same_requests
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Recommendation of a plan for a server, and the data that the rules need."""

    server: Server
    targets: Mapping[str, ReplicaTarget]
    """Planned replicas by accelerator, or kept ones if the server cannot be served."""
    load_rpm: float
    """Load carried by the pools [requests/min]."""
    offered_rpm: float
    """Load used for planning [requests/min]."""
    unserved: Unserved | None
    """Reason that the server has no allocation; None if it has one."""
    may_use: frozenset[str]
    """Accelerators that the server can use: they are allowed, and its model has a profile for them."""

    @classmethod
    def of(
        cls,
        system: System,
        name: str,
        offered_rpm: float,
        pools: Sequence[Pool],
        unserved: Unserved | None = None,
        kept: Mapping[str, int] | None = None,
    ) -> "Recommendation":
        """Return the recommendation of a plan for a server.

        Args:
            system: the planned system.
            name: the server.
            offered_rpm: the load used for planning [requests/min].
            pools: its pools in the plan.
            unserved: reason that the server has no allocation; None if it has one.
            kept: replicas that it keeps without an allocation, by accelerator.
        """
        server = system.servers[name]
        allowed = frozenset(system.accelerators_of(server))
        targets = {
            on: ReplicaTarget(
                number, TargetReason.unserved, cost_cents_per_h=_cost_of_replica(system, server, on)
            )
            for on, number in (kept or {}).items()
        } | {
            pool.accelerator: ReplicaTarget(
                pool.num_replicas,
                TargetReason.unchanged,
                pool.max_batch,
                pool.max_arrival_rate_rpm / pool.num_replicas,
                pool.cost_cents_per_h / pool.num_replicas,
            )
            for pool in pools
            if pool.num_replicas
        }
        load_rpm = sum(pool.arrival_rate_rpm for pool in pools)
        return cls(server, targets, load_rpm, offered_rpm, unserved, allowed)

    @property
    def is_idle(self) -> bool:
        """Whether no requests arrive and the plan has no replicas for the server."""
        return not self.targets and not self.offered_rpm

    @property
    def replicas(self) -> dict[str, int]:
        """Recommended replicas by accelerator."""
        return {name: target.replicas for name, target in self.targets.items()}


@dataclass(frozen=True, slots=True)
class Ruled:
    """Pools of a server after the rules.

    A target that a rule changed is held, and has the rule as its reason.
    """

    targets: Mapping[str, ReplicaTarget]
    """Targets by accelerator."""
    recommended: Mapping[str, int]
    """Recommended replicas by accelerator, before the rules that spread changes over time."""
    stays_for: TargetReason | None = None
    """Reason to stay on the current accelerators although the plan moves the server; None if it moves."""
    detail: str = ""
    """Explanation of `stays_for`; empty without one."""

    @property
    def replicas(self) -> dict[str, int]:
        """Replicas after the rules, by accelerator, without zeros."""
        return {name: target.replicas for name, target in self.targets.items() if target.replicas}


def unchanged_plan(wanted: Recommendation) -> Ruled:
    """Return the desired replicas of a server if no stabilisation rule changes the plan's recommendation."""
    return Ruled(wanted.targets, wanted.replicas)


def ruled(
    wanted: Recommendation,
    rules: Rules,
    last: ServerDecision | None,
    seen: Observation,
    running: Mapping[str, RunningPool],
    fleet_cost: float,
) -> Ruled:
    """Apply the stabilisation rules to a plan's recommendation for a server.

    A server whose load is too incomplete to size it keeps its replicas even without rules.

    Args:
        last: the previous decision; None for a new server.
        seen: the observed state of the fleet.
        running: its current pools.
        fleet_cost: cost of the plan [cents/h].
    """
    if wanted.unserved is not None:
        return unchanged_plan(wanted)
    incomplete = seen.incomplete.get(wanted.server.name)
    if incomplete is not None and incomplete.keeps_replicas and running:
        return _kept_as_it_runs(running, last, incomplete.detail)
    if last is None:
        return unchanged_plan(wanted)
    if wanted.server.name in seen.missing and rules.hold_missing_load:
        return _kept_as_it_runs(running, last, "its load is missing from the last snapshot")
    return _Step(wanted, rules, last, seen, seen.replicas.get(wanted.server.name), fleet_cost).ruled()


def _kept_as_it_runs(running: Mapping[str, RunningPool], last: ServerDecision | None, detail: str) -> Ruled:
    known = {} if last is None else last.targets
    held = {
        name: _held(
            known.get(name, ReplicaTarget(0, TargetReason.load_missing)),
            pool.replicas,
            TargetReason.load_missing,
            detail,
        )
        for name, pool in running.items()
    }
    replicas = {name: item.replicas for name, item in held.items()}
    return Ruled(held, replicas, TargetReason.load_missing, detail)


def remembered(
    rules: Rules, decision: ServerDecision, recommended: Mapping[str, int], now_s: float
) -> ServerDecision:
    """Return a decision with the history of recommended and desired replicas that later rules need.

    Args:
        recommended: recommended replicas by accelerator.
        now_s: time [s since the epoch].
    """
    since_s, desired = now_s - rules.memory_s, decision.replicas
    past = decision.past
    # Only what was in force within the memory of the rules is needed.
    while len(past) > 1 and past[1].first_s <= since_s:  # the first moment was in force at `since_s`
        past = past[1:]
    if past and (past[-1].recommended, past[-1].desired) == (dict(recommended), desired):
        past = (*past[:-1], replace(past[-1], last_s=now_s))
    else:
        past = (*past, Moment(now_s, now_s, dict(recommended), desired))
    return replace(decision, past=past)


@dataclass(frozen=True, slots=True)
class _Step:
    """Application of the rules to one server with a new plan."""

    wanted: Recommendation
    rules: Rules
    last: ServerDecision
    seen: Observation
    replicas: Mapping[str, ReplicaStatus] | None
    """Reported replicas by accelerator; None without a report."""
    fleet_cost: float

    def ruled(self) -> Ruled:
        """Apply all rules, one after the other."""
        targets, stays_for = self._placed()
        targets = {name: self._with_margin(name, target) for name, target in targets.items()}
        recommended = {name: target.replicas for name, target in targets.items() if target.replicas}
        return Ruled(
            {name: self._limited(name, target) for name, target in targets.items()}, recommended, stays_for
        )

    # --- accelerators --------------------------------------------------------------------------------------

    def _placed(self) -> tuple[dict[str, ReplicaTarget], TargetReason | None]:
        """Return the planned pools, or the current pools and the rule that keeps the server on them."""
        planned, staying = dict(self.wanted.targets), self.last.staying
        if not planned:  # without load, the server keeps its pools with 0 replicas
            idle = ReplicaTarget(0, TargetReason.unchanged)
            return {name: replace(idle, max_batch=target.max_batch) for name, target in staying.items()}, None
        # Rules about moving compare the cost of staying with that of the plan.
        needed = None if _same_place(planned, staying) else self._needed(staying)
        placed = None if needed is None else self._reason_to_stay(needed, planned)
        if needed is None or placed is None:
            return planned, None
        reason, detail = placed
        return {name: _held(item, item.replicas, reason, detail) for name, item in needed.items()}, reason

    def _needed(self, staying: Mapping[str, ReplicaTarget]) -> dict[str, ReplicaTarget] | None:
        """Return the pool on the current accelerator that would carry the load.

        None if its rate is unknown.
        """
        if len(staying) != 1 or not same_requests(self.wanted.server, self.last):
            return None
        ((name, target),) = staying.items()
        if name not in self.wanted.may_use or not target.rate_rpm:
            return None
        server = self.wanted.server
        number = max(_replicas(self.wanted.load_rpm, target.rate_rpm), server.min_num_replicas)
        if number > (server.max_num_replicas or number):
            return None
        return {name: replace(target, replicas=number)}

    def _reason_to_stay(
        self, needed: Mapping[str, ReplicaTarget], planned: Mapping[str, ReplicaTarget]
    ) -> tuple[TargetReason, str] | None:
        """Return the rule that keeps a server on its accelerator, with its numbers.

        None if the server can move.

        Args:
            needed: the pool on the current accelerator that would carry the load.
            planned: the planned pools.
        """
        rules = self.rules
        cost = sum(item.replicas * item.cost_cents_per_h for item in needed.values())
        # What the move saves [cents/h]; the fleet's cost makes it a share for `minSaving`.
        saving = cost - sum(item.replicas * item.cost_cents_per_h for item in planned.values())
        if rules.min_saving is not None and saving < rules.min_saving * self.fleet_cost:
            share = saving / self.fleet_cost
            return TargetReason.small_saving, _saving_text(share, "the fleet", "minSaving", rules.min_saving)
        if rules.switch_dwell_s is not None:
            dwelt_s = self.seen.now_s - self.last.switched_s
            if dwelt_s < rules.switch_dwell_s:
                detail = f"it moved {dwelt_s:.0f} s ago, less than switchDwell ({rules.switch_dwell_s:g} s)"
                return TargetReason.dwell, detail
            if saving < rules.switch_saving * cost:
                text = _saving_text(saving / cost, "the server", "switchSaving", rules.switch_saving)
                return TargetReason.small_saving, text
        return None

    # --- replicas ------------------------------------------------------------------------------------------

    def _with_margin(self, name: str, target: ReplicaTarget) -> ReplicaTarget:
        """Return a pool large enough for the load plus a margin, as the rule `scaleDownLoad` requires."""
        before, estimate = self.last.replicas.get(name, 0), self.last.load
        margin = self.rules.scale_down_load
        if margin is None or target.replicas >= before or len(self.wanted.targets) > 1 or not target.rate_rpm:
            return target
        demand = self.seen.demands.get(self.wanted.server.name)
        if demand is not None:
            margin = min(margin, 1 + demand.deviation)
        elif estimate is not None and estimate.mean_rpm:
            cv = self.wanted.server.current.load.arrival_cv
            # A load that is known exactly needs no margin: at most one standard deviation of its mean.
            known = 1 + estimate.deviation_rpm(self.rules.load_window_s, cv) / estimate.mean_rpm
            margin = min(margin, known)
        # At least what carries the load with its margin, but never more than before.
        number = min(before, max(target.replicas, _replicas(self.wanted.load_rpm * margin, target.rate_rpm)))
        if number == target.replicas:
            return target
        reason = target.reason if target.held else TargetReason.scale_down_load
        return _held(target, number, reason, f"fewer could not carry {margin - 1:.1%} more load")

    # --- rate of change -------------------------------------------------------------------------------------

    def _limited(self, name: str, target: ReplicaTarget) -> ReplicaTarget:
        """Return a target whose change is within the limits on changes per period."""
        before = self.last.replicas.get(name, 0)
        if target.replicas > before:
            return self._growing(name, target, before)
        return self._shrinking(name, target, before) if target.replicas < before else target

    def _growing(self, name: str, target: ReplicaTarget, before: int) -> ReplicaTarget:
        limit, now_s = self.rules.pending_limit_s, self.seen.now_s
        waited_s = now_s - pending_since(self.last, self.replicas, now_s).get(name, now_s)
        if limit is not None and waited_s >= limit:
            detail = f"replicas have been pending for {waited_s:.0f} s; adding more would not help"
            return _held(target, before, TargetReason.pending, detail)
        step = self.rules.scale_up_limit
        if step is None:
            return target
        there = self._reported(name)
        # The limit counts from what was desired one period ago; replicas that exist by then are no change.
        base = self._desired_at(name, now_s - step.period_s, before)
        if limit is not None and there is not None:
            base = max(base, there.ready + there.pending)
        limit = max(base + _reach(base, step), before)
        if target.replicas <= limit:
            return target
        return _held(
            target, limit, TargetReason.scale_up_limit, f"at most {limit} within {step.period_s:g} s"
        )

    def _shrinking(self, name: str, target: ReplicaTarget, before: int) -> ReplicaTarget:
        """Return a target that is reduced only as far as the rules allow.

        Args:
            name: name of the accelerator.
            target: the target after the other rules.
            before: previous number of replicas.
        """
        upper = before  # pending replicas can be removed immediately
        there = self._reported(name)
        if self.rules.pending_limit_s is not None and there is not None:
            upper = max(before - there.pending, target.replicas)
        window_s, result = self.rules.scale_down_window_s, target
        if window_s is not None:
            lowest = min(upper, self._held_by(name, target, window_s))
            if lowest > target.replicas:
                detail = f"{lowest} were recommended within the last {window_s:g} s"
                result = _held(target, lowest, TargetReason.scale_down_window, detail)
        step = self.rules.scale_down_limit
        if step is not None:
            base = self._desired_at(name, self.seen.now_s - step.period_s, before)
            lowest = min(upper, base - _reach(base, step))
            if result.replicas < lowest:
                detail = f"at least {lowest} within {step.period_s:g} s"
                result = _held(target, lowest, TargetReason.scale_down_limit, detail)
        return result

    def _held_by(self, name: str, target: ReplicaTarget, window_s: float) -> int:
        """Return the replicas that `scaleDownWindow` keeps: the largest number recommended within that time.

        So does a HorizontalPodAutoscaler. After a significant fall of the load, only a start-up time counts,
        and the replicas for a load that is hardly exceeded.
        """

        def most(time_s: float) -> int:
            since = self.seen.now_s - time_s
            past = [item.recommended.get(name, 0) for item in self.last.past if item.last_s > since]
            return max([target.replicas, *past])

        demand = self.seen.demands.get(self.wanted.server.name)
        if demand is None or demand.hold_s is None or not target.rate_rpm:
            return most(window_s)
        share = target.replicas / max(1, sum(self.wanted.replicas.values()))
        likely = _replicas(SECONDS_PER_MINUTE * demand.at_most_rps * share, target.rate_rpm)
        return min(most(window_s), max(likely, most(demand.hold_s)))

    def _reported(self, name: str) -> ReplicaStatus | None:
        return None if self.replicas is None else self.replicas.get(name)

    def _desired_at(self, name: str, then_s: float, now: int) -> int:
        """Return the number of replicas desired at a time, or at the earliest known time after it.

        Args:
            name: name of the accelerator.
            then_s: the time [s since the epoch].
            now: number of replicas desired now.
        """
        past = self.last.past
        known = [moment for moment in past if moment.first_s <= then_s] or list(past[:1])
        return known[-1].desired.get(name, 0) if known else now


def pending_since(
    last: ServerDecision | None, replicas: Mapping[str, ReplicaStatus] | None, now_s: float
) -> Mapping[str, float]:
    """Return the time since which replicas have been pending [s since the epoch], by accelerator.

    Args:
        last: the previous decision; None for a new server.
        replicas: reported replicas by accelerator; None if none were reported, so that nothing is new.
        now_s: time [s since the epoch].
    """
    before = {} if last is None else last.pending_since_s
    if replicas is None:
        return before
    return {name: before.get(name, now_s) for name, there in replicas.items() if there.pending}


def _cost_of_replica(system: System, server: Server, accelerator: str) -> float:
    profile = system.profiles.get((server.model, accelerator))
    return system.accelerators[accelerator].cost_cents_per_h * (profile.acc_count if profile else 1)


def _same_place(planned: Mapping[str, ReplicaTarget], staying: Mapping[str, ReplicaTarget]) -> bool:
    return planned.keys() == staying.keys() and all(
        planned[name].max_batch == staying[name].max_batch for name in planned
    )


def _saving_text(share: float, whose: str, rule: str, least: float) -> str:
    return f"moving would save {share:.2%} of the cost of {whose}, less than {rule} ({least:.4g})"


def _replicas(load_rpm: float, rate_rpm: float) -> int:
    return max(0, ceil(load_rpm / rate_rpm - ROUNDING))


def _held(target: ReplicaTarget, replicas: int, reason: TargetReason, detail: str) -> ReplicaTarget:
    return replace(target, replicas=replicas, held=True, reason=reason, detail=detail)


def _reach(base: int, step: StepLimit) -> int:
    return max(step.replicas, floor(base * step.share + ROUNDING))
