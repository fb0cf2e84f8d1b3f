"""What is desired of one server: the rules, one after the other, each as a small function.

Sizes are in replicas of pools; loads in requests/min. A pool's largest load is what a replica took when it
was last sized, times its replicas, so that every rule is about loads and not about counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor

from optimizer.plan import Plan, Unserved
from optimizer.spec.schema import Server
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Moment, Observation, Reason, Replicas, ServerDecision, Target
from optimizer.stabilisation.rules import Rules, StepLimit

OTHER_REQUESTS = 0.2
"""Change of the mean lengths of requests from which on what a replica took before says nothing."""
_TOLERANCE = 1e-9


def units_per_replica(system: System, server: str, accelerator: str) -> tuple[str, int]:
    """Return the accelerator type and the units of a replica; of an unknown accelerator there are none."""
    found = system.accelerators.get(accelerator)
    if found is None:
        return "", 0
    profile = system.profiles.get((system.servers[server].model, accelerator))
    return found.type, found.multiplicity * (profile.acc_count if profile else 1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a plan wants of a server, and what the rules need to know of it."""

    server: Server
    targets: Mapping[str, Target]
    """Replicas by accelerator, as planned."""
    load_rpm: float
    unserved: Unserved | None
    known: frozenset[str]
    """Accelerators that its model has a profile for."""
    may_use: frozenset[str]
    """Those of them that it may run on."""

    @classmethod
    def of(cls, plan: Plan, system: System, name: str) -> "Wanted":
        """Return what a plan wants of a server."""
        server, pools = system.servers[name], plan.allocations.get(name, ())
        targets = {
            pool.accelerator: Target(
                pool.num_replicas,
                Reason.unchanged,
                pool.max_batch,
                pool.max_arrival_rate_rpm / pool.num_replicas,
                pool.cost_cents_per_h / pool.num_replicas,
            )
            for pool in pools
            if pool.num_replicas
        }
        load = sum(pool.arrival_rate_rpm for pool in pools)
        unserved = next((item for item in plan.unserved if item.server == name), None)
        known = frozenset(acc for model, acc in system.profiles if model == server.model)
        allowed = known if server.accelerators is None else known & frozenset(server.accelerators)
        return cls(server, targets, load, unserved, known, allowed)

    @property
    def replicas(self) -> dict[str, int]:
        """Replicas by accelerator."""
        return {name: target.replicas for name, target in self.targets.items()}

    def as_planned(self, last: ServerDecision | None, detail: str = "") -> ServerDecision:
        """Return a decision that follows the plan at once."""
        before = {} if last is None else last.targets
        targets = {}
        for name in (*self.targets, *(name for name in before if name not in self.targets)):
            old = before.get(name)
            target = self.targets.get(name) or replace(before[name], replicas=0, leaving=False)
            reason = reason_of(target, old, last)
            targets[name] = replace(target, reason=reason, held=False, detail=detail)
        base = last or ServerDecision({}, 0.0)
        return replace(base, targets=targets)


def reason_of(target: Target, old: Target | None, last: ServerDecision | None) -> Reason:
    """Return why a number is desired that is not held."""
    before = 0 if old is None else old.replicas
    if last is None:
        return Reason.new
    if not before and target.replicas and last.replicas:
        return Reason.switch
    if target.replicas == before:
        return Reason.unchanged if target.replicas else Reason.not_chosen
    return Reason.load_increase if target.replicas > before else Reason.load_decrease


def decided(
    wanted: Wanted, rules: Rules, last: ServerDecision | None, seen: Observation, fleet_cost: float
) -> ServerDecision:
    """Return what is desired of a server.

    Args:
        wanted: what the plan wants.
        rules: what may keep it from that.
        last: what was desired before; none: the server is new.
        seen: what was observed.
        fleet_cost: cost of the whole plan [cents/h].
    """
    name = wanted.server.name
    replicas = seen.replicas.get(name, {})
    if wanted.unserved is not None and not wanted.targets:
        return _keeping(wanted, last, replicas, seen.now_s)
    if last is None:
        first = wanted.as_planned(None)
        return _remembered(wanted, rules, replace(first, switched_s=seen.now_s), first.replicas, seen)
    if name in seen.missing and rules.hold_missing_load:
        return _held_whole(last, Reason.load_missing, "its load is missing from the last snapshot")
    return _Step(wanted, rules, last, seen, replicas, fleet_cost).decision()


def _keeping(
    wanted: Wanted, last: ServerDecision | None, replicas: Mapping[str, Replicas], now_s: float
) -> ServerDecision:
    """Return what a server runs that cannot be served, as desired."""
    assert wanted.unserved is not None
    current = wanted.server.current
    runs = {acc: there.ready + there.pending for acc, there in replicas.items()}
    if not runs and last is not None:
        runs = last.replicas
    if not runs and current.is_running:
        runs = {current.accelerator: current.num_replicas}
    known = {} if last is None else last.targets
    detail = f"{wanted.unserved.reason}: {wanted.unserved.detail}"
    targets = {
        acc: replace(
            known.get(acc, Target(0, Reason.unserved, current.max_batch)),
            replicas=number,
            reason=Reason.unserved,
            held=True,
            detail=detail,
        )
        for acc, number in runs.items()
    }
    return replace(last or ServerDecision({}, now_s), targets=targets)


def _held_whole(last: ServerDecision, reason: Reason, detail: str) -> ServerDecision:
    targets = {
        name: replace(target, reason=reason, held=True, detail=detail)
        for name, target in last.targets.items()
        if target.replicas
    }
    return replace(last, targets=targets)


def _remembered(
    wanted: Wanted, rules: Rules, decision: ServerDecision, recommended: Mapping[str, int], seen: Observation
) -> ServerDecision:
    """Return a decision with what the next one needs to know."""
    load, now_s, desired = wanted.server.current.load, seen.now_s, decision.replicas
    past = tuple(moment for moment in decision.past if moment.last_s >= now_s - rules.memory_s)
    if past and (past[-1].recommended, past[-1].desired) == (dict(recommended), desired):
        past = (*past[:-1], replace(past[-1], last_s=now_s))
    else:
        past = (*past, Moment(now_s, now_s, dict(recommended), desired))
    return replace(decision, in_tokens=load.in_tokens, out_tokens=load.out_tokens, past=past)


@dataclass(frozen=True, slots=True)
class _Step:
    """One server at one plan."""

    wanted: Wanted
    rules: Rules
    last: ServerDecision
    seen: Observation
    replicas: Mapping[str, Replicas]
    fleet_cost: float

    def decision(self) -> ServerDecision:
        """Return what is desired, rule by rule."""
        targets = self._sized(self._placed())
        recommended = {name: target.replicas for name, target in targets.items() if target.replicas}
        targets = self._with_old_pools(targets)
        pending = dict(self._pending_since())
        targets = {name: self._limited(name, target, pending) for name, target in targets.items()}
        moved = not {*recommended} & self.last.replicas.keys() and bool(recommended)
        switched_s = self.seen.now_s if moved or not self.last.replicas else self.last.switched_s
        kept = {name: item for name, item in targets.items() if item.replicas or name in self.last.replicas}
        elsewhere = self.wanted.targets.keys() != self._staying().keys()
        since_s = self.seen.now_s if self.last.elsewhere_since_s is None else self.last.elsewhere_since_s
        decision = replace(
            self.last,
            targets=kept,
            switched_s=switched_s,
            pending_since_s=pending,
            elsewhere_since_s=since_s if elsewhere else None,
        )
        return _remembered(self.wanted, self.rules, decision, recommended, self.seen)

    # --- where it runs -------------------------------------------------------------------------------------

    def _staying(self) -> dict[str, Target]:
        return {
            name: target
            for name, target in self.last.targets.items()
            if target.replicas and not target.leaving
        }

    def _placed(self) -> dict[str, Target]:
        """Return pools on the accelerators that the plan says, or on those that the server stays on."""
        planned, staying = dict(self.wanted.targets), self._staying()
        if not planned and staying:  # nothing to do for it: the same pools, without replicas
            return {name: replace(target, replicas=0) for name, target in staying.items()}
        if not staying or not self._can_stay(staying) or _same_place(planned, staying):
            return planned
        needed = self._needed(staying)
        reason = self._reason_to_stay(needed, planned)
        if reason is None:
            return planned
        return {name: replace(target, reason=reason, held=True) for name, target in needed.items()}

    def _can_stay(self, staying: Mapping[str, Target]) -> bool:
        """Say whether what replicas took before still says what they take."""
        if not staying.keys() <= self.wanted.may_use or any(not item.rate_rpm for item in staying.values()):
            return False
        load = self.wanted.server.current.load
        pairs = ((load.in_tokens, self.last.in_tokens), (load.out_tokens, self.last.out_tokens))
        return len(staying) == 1 and all(abs(now - then) <= OTHER_REQUESTS * then for now, then in pairs)

    def _needed(self, staying: Mapping[str, Target]) -> dict[str, Target]:
        """Return the pools that the load would need where the server is."""
        ((name, target),) = staying.items()
        server = self.wanted.server
        number = max(_replicas(self.wanted.load_rpm, target.rate_rpm), server.min_num_replicas)
        return {name: replace(target, replicas=min(number, server.max_num_replicas or number))}

    def _reason_to_stay(self, needed: Mapping[str, Target], planned: Mapping[str, Target]) -> Reason | None:
        cost = sum(item.replicas * item.cost_cents_per_h for item in needed.values())
        saving = cost - sum(item.replicas * item.cost_cents_per_h for item in planned.values())
        if self.rules.min_saving is not None and saving < self.rules.min_saving * self.fleet_cost:
            return Reason.small_saving
        if self.rules.switch_dwell_s is not None:
            if self.seen.now_s - self.last.switched_s < self.rules.switch_dwell_s:
                return Reason.dwell
            if saving < self.rules.switch_saving * cost:
                return Reason.small_saving
        return None

    def _with_old_pools(self, targets: Mapping[str, Target]) -> dict[str, Target]:
        """Return the targets with those that were left, which wait for the new ones if a rule says so."""
        result = dict(targets)
        wait = self.rules.switch_dwell_s is not None and not self._all_ready(targets)
        for name, old in self.last.targets.items():
            if name in result or not old.replicas:
                continue
            gone = replace(old, replicas=0, leaving=False, held=False, detail="")
            result[name] = gone
            if wait and any(target.replicas for target in targets.values()) and name in self.wanted.known:
                detail = "goes when the replicas in its place are ready"
                result[name] = replace(
                    old, leaving=True, held=True, reason=Reason.waits_for_new_pool, detail=detail
                )
        return result

    def _all_ready(self, targets: Mapping[str, Target]) -> bool:
        """Say whether every pool has the replicas that were desired of it before."""
        return all(self._is_ready(name) for name, target in targets.items() if target.replicas)

    def _is_ready(self, name: str) -> bool:
        before = self.last.replicas.get(name, 0)
        there = self.replicas.get(name)
        if there is not None:
            return before > 0 and there.ready >= before
        return before > 0 and self.seen.now_s - self.last.switched_s >= self.rules.startup_s

    # --- how many ------------------------------------------------------------------------------------------

    def _sized(self, targets: Mapping[str, Target]) -> dict[str, Target]:
        """Return pools that are no smaller than what some more load would need."""
        return {name: self._with_margin(name, target) for name, target in targets.items()}

    def _with_margin(self, name: str, target: Target) -> Target:
        before, estimate = self.last.replicas.get(name, 0), self.last.load
        margin = self.rules.scale_down_load
        if margin is None or target.replicas >= before or len(self.wanted.targets) > 1 or not target.rate_rpm:
            return target
        if estimate is not None and estimate.mean_rpm:
            cv = self.wanted.server.current.load.arrival_cv
            known = 1 + estimate.deviation_rpm(self.rules.load_window_s, cv) / estimate.mean_rpm
            margin = min(margin, known)
        number = min(before, max(target.replicas, _replicas(self.wanted.load_rpm * margin, target.rate_rpm)))
        if number == target.replicas:
            return target
        detail = f"fewer would not hold with {margin - 1:.1%} more load"
        return _held(target, number, target.reason if target.held else Reason.scale_down_load, detail)

    # --- how fast ------------------------------------------------------------------------------------------

    def _pending_since(self) -> Iterator[tuple[str, float]]:
        """Yield since when each target has had pending replicas."""
        for name, there in self.replicas.items():
            if there.pending:
                yield name, self.last.pending_since_s.get(name, self.seen.now_s)

    def _limited(self, name: str, target: Target, pending_since_s: Mapping[str, float]) -> Target:
        """Return a target that moves as fast as it may, with its reason."""
        before = self.last.replicas.get(name, 0)
        left = not target.replicas and name not in self.wanted.targets and bool(self.wanted.targets)
        if target.leaving or (left and self.rules.switch_dwell_s is not None):
            return target  # the new pool is ready: it has waited for nothing else
        if target.replicas > before:
            result = self._growing(name, target, before, pending_since_s)
        elif target.replicas < before:
            result = self._shrinking(name, target, before)
        else:
            result = target
        if result.held:
            return result
        return replace(result, reason=reason_of(result, self.last.targets.get(name), self.last))

    def _growing(
        self, name: str, target: Target, before: int, pending_since_s: Mapping[str, float]
    ) -> Target:
        limit, waited_s = (
            self.rules.pending_limit_s,
            self.seen.now_s - pending_since_s.get(name, float("inf")),
        )
        if limit is not None and waited_s >= limit:
            detail = f"replicas have been pending for {waited_s:.0f} s; more of them would be, too"
            return _held(target, before, Reason.pending, detail)
        step = self.rules.scale_up_limit
        if step is None:
            return target
        there = self.replicas.get(name)
        base = self._desired_at(name, self.seen.now_s - step.period_s, before)
        if limit is not None and there is not None:
            base = max(base, there.ready + there.pending)
        most = max(base + _reach(base, step), before)
        if target.replicas <= most:
            return target
        return _held(target, most, Reason.scale_up_limit, f"at most {most} within {step.period_s:g} s")

    def _shrinking(self, name: str, target: Target, before: int) -> Target:
        """Return a target that goes down no further than the rules let it."""
        floor_of = before  # replicas that are not there yet can be taken back at once
        there = self.replicas.get(name)
        if self.rules.pending_limit_s is not None and there is not None:
            floor_of = min(before, max(there.ready, target.replicas))
        window_s, result = self.rules.scale_down_window_s, target
        if window_s is not None:
            since = self.seen.now_s - window_s
            past = [item.recommended.get(name, 0) for item in self.last.past if item.last_s > since]
            most = min(floor_of, max([target.replicas, *past]))
            if most > target.replicas:
                detail = f"{most} were recommended within the last {window_s:g} s"
                result = _held(target, most, Reason.scale_down_window, detail)
        step = self.rules.scale_down_limit
        if step is not None:
            base = self._desired_at(name, self.seen.now_s - step.period_s, before)
            least = min(floor_of, base - _reach(base, step))
            if result.replicas < least:
                detail = f"at least {least} within {step.period_s:g} s"
                result = _held(target, least, Reason.scale_down_limit, detail)
        return result

    def _desired_at(self, name: str, then_s: float, now: int) -> int:
        """Return the replicas that were desired at a time, or as long ago as is known."""
        past = self.last.past
        known = [moment for moment in past if moment.first_s <= then_s] or list(past[:1])
        return known[-1].desired.get(name, 0) if known else now


def _same_place(planned: Mapping[str, Target], staying: Mapping[str, Target]) -> bool:
    return planned.keys() == staying.keys() and all(
        planned[name].max_batch == staying[name].max_batch for name in planned
    )


def _replicas(load_rpm: float, rate_rpm: float) -> int:
    return max(0, ceil(load_rpm / rate_rpm - _TOLERANCE))


def _held(target: Target, replicas: int, reason: Reason, detail: str) -> Target:
    return replace(target, replicas=replicas, held=True, reason=reason, detail=detail)


def _reach(base: int, step: StepLimit) -> int:
    return max(step.replicas, floor(base * step.share + _TOLERANCE))
