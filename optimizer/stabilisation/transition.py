"""Transition from the running to the desired replicas, in steps, within the available cards.

A server keeps old replicas until enough new ones are ready to carry its load. Meanwhile both use cards, so
the order matters. A server can start replicas only on free cards, and two servers that wait for each other's
cards are deadlocked. A step is taken only if the remaining steps stay possible (the banker's algorithm,
Dijkstra 1965; equation 139 of ``docs/math.md``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from optimizer.stabilisation.free_cards import FreeCards
from optimizer.stabilisation.running import Running, RunningPool
from optimizer.tolerances import ROUNDING

MAX_STATES = 2_000
"""Maximum number of intermediate states visited in a search for an order of steps."""

Pools = dict[str, RunningPool]
"""Non-empty pools of a server, by accelerator."""


@dataclass(frozen=True, slots=True)
class MoveGoal:
    """Desired replicas of a server, and the load that it must carry during the transition."""

    server: str
    priority: int
    replicas: Mapping[str, int]
    """Desired replicas by accelerator, without zeros."""
    rates_rpm: Mapping[str, float]
    """Maximum rate of a replica, by accelerator [requests/min]."""
    load_rpm: float
    waits: bool = True
    """Whether old replicas are removed only after new ones are ready."""
    waived: int = 0
    """Number of old replicas to remove before new ones are ready, because the new ones need their cards."""
    starting_elsewhere: bool = False
    """Whether shared cards, or pools by role, will replace the replicas but are not ready yet."""

    def reduced(self, now: Mapping[str, RunningPool]) -> Pools:
        """Return the pools of a server without replicas that are no longer needed."""
        retained = self.needed(now)
        left = {
            name: min(pool.replicas, self.replicas.get(name, 0)) + retained.get(name, 0)
            for name, pool in now.items()
        }
        return {name: now[name].resized(number) for name, number in left.items() if number}

    def retained(self, now: Mapping[str, RunningPool]) -> dict[str, int]:
        """Return the replicas beyond the goal that stay until enough new ones are ready, by accelerator."""
        if not self.waits or self.missing_rpm(now) <= ROUNDING:
            return {}
        wanted = self.replicas
        return {
            name: max(0, pool.ready - wanted[name]) if name in wanted else pool.replicas
            for name, pool in now.items()
        }

    def needed(self, now: Mapping[str, RunningPool]) -> dict[str, int]:
        """Return the retained replicas that the load needs.

        Others can be removed if their cards are needed.
        """
        # Ready replicas are retained first, because only they carry load now.
        missing_rpm, retained, kept = self.missing_rpm(now), self.retained(now), dict[str, int]()
        for name in sorted(retained, key=lambda name: (not now[name].ready, name)):
            pool, kept[name] = now[name], retained[name]
            if pool.rate_rpm and missing_rpm < inf:
                # ⌈missing / rate⌉ replicas of this pool carry what the ready replicas of the goal cannot.
                kept[name] = min(kept[name], max(0, ceil(missing_rpm / pool.rate_rpm - ROUNDING)))
                missing_rpm -= min(kept[name], pool.ready) * pool.rate_rpm
        return self._without_waived(kept, now) if self.waived else kept

    def _without_waived(self, kept: dict[str, int], now: Mapping[str, RunningPool]) -> dict[str, int]:
        """Return the retained replicas minus the waived ones, but keep at least one ready replica."""
        # A server that is blocked gives up `waived` replicas, but never its last ready one.
        others = sum(min(pool.ready, self.replicas.get(name, 0)) for name, pool in now.items())
        left = min(self.waived, max(0, sum(kept.values()) - (0 if others else 1)))
        for name in reversed(kept):
            gone = min(left, kept[name])
            kept[name] -= gone
            left -= gone
        return kept

    def missing_rpm(self, now: Mapping[str, RunningPool]) -> float:
        """Return the part of the load that the ready replicas of the goal cannot carry yet [requests/min].

        It is infinite until all replicas are ready if the server has no load or if shared cards are not
        ready.
        """
        if self.starting_elsewhere:
            return inf
        ready = {name: min(now[name].ready if name in now else 0, n) for name, n in self.replicas.items()}
        # Without a load, or with shared cards on the way, nothing tells how much is carried: all stay.
        if ready == self.replicas:
            return 0.0
        carried = sum(number * self.rates_rpm.get(name, 0.0) for name, number in ready.items())
        return self.load_rpm - carried if self.load_rpm else inf

    def unstarted(self, now: Mapping[str, RunningPool]) -> dict[str, int]:
        """Return the number of replicas of the goal that have not started, by accelerator."""
        numbers = {name: n - (now[name].replicas if name in now else 0) for name, n in self.replicas.items()}
        return {name: number for name, number in numbers.items() if number > 0}

    def has_surplus(self, now: Mapping[str, RunningPool]) -> bool:
        """Return whether the server runs replicas beyond the goal."""
        return any(pool.replicas > self.replicas.get(name, 0) for name, pool in now.items())

    def is_reached(self, now: Mapping[str, RunningPool]) -> bool:
        """Return whether the running pools are those of the goal."""
        return not self.has_surplus(now) and not self.unstarted(now)


@dataclass(slots=True)
class State:
    """State of a transition: the pools of all servers, and the free cards."""

    pools: dict[str, Pools]
    free: FreeCards

    def copy(self) -> "State":
        """Return an independent copy."""
        return State(dict(self.pools), self.free.copy())

    def put(self, server: str, pools: Pools) -> None:
        """Replace the pools of a server."""
        self.free.take_all(server, {name: pool.replicas for name, pool in self.pools[server].items()}, -1)
        self.free.take_all(server, {name: pool.replicas for name, pool in pools.items()})
        self.pools[server] = pools

    def begin(self, goal: MoveGoal, limit: int | None = None) -> bool:
        """Start missing replicas of a server on free cards; return whether any were started.

        Args:
            goal: goal of the server.
            limit: maximum number to start; None: no limit.
        """
        pools, started = dict(self.pools[goal.server]), 0
        for name, missing in goal.unstarted(pools).items():
            wanted = missing if limit is None else min(missing, limit - started)
            new = self.free.fitting(goal.server, name, wanted)
            pool = pools.get(name, RunningPool(0, 0, goal.rates_rpm.get(name, 0.0)))
            if new:
                pools[name] = RunningPool(pool.replicas + new, pool.ready, pool.rate_rpm)
                self.free.take(goal.server, name, new)
                started += new
        self.pools[goal.server] = pools
        return started > 0

    def finish(self, goal: MoveGoal) -> None:
        """Mark all replicas of a server as ready, and remove those that are no longer needed."""
        pools = self.pools[goal.server]
        goal = replace(goal, starting_elsewhere=False) if goal.starting_elsewhere else goal
        self.put(
            goal.server,
            goal.reduced({name: pool.all_ready() for name, pool in pools.items()}),
        )

    def drop(self, goal: MoveGoal, accelerator: str, replicas: int, minimum: Mapping[str, int]) -> bool:
        """Remove replicas of a server down to a minimum; return whether any were removed.

        Args:
            goal: goal of the server.
            accelerator: name of the accelerator.
            replicas: maximum number to remove.
            minimum: replicas to keep, by accelerator.
        """
        pools = self.pools[goal.server]
        if accelerator not in pools:
            return False
        pool = pools[accelerator]
        gone = min(replicas, max(0, pool.replicas - minimum.get(accelerator, 0)))
        if gone:
            rest = {**pools, accelerator: pool.resized(pool.replicas - gone)}
            self.put(goal.server, {name: item for name, item in rest.items() if item.replicas})
        return gone > 0

    def run(self, goals: Sequence[MoveGoal]) -> None:
        """Alternately start replicas that fit and remove replaced ones, until no more can be started."""
        # Each round starts at least one replica, and goals are finite, so the loop ends.
        while [goal for goal in goals if self.begin(goal)]:
            for goal in goals:
                self.finish(goal)


class Transition:
    """Transition from the running pools to the goals of all servers; all goals together fit on the cards."""

    def __init__(self, goals: Iterable[MoveGoal], running: Running, cards: FreeCards) -> None:
        """Search for an order of steps that reaches the goals.

        If there is none, blocked servers remove as few replicas as possible before new ones are ready.

        Args:
            goals: desired replicas of each server.
            running: current pools of each server.
            cards: all available cards.
        """
        self.goals = sorted(goals, key=lambda goal: (goal.priority, goal.server))
        self.system, self.running, self.cards = cards.system, running, cards
        self.start = self._started()
        # First no replica that carries load is given up; then blocked servers give up 1, 2, 4, … of them, so
        # that the number of searches is logarithmic.
        self.first = self._first_step()
        self.blocked = [] if self.first is not None else self._blocked()
        now = (running.get(goal.server, {}) for goal in self.goals)
        largest = max((pool.replicas for pools in now for pool in pools.values()), default=0)
        waived = 1
        while self.first is None and waived < 2 * largest:
            self.goals = [
                replace(goal, waived=waived) if goal.server in self.blocked else goal for goal in self.goals
            ]
            self.start = self._started()
            self.first, waived = self._first_step(), 2 * waived

    def _started(self) -> State:
        """Return the initial state: without replicas that are not needed or exceed the available cards."""
        start = State({goal.server: {} for goal in self.goals}, self.cards.copy())
        for goal in self.goals:
            start.put(goal.server, goal.reduced(self.running.get(goal.server, {})))
        # First replicas beyond the goals go, lowest priority first; only then those of goals.
        for beyond_goal in (True, False):  # all goals fit, unless cards have been removed
            for goal in reversed(self.goals):
                minimum = goal.replicas if beyond_goal else {}
                for name in start.pools[goal.server]:
                    start.drop(goal, name, start.free.missing(goal.server, name), minimum)
        return start

    def step(self) -> dict[str, dict[str, int]]:
        """Return the replicas to run now, by server and accelerator: the first step of a feasible order.

        If there is no such order, servers of higher priority take cards of replicas that other servers only
        retain.
        """
        state = self._forced() if self.first is None else self.first.copy()
        step = {}
        for goal in self.goals:
            step[goal.server] = {name: pool.replicas for name, pool in state.pools[goal.server].items()}
            spare = {} if goal.waived else goal.retained(self.running.get(goal.server, {}))
            for name, number in spare.items():
                there = step[goal.server].get(name, 0)
                more = state.free.fitting(goal.server, name, goal.replicas.get(name, 0) + number - there)
                if more > 0:
                    state.free.take(goal.server, name, more)
                    step[goal.server][name] = there + more
        return step

    @property
    def is_reachable(self) -> bool:
        """Whether there is an order of steps that reaches every goal."""
        return self.first is not None

    def _blocked(self) -> list[str]:
        """Return the servers that reach their goals only by removing replicas before new ones are ready."""
        state = self.start.copy()
        for goal in self.goals:
            state.finish(goal)
        state.run(self.goals)
        return [goal.server for goal in self.goals if not goal.is_reached(state.pools[goal.server])]

    def _first_step(self) -> State | None:
        state = self.start.copy()
        for goal in self.goals:
            state.begin(goal)
        # The best first step starts everything that fits at once.
        if self._order(state) is not None:
            return state
        # Otherwise servers move one after the other, or replica by replica.
        order = self._order(self.start)
        searched = self.start.copy() if order is not None else self._searched()
        if searched is None:
            return None
        for goal in order or ():
            if searched.begin(goal):
                break
        return self._with_more(
            searched, [goal for goal in self.goals if goal.unstarted(searched.pools[goal.server])]
        )

    def _with_more(self, state: State, goals: Sequence[MoveGoal]) -> State:
        """Start replicas of further servers as long as the other goals stay reachable."""
        trial = state.copy()
        # Bisection: if all further servers together block the rest, each half is tried alone.
        if not [goal for goal in goals if trial.begin(goal)]:
            return state
        if self._order(trial) is not None:
            return trial
        if len(goals) == 1:
            return state
        half = len(goals) // 2
        return self._with_more(self._with_more(state, goals[:half]), goals[half:])

    def _order(self, begin: State) -> list[MoveGoal] | None:
        """Return an order in which servers can remove their replicas beyond the goals; None if there is none.

        Other servers only take free cards. Because all goals fit, they can always be reached at the end.
        """
        state = begin.copy()
        for goal in self.goals:
            state.finish(goal)
        movers = [goal for goal in self.goals if goal.has_surplus(state.pools[goal.server])]
        order: list[MoveGoal] = []
        while movers:
            # A server that can move alone only frees cards for others, so any order of such moves is good.
            next_one = next((goal for goal in movers if self._alone(goal, state)), None)
            if next_one is None:
                # If nobody can move alone, servers interleave: each takes the cards that others free.
                state.run(movers)
                left = any(goal.has_surplus(state.pools[goal.server]) for goal in movers)
                return None if left else order + movers
            movers.remove(next_one)
            order.append(next_one)
        return order

    @staticmethod
    def _alone(goal: MoveGoal, state: State) -> bool:
        """Move one server to its goal if the free cards suffice; return whether they do."""
        trial = State({goal.server: state.pools[goal.server]}, state.free.copy())
        trial.run([goal])
        reached = goal.is_reached(trial.pools[goal.server])
        if reached:
            state.put(goal.server, trial.pools[goal.server])
        return reached

    def _searched(self) -> State | None:
        """Search, up to `MAX_STATES` states, for an order of single replicas.

        Return its first step, or None.
        """
        movers = [goal for goal in self.goals if goal.has_surplus(self.start.pools[goal.server])]
        seen: set[tuple[object, ...]] = set()
        # Depth first: the second item is the first step of the path to the state.
        stack = [(self.start, self.start)]
        while stack and len(seen) < MAX_STATES:
            state, first = stack.pop()
            # States that differ only in servers without surplus are the same for the search.
            key = tuple(tuple(sorted(state.pools[goal.server].items())) for goal in movers)
            if key in seen:
                continue
            seen.add(key)
            if self._order(state) is not None:
                return first
            for goal in reversed(movers):
                trial = state.copy()
                if trial.begin(goal, limit=1):
                    begun = trial.copy() if first is self.start else first
                    trial.finish(goal)
                    stack.append((trial, begun))
        return None

    def _forced(self) -> State:
        """Return a state in which servers have taken cards that others of equal or lower priority retain."""
        for goal in self.goals:
            for name, missing in goal.unstarted(self.start.pools[goal.server]).items():
                self._claim(goal, name, missing)
                self.start.begin(goal)
        return self.start

    def _claim(self, goal: MoveGoal, accelerator: str, missing: int) -> None:
        """Remove retained replicas, lowest priority first, until the missing replicas of a server fit.

        Args:
            goal: goal of the server.
            accelerator: accelerator of the missing replicas.
            missing: number of missing replicas.
        """
        type_name, _ = self.system.units_per_replica(goal.server, accelerator)
        # Goals are sorted by priority, so the least important servers give up replicas first.
        for other in reversed(self.goals):
            for name in self.start.pools[other.server]:
                same = self.system.units_per_replica(other.server, name)[0] == type_name
                while (
                    same
                    and other.priority >= goal.priority
                    and other is not goal
                    and self.start.free.fitting(goal.server, accelerator, missing) < missing
                    and self.start.drop(other, name, 1, other.replicas)
                ):
                    pass
