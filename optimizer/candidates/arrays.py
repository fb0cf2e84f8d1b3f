"""Converts a system to arrays, with indices instead of names.

`SystemArrays` has one entry per server (S), accelerator (A) and profile (P), each sorted by name, and the
index of the profile of each server–accelerator pair.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates.caution import cautious
from optimizer.documents import ANY_LOSS, DEFAULT_MAX_LOSS, MAX_COUNT
from optimizer.features.disaggregation.parts import RoleTable, role_table
from optimizer.features.disaggregation.streams import name_in_plans
from optimizer.features.versions.streams import with_roll_back
from optimizer.kinds.fields import DEFAULT_MAX_BATCH
from optimizer.kinds.laws import LawTable
from optimizer.kinds.queue_models import QUEUE_MODELS
from optimizer.kinds.request_shapes import shapes_of
from optimizer.queueing.measures import LOSS
from optimizer.queueing.performance import OwnArrays
from optimizer.queueing.shapes import ShapeRows
from optimizer.queueing.targets import Targets
from optimizer.schema import CurrentPool, ModelProfile, ModelTarget, Server
from optimizer.spec.streams import has_members, members_of, replica_load, shape_numbers
from optimizer.spec.system import System

ALL_MEMBERS = -1
"""Value of `members` (a bit mask) for a candidate that serves all members of its server."""

if TYPE_CHECKING:
    from optimizer.profiles.estimate import DoesNotFitError


@dataclass(frozen=True, slots=True)
class OwnTable:
    """Additional arrays for the servers of one kind; one row for each alternative setting of a server."""

    arrays: OwnArrays
    first: IntArray
    """Index of each server's first row, shape (S,); 0 for servers of other kinds."""
    count: IntArray
    """Number of rows (alternative settings) of each server, shape (S,); 0 for servers of other kinds."""
    chosen: IntArray
    """Index of the row used for each server–accelerator pair, shape (S, A); 0 for servers of other kinds."""

    def of_pairs(self, server: IntArray, accelerator: IntArray) -> OwnArrays:
        """Return the rows that the given server–accelerator pairs use."""
        return self.arrays.take(self.chosen[server, accelerator])


@dataclass(frozen=True, slots=True)
class ReserveArrays:
    """Reserves that servers require, shapes (S,); 0 for idle servers."""

    headroom_share: FloatArray
    spare_replicas: IntArray
    availability_target: FloatArray
    """Required probability that enough replicas are available; 0 if none is required."""
    surges: BoolArray
    """Whether the server needs cards for extra replicas during a roll-out."""

    @property
    def one_pool(self) -> BoolArray:
        """Mask of servers that need their reserve in one pool, even in a mixed plan, as replicas can fail."""
        return np.asarray((self.spare_replicas > 0) | (self.availability_target > 0), np.bool_)

    @property
    def growth(self) -> FloatArray:
        """Load that all pools must carry together, as a multiple of the server's load.

        It includes the headroom, unless the reserve must be in one pool.
        """
        return np.where(self.one_pool, 1.0, 1 + self.headroom_share)

    @property
    def wanted(self) -> BoolArray:
        """Mask of servers that require a reserve of any kind."""
        return np.asarray((self.headroom_share > 0) | self.one_pool, np.bool_)

    def given_up(self) -> "ReserveArrays":
        """Return a copy in which no server requires a reserve."""
        none = frozen(np.zeros(len(self.surges)))
        return ReserveArrays(none, frozen(none.astype(np.int64)), none, self.surges)


@dataclass(frozen=True, slots=True)
class MemberArrays:
    """Members of planned servers, shapes (M,): the server itself, or the servers that share its queue."""

    server: IntArray
    """Index of the member's planned server."""
    place: IntArray
    """Position of the member within its planned server, in descending order of priority."""
    load_rps: FloatArray
    priority: IntArray
    targets: Targets
    names: tuple[str, ...]
    out_tokens: FloatArray
    shapes: tuple[Mapping[int, int], ...]
    """Number of each request shape of the member, by its number in the load of the shared queue; empty if all
    members count as one mean request.
    """

    @property
    def are_servers(self) -> bool:
        """Whether every planned server has only itself as a member, so that there are no shared queues."""
        return not self.place.any()

    def missing(self, server: IntArray, members: IntArray, amount: FloatArray) -> FloatArray:
        """Return the sum of `amount` over the members that each of R rows does not serve, shape (R,).

        Args:
            server: planned server of each row, shape (R,).
            members: bit mask of the members that each row serves, shape (R,).
            amount: amount of each member, shape (M,).
        """
        missing = np.zeros(len(server))
        rows = np.flatnonzero(members != ALL_MEMBERS)
        for row in rows.tolist():
            of_queue = self.server == server[row]
            # Bit `place` of the mask is 1 if the row serves the member.
            left_out = of_queue & (members[row] >> self.place & 1 == 0)
            missing[row] = amount[left_out].sum()
        return missing


@dataclass(frozen=True, slots=True)
class ServerArrays:
    """Servers of a system as arrays; shapes (S,) unless stated otherwise."""

    in_tokens: FloatArray
    out_tokens: FloatArray
    load_rps: FloatArray
    """Arrival rate, or the throughput target divided by the output length [requests/s]; 0 if idle."""
    priority: IntArray
    has_target: BoolArray
    targets: Targets
    """Limits on latencies and loss, and whether there are throughput targets."""
    min_replicas: IntArray
    max_replicas: IntArray
    max_batch: IntArray
    """Batch limit of the server [requests]; 0 selects the profile's limit."""
    max_queue: IntArray
    """Queue capacity [requests]; -1 makes it proportional to the batch limit."""
    allowed: BoolArray
    """Whether the server's options allow the accelerator, shape (S, A)."""
    may_serve: BoolArray
    """Whether the accelerator is in a place from which the server can be served, shape (S, A)."""
    delay_ms: FloatArray
    """Network latency between the places of a server and an accelerator [ms], shape (S, A)."""
    current_replicas: IntArray
    """Current replicas by accelerator; the last two columns are rentals and shared cards. -1 means no pool.
    Shape (S, A + 2).
    """
    current_pools: IntArray
    """Number of pools of the current allocation."""
    running: BoolArray
    """Whether the server currently has running replicas."""
    current_cost: FloatArray
    """Cost of the current allocation [cents/h]."""
    arrival_cv: FloatArray
    """Coefficient of variation of the interarrival times."""
    in_tokens_cv: FloatArray
    out_tokens_cv: FloatArray
    shapes: ShapeRows | None
    """Rows of the loads; None if no load has several shapes or a shared prefix."""
    request_tokens: FloatArray
    """Mean number of KV cache tokens of a request, input plus output, without prefixes stored once."""
    longest_tokens: FloatArray
    """The same number for requests of the longest shape."""
    own: Mapping[str, OwnTable]
    """Additional arrays that only some kinds of servers have, by the kind's name."""
    reserve: ReserveArrays
    preference: BoolArray
    """Whether the server states preferred accelerators."""
    preferred: BoolArray
    """Whether the server prefers the accelerator; true for all if it states no preference. Shape (S, A)."""
    members: MemberArrays
    is_queue: BoolArray
    """Whether the server is a shared queue with load; such a server has one pool."""


@dataclass(frozen=True, slots=True)
class ProfileArrays:
    """Model profiles as arrays of shape (P,)."""

    cost_per_replica: FloatArray
    """Cost of one replica [cents/h]."""
    accelerators_per_replica: IntArray
    availability: FloatArray
    """Probability that a replica is available."""
    units_per_replica: IntArray
    batch_limit: FloatArray
    batch_tokens: FloatArray
    """Batch limit times the output length at which it was measured [tokens]; 0 if the limit is not scaled."""
    kv_capacity_tokens: FloatArray
    """KV cache capacity [tokens]; inf if not stated."""
    laws: LawTable
    """Latency model of each profile, with its parameters."""
    queue_model: IntArray
    """Index into `QUEUE_MODELS`."""

    def of_rows(self, profile: IntArray, more_tokens: FloatArray) -> "ProfileArrays":
        """Return the profiles with the given indices, with larger KV caches [tokens]; shapes (R,)."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "laws"}
        rows = {name: values[profile] for name, values in own.items()}
        rows["kv_capacity_tokens"] = rows["kv_capacity_tokens"] + more_tokens
        return ProfileArrays(**rows, laws=self.laws.take(profile))


@dataclass(frozen=True, slots=True)
class SystemArrays:
    """A system as arrays, with indices instead of names."""

    server_names: tuple[str, ...]
    accelerator_names: tuple[str, ...]
    type_names: tuple[str, ...]
    type: IntArray
    """Index of each accelerator's type, shape (A,)."""
    servers: ServerArrays
    profiles: ProfileArrays
    profile_of: IntArray
    """Index of the profile of each server–accelerator pair, shape (S, A); -1 if there is none."""
    rate_factor: FloatArray
    """Usable fraction of a replica's maximum rate, shape (S, A); below 1 only if a simulation required it."""
    roles: RoleTable | None
    """Roles of the servers if any is a prefill or a decode pool, else None."""
    misfits: "dict[int, DoesNotFitError]" = field(default_factory=dict)
    """Errors of estimated profiles whose model does not fit on the accelerator, by profile index."""


def tabulate_as_served(
    system: System, arrays: SystemArrays, served_rpm: Mapping[str, Mapping[str, float]]
) -> SystemArrays:
    """Return a copy in which shared queues and routed servers have only the load that a plan serves.

    Args:
        arrays: the same system as arrays.
        served_rpm: served arrival rates [requests/min], by queue and member; routed servers are keyed by
            their name on both levels.
    """
    servers = system.as_served(served_rpm)
    # Nothing is shared, so nothing differs from the planned loads.
    if servers is system.servers:
        return arrays
    # The chosen settings, such as windows, stay those of the candidates.
    tabulated = tabulate(replace(system, servers=servers))
    return replace(tabulated, servers=replace(tabulated.servers, own=arrays.servers.own))


def tabulate(system: System) -> SystemArrays:
    """Convert a system to arrays with indices instead of names."""
    accelerators = list(system.accelerators.values())
    types = sorted({item.type for item in accelerators} | set(system.capacity))
    type_index = {name: i for i, name in enumerate(types)}
    place_of = {name: i for i, name in enumerate(system.accelerators)}
    index = {key: i for i, key in enumerate(system.profiles)}
    of_model = {
        model: [index.get((model, name), -1) for name in place_of] for model in {model for model, _ in index}
    }
    profiles = [*system.profiles.values()]
    if system.options.safety != "none":
        profiles = [cautious(profile) for profile in profiles]
    rows = [of_model[server.model] for server in system.servers.values()]
    profile_of = np.array(rows, np.int64).reshape(len(rows), len(accelerators))
    misfits = _with_estimates(system, profiles, profile_of)
    return SystemArrays(
        server_names=tuple(system.servers),
        accelerator_names=tuple(system.accelerators),
        type_names=tuple(types),
        type=frozen(np.array([type_index[item.type] for item in accelerators], dtype=np.int64)),
        servers=_server_arrays(system, place_of),
        profiles=_profile_arrays(system, profiles),
        profile_of=frozen(profile_of),
        rate_factor=_rate_factors(system, place_of),
        roles=role_table(system),
        misfits=misfits,
    )


def _rate_factors(system: System, place_of: dict[str, int]) -> FloatArray:
    factors = np.ones((len(system.servers), len(place_of)))
    for s, server in enumerate(system.servers.values()) if system.rate_factors else ():
        for accelerator, a in place_of.items():
            factors[s, a] = system.rate_factors.get((name_in_plans(server), accelerator), 1.0)
    return frozen(factors)


def _with_estimates(
    system: System, profiles: list[ModelProfile], profile_of: IntArray
) -> "dict[int, DoesNotFitError]":
    """Append the profiles that are estimated for the requests of each server; changes the arguments in place.

    Returns:
        Errors of profiles whose model does not fit on the accelerator, by profile index.
    """
    is_estimated = np.array([profile.is_estimated for profile in profiles], dtype=np.bool_)
    if not is_estimated.any():
        return {}
    from optimizer.profiles.requested import Requested, requested_profile  # slow import

    rows: dict[int, tuple[int, Requested]] = {}
    misfits: dict[int, DoesNotFitError] = {}
    servers, names = list(system.servers.values()), list(system.accelerators)
    for s, a in np.argwhere((profile_of >= 0) & is_estimated[profile_of]):
        result = requested_profile(system, servers[s], names[a])  # equal estimates are the same object
        # The result is kept with its row, so that its identity is not reused.
        row, _ = rows.setdefault(id(result), (len(profiles), result))
        if row == len(profiles):
            profiles.append(result.profile)
            if result.misfit:
                misfits[row] = result.misfit
        profile_of[s, a] = row
    return misfits


def profile_of(system: System, server: Server, accelerator: str) -> ModelProfile:
    """Return the profile of a server's model on an accelerator; it is estimated if it is not stated.

    Args:
        accelerator: name of the accelerator.
    """
    profile = system.profiles[server.model, accelerator]
    if not profile.is_estimated:
        return profile
    from optimizer.profiles.requested import requested_profile  # slow import

    return requested_profile(system, server, accelerator).profile


_OF_LOAD = ("in_tokens", "out_tokens", "arrival_cv", "in_tokens_cv", "out_tokens_cv")
"""Fields of a load that are arrays of servers."""


def _server_arrays(system: System, place_of: dict[str, int]) -> ServerArrays:
    servers = list(system.servers.values())
    loads, load_rps = [replica_load(server) for server in servers], server_loads_rps(system)
    targets = _targets_of(system)
    # Targets of servers and members share one table of measures, so their columns agree.
    every, members = _member_arrays(system, targets)

    def integers(values: list[int]) -> IntArray:
        return frozen(np.array(values, dtype=np.int64))

    return ServerArrays(
        **{name: frozen(np.array([getattr(load, name) for load in loads])) for name in _OF_LOAD},
        shapes=shapes_of(loads),
        request_tokens=frozen(np.array([load.request_tokens() for load in loads])),
        longest_tokens=frozen(np.array([load.longest_tokens() for load in loads])),
        load_rps=frozen(load_rps),
        priority=integers([system.priority(server) for server in servers]),
        has_target=frozen(np.array([target is not None for target in targets], dtype=np.bool_)),
        targets=every,
        min_replicas=integers([server.min_num_replicas for server in servers]),
        max_replicas=integers([server.max_num_replicas or MAX_COUNT for server in servers]),
        max_batch=integers([server.max_batch_size for server in servers]),
        max_queue=integers(
            [-1 if server.max_queue_size is None else server.max_queue_size for server in servers]
        ),
        allowed=frozen(_allowed(system, place_of)),
        may_serve=frozen(_may_serve(system)),
        delay_ms=frozen(_network_ms(system)),
        current_replicas=frozen(_current_replicas(servers, place_of)),
        current_pools=integers([len(_places(server.current.stated_pools)) for server in servers]),
        running=frozen(np.array([server.current.is_running for server in servers], dtype=np.bool_)),
        current_cost=frozen(np.array([current_cost_cents_per_h(system, name) for name in system.servers])),
        # Kinds with further arrays fill them for their servers only.
        own=_own_tables(system, len(place_of)),
        reserve=reserve_arrays(system, load_rps),
        preference=frozen(np.array([server.preferred is not None for server in servers], dtype=np.bool_)),
        preferred=frozen(_preferred(servers, place_of)),
        members=members,
        is_queue=frozen(np.array([has_members(server) for server in servers], np.bool_) & (load_rps > 0)),
    )


def _allowed(system: System, place_of: dict[str, int]) -> BoolArray:
    """Return a mask of the accelerators that each server's options allow, shape (S, A); never slices."""
    allowed = np.ones((len(system.servers), len(place_of)), dtype=np.bool_)
    for s, server in enumerate(system.servers.values()):
        if server.accelerators is not None:
            allowed[s] = False
            allowed[s, [place_of[name] for name in server.accelerators]] = True
        if server.keep_accelerator and server.current.accelerators:
            allowed[s] &= np.isin([*place_of], server.current.accelerators)
    # Slices serve only on shared cards, whose candidates are found apart.
    allowed[:, [item.slice is not None for item in system.accelerators.values()]] = False
    return allowed


def _places(pools: Iterable[CurrentPool]) -> set[tuple[str, str]]:
    """Return the distinct locations of pools: an accelerator, an external service or the shared cards."""
    return {(pool.mode, pool.accelerator if pool.mode == "own" else "") for pool in pools}


def _current_replicas(servers: Sequence[Server], place_of: Mapping[str, int]) -> IntArray:
    """Return the current replicas by accelerator, rental and shared cards, shape (S, A + 2); -1 if no pool.

    A rental counts as the minimum number of replicas, at least 1, and shared cards count as 1.
    """
    replicas = np.full((len(servers), len(place_of) + 2), -1, np.int64)
    for s, server in enumerate(servers):
        for pool in server.current.stated_pools:
            if pool.mode == "external":
                # A rental has no replicas; this number makes it equal to its candidate.
                replicas[s, len(place_of)] = max(server.min_num_replicas, 1)
            elif pool.mode == "shared":
                replicas[s, len(place_of) + 1] = 1
            elif pool.accelerator in place_of:
                replicas[s, place_of[pool.accelerator]] = pool.num_replicas
    return replicas


def _member_arrays(system: System, targets: list[ModelTarget | None]) -> tuple[Targets, MemberArrays]:
    """Return the targets of planned servers, and the members of these servers."""
    servers = list(system.servers.values())
    parts = [(s, place, part) for s, one in enumerate(servers) for place, part in enumerate(members_of(one))]
    kinds = system.server_kinds()
    of_members = [system.target_of(part) for _, _, part in parts]
    loss = [largest_loss(system, one) for one in (*servers, *(part for _, _, part in parts))]
    every = [*targets, *of_members]
    tps = np.array([target is not None and target.tps > 0 for target in every], np.bool_)
    joined = _targets(every, loss, frozen(tps))
    rates = [
        kinds[s].demand_rps(replica_load(part), target.tps if target else 0.0)
        for (s, _, part), target in zip(parts, of_members, strict=True)
    ]
    count = np.arange(len(servers))
    return joined.take(count), MemberArrays(
        np.array([s for s, _, _ in parts], np.int64),
        np.array([place for _, place, _ in parts], np.int64),
        np.array(rates),
        np.array([system.priority(part) for _, _, part in parts], np.int64),
        joined.take(len(servers) + np.arange(len(parts))),
        tuple(part.name for _, _, part in parts),
        np.array([part.current.load.out_tokens for _, _, part in parts]),
        tuple(shape_numbers(servers[s], part) for s, _, part in parts),
    )


def reserve_arrays(system: System, load_rps: FloatArray) -> ReserveArrays:
    """Return the reserves that servers require; headroom is stated by server, else class, else fleet."""
    servers = list(system.servers.values())
    loaded = load_rps > 0
    headroom = np.array([headroom_wanted(system, server) for server in servers])
    return ReserveArrays(
        headroom_share=frozen(np.where(loaded, headroom, 0.0)),
        spare_replicas=frozen(
            np.where(loaded, np.array([server.spare_replicas for server in servers], np.int64), 0)
        ),
        availability_target=frozen(
            np.where(loaded, np.array([server.availability_target or 0.0 for server in servers]), 0.0)
        ),
        surges=frozen(np.array([rolls_out(system, server) for server in servers], np.bool_)),
    )


def rolls_out(system: System, server: Server) -> bool:
    """Return whether a server needs cards for extra replicas during a roll-out, within limited cards."""
    return bool(server.surge) and system.options.rollout is not None and not system.options.unlimited


def headroom_wanted(system: System, server: Server) -> float:
    """Return the headroom that a server requires, as a fraction of its load.

    For offline work, only the headroom stated at the server counts, because its load does not grow by itself.
    A version to which a server can be rolled back needs headroom for the load of all versions.
    """
    if server.deadline is not None:
        return server.headroom_share or 0.0
    stated = server.headroom_share, system.service_classes[server.service_class].headroom_share
    share = next((share for share in stated if share is not None), system.options.headroom_share)
    return with_roll_back(server, share) if server.roll_back else share


def _preferred(servers: Sequence[Server], place_of: Mapping[str, int]) -> BoolArray:
    preferred = np.ones((len(servers), len(place_of)), np.bool_)
    for s, server in enumerate(servers):
        if server.preferred is not None:
            preferred[s] = np.isin([*place_of], server.preferred)
    return preferred


def server_loads_rps(system: System) -> FloatArray:
    """Return the load that the replicas of each server must serve [requests/s], shape (S,); 0 if idle.

    It is the arrival rate, or follows from the throughput target; requests answered by the result cache are
    excluded.
    """
    rows = zip(system.server_kinds(), system.servers.values(), _targets_of(system), strict=True)
    return np.array(
        [
            kind.demand_rps(replica_load(server), target.tps if target else 0.0)
            for kind, server, target in rows
        ]
    )


def _may_serve(system: System) -> BoolArray:
    """Return a mask of the accelerators in places from which each server can be served, shape (S, A)."""
    may = np.ones((len(system.servers), len(system.accelerators)), np.bool_)
    for s, server in enumerate(system.servers.values()):
        if server.may_serve_from is not None:
            may[s] = [system.may_serve(server, name) for name in system.accelerators]
    return may


def _network_ms(system: System) -> FloatArray:
    """Return the network latency between servers and accelerators [ms], shape (S, A)."""
    times = np.zeros((len(system.servers), len(system.accelerators)))
    for s, server in enumerate(system.servers.values()):
        if server.place is not None:
            times[s] = [
                system.delay_ms(server, name) if system.may_serve(server, name) else 0.0
                for name in system.accelerators
            ]
    return times


def _own_tables(system: System, accelerators: int) -> dict[str, OwnTable]:
    """Return the additional arrays of each kind, by name; pairs use the row of their server's setting."""
    kinds, servers = system.server_kinds(), list(system.servers.values())
    tables = {}
    for kind in dict.fromkeys(kinds):
        of_kind = np.flatnonzero([other is kind for other in kinds])
        own_tables = kind.own([servers[s] for s in of_kind.tolist()])
        if own_tables is None:
            continue
        count, first = np.zeros(len(servers), np.int64), np.zeros(len(servers), np.int64)
        count[of_kind] = np.bincount(own_tables.server, minlength=len(of_kind))
        first[of_kind] = np.cumsum(count[of_kind]) - count[of_kind]
        stated = np.maximum(first + count - 1, 0)
        chosen = np.tile(stated[:, np.newaxis], accelerators)
        tables[kind.name] = OwnTable(own_tables.arrays, frozen(first), frozen(count), frozen(chosen))
    return tables


def _targets_of(system: System) -> list[ModelTarget | None]:
    """Return the targets of each server in the document; None if it has none."""
    return [system.target_of(server) for server in system.servers.values()]


def largest_loss(system: System, server: Server) -> float:
    """Return the maximum fraction of requests that a server may reject.

    If no queue capacity is stated, there is no limit by default, because the queue counts as unlimited.
    """
    if server.deadline is not None:
        return ANY_LOSS  # offline requests can wait in a backlog
    target = system.target_of(server)
    default = ANY_LOSS if server.max_queue_size is None else DEFAULT_MAX_LOSS
    stated = (None if target is None else target.largest_loss, system.options.max_loss)
    return next((bound for bound in stated if bound is not None), default)


def _targets(targets: list[ModelTarget | None], max_loss: list[float], tps: BoolArray) -> Targets:
    """Return the limits of all servers on each target measure that any of them uses."""
    limits = [dict(target.latency_targets()) if target else {} for target in targets]
    for of_server, bound in zip(limits, max_loss, strict=True):
        if bound < ANY_LOSS:
            of_server[LOSS] = bound
    return Targets.of_limits(limits, tps, (target.request_limits() if target else {} for target in targets))


def current_cost_cents_per_h(system: System, server_name: str) -> float:
    """Return the cost of a server's current allocation [cents/h].

    If the cost of running replicas is not stated, it is computed from the prices, because at a cost of 0
    every other allocation would look more expensive.
    """
    server = system.servers[server_name]
    if not server.current.stated_pools:
        return server.current.cost_cents_per_h
    return math.fsum(_current_cost(system, server, pool) for pool in server.current.stated_pools)


def _current_cost(system: System, server: Server, pool: CurrentPool) -> float:
    if pool.cost_cents_per_h or not pool.num_replicas or pool.mode != "own":
        return pool.cost_cents_per_h
    profile = system.profiles.get((server.model, pool.accelerator))
    count = profile.acc_count if profile else 1
    return system.accelerators[pool.accelerator].cost_cents_per_h * count * pool.num_replicas


def _profile_arrays(system: System, profiles: list[ModelProfile]) -> ProfileArrays:
    slices = [system.accelerators[profile.accelerator] for profile in profiles]
    count = np.array([profile.acc_count for profile in profiles], dtype=np.int64)
    batch_limit = np.array([float(profile.max_batch_size or DEFAULT_MAX_BATCH) for profile in profiles])
    at_tokens = [profile.at_tokens if profile.max_batch_size else 0 for profile in profiles]
    capacity = [profile.kv_capacity_tokens for profile in profiles]
    queue_models = list(QUEUE_MODELS)
    return ProfileArrays(
        cost_per_replica=frozen(np.array([item.cost_cents_per_h for item in slices]) * count),
        accelerators_per_replica=frozen(count),
        availability=frozen(np.array([item.availability for item in slices]) ** count),
        units_per_replica=frozen(np.array([item.multiplicity for item in slices], dtype=np.int64) * count),
        batch_limit=frozen(batch_limit),
        batch_tokens=frozen(batch_limit * np.array(at_tokens, dtype=np.float64)),
        kv_capacity_tokens=frozen(
            np.array([np.inf if tokens is None else float(tokens) for tokens in capacity])
        ),
        laws=LawTable.of(profiles),
        queue_model=frozen(
            np.array([queue_models.index(profile.queue_model) for profile in profiles], dtype=np.int64)
        ),
    )
