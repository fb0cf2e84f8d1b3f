"""The table of candidates, and a rejection reason for every other server–accelerator pair.

Rows are sorted by server, then by accelerator.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates.arrays import SystemArrays
from optimizer.features.shared_cards.patterns import SharedCards
from optimizer.features.table import FEATURES
from optimizer.quantities import quantity
from optimizer.queueing.measures import TargetMeasure
from optimizer.schema import EstimateEnd, Server
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


class Source(IntEnum):
    """Type of a row of the candidate table."""

    replicas = 0
    """Replicas of the server on its own cards."""
    rental = 1
    """An external service; its accelerator index is the last plus 1."""
    on_cards = 2
    """A server on shared cards, which rows of type `units` provide; its accelerator index is the last plus 2.
    """
    units = 3
    """Units that serve other servers and belong to an artificial server: shared cards, or replicas with a
    role.
    """
    coupled = 4
    """Replicas on own cards whose feasibility depends on further variables and constraints of a topology."""


class RejectionReason(IntEnum):
    """Reasons to reject a server–accelerator pair; `label` is the text in outputs."""

    not_allowed = 1
    no_target = 2
    no_profile = 3
    does_not_fit = 4
    batch_limit = 5
    no_work = 6
    slo_unattainable = 7
    slo_missed = 8
    replica_limit = 9
    simulation_missed = 10
    window = 11
    place = 12
    network = 13

    @property
    def label(self) -> str:
        """Text of the reason in outputs."""
        return _LABELS.get(self, self.name)


_LABELS = {
    RejectionReason.network: "place",
    RejectionReason.slo_missed: "slo_unattainable",
    RejectionReason.window: "slo_unattainable",
}
"""Texts of reasons that outputs do not distinguish from others."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected server–accelerator pair, with its reason and the compared numbers."""

    server: str
    accelerator: str
    reason: str
    detail: str
    value: float | None
    limit: float | None

    @property
    def factor(self) -> float | None:
        """Ratio of the larger to the smaller of value and limit; None if one is missing or 0."""
        if not self.value or not self.limit:
            return None
        # A value can be above a maximum or below a minimum; the factor is at least 1 in both cases.
        return min(max(self.value / self.limit, self.limit / self.value), sys.float_info.max)


@dataclass(frozen=True, slots=True)
class CandidateTable:
    """Candidates, one row each; read-only arrays of shape (C,)."""

    server: IntArray
    """Index of the server."""
    accelerator: IntArray
    """Index of the accelerator."""
    type: IntArray
    """Index of the accelerator type."""
    max_batch: IntArray
    num_replicas: IntArray
    units_per_replica: IntArray
    cost_per_replica: FloatArray
    """Cost of one replica [cents/h]."""
    max_rate_rps: FloatArray
    """Maximum arrival rate of one replica within all targets [requests/s]."""
    ttft_ms: FloatArray
    itl_ms: FloatArray
    utilization: FloatArray
    loss: FloatArray
    """Fraction of requests that a replica rejects at its share of the load."""
    meets_targets_below_max_rate: BoolArray
    """Whether the targets are met at all lower rates, too; chunk-count jumps can prevent that."""
    batch_ceiling: IntArray
    """Largest allowed batch limit [requests]; equal to `max_batch` unless batch limits are optimised."""
    best_rate_rps: FloatArray
    """Highest rate over all batch limits up to the ceiling [requests/s]; equal to `max_rate_rps` unless batch
    limits are optimised.
    """

    reserved: BoolArray
    """Whether the candidate includes the reserve that its server requires; true if it requires none."""
    preferred: BoolArray
    """Whether the server prefers the accelerator or states no preference."""
    members: IntArray
    """Bit mask of the members of a shared queue that the candidate serves; -1 for all, and for other servers.
    """
    load_rps: FloatArray
    """Load of the members that the candidate serves [requests/s]."""
    source: IntArray
    """Type of the row: a `Source`."""
    pattern: IntArray
    """For rows of type `units`: index of their pattern of shared cards, or of the row that they support; else
    -1.
    """

    def __len__(self) -> int:
        """Return the number of rows C."""
        return len(self.server)

    @property
    def units(self) -> IntArray:
        """Number of cards of the accelerator's type that the candidate uses."""
        return self.num_replicas * self.units_per_replica

    @property
    def cost_cents_per_h(self) -> FloatArray:
        """Cost of the candidate [cents/h]."""
        return self.num_replicas * self.cost_per_replica

    @property
    def alone(self) -> BoolArray:
        """Mask of rows that serve their server without other rows."""
        return np.asarray(self.source <= Source.rental, np.bool_)

    @property
    def is_pool(self) -> BoolArray:
        """Mask of rows that are a pool of their server."""
        return np.asarray((self.source == Source.replicas) | (self.source == Source.coupled), np.bool_)

    def pairs(self) -> list[tuple[int, int]]:
        """Return the server index and the accelerator index of each candidate."""
        return list(zip(self.server.tolist(), self.accelerator.tolist(), strict=True))

    def take(self, rows: IntArray | BoolArray) -> "CandidateTable":
        """Return a copy with only the given rows (indices or a mask), in the given order."""
        return CandidateTable(*(frozen(getattr(self, field.name)[rows]) for field in fields(self)))

    @classmethod
    def joined(cls, tables: Sequence["CandidateTable"]) -> "CandidateTable":
        """Join one or more tables; rows are sorted by server, accelerator and members."""
        order = cls.joined_order(tables)
        return cls(
            *(
                frozen(np.concatenate([getattr(t, field.name) for t in tables])[order])
                for field in fields(cls)
            )
        )

    @staticmethod
    def joined_order(tables: Sequence["CandidateTable"]) -> IntArray:
        """Return, for each row of the joined table, its position in the concatenated tables."""
        # lexsort sorts by its last key first: by server, then accelerator, then members.
        names = ("members", "accelerator", "server")
        order: IntArray = np.lexsort([np.concatenate([getattr(t, name) for t in tables]) for name in names])
        return order


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Rejection reason of each server–accelerator pair, with the compared numbers; shapes (S, A)."""

    reason: IntArray
    """A `RejectionReason`; 0 for candidates."""
    value: FloatArray
    limit: FloatArray
    measure: IntArray
    """Index of the target measure that was compared with its limit; -1 for reasons without a measure."""

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> "Verdicts":
        """Create verdicts that reject no pair; shape (S, A)."""
        return cls(
            np.zeros(shape, np.int64), np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, -1)
        )

    def freeze(self) -> None:
        """Make the verdicts read-only."""
        for each in fields(self):
            frozen(getattr(self, each.name))

    def reject(
        self,
        server: IntArray,
        accelerator: IntArray,
        reason: RejectionReason,
        value: FloatArray | IntArray | float = np.nan,
        limit: FloatArray | IntArray | float = np.nan,
        *,
        where: BoolArray | bool = True,
    ) -> None:
        """Reject pairs, with a reason and the compared numbers.

        Args:
            server: indices of the servers, shape (R,).
            accelerator: indices of the accelerators, shape (R,).
            value: values that were compared with limits; NaN if there are none.
            limit: limits that the values violate; NaN if there are none.
            where: mask of the pairs to reject; True: all.
        """
        rows = np.broadcast_to(where, server.shape)
        at = server[rows], accelerator[rows]
        self.reason[at] = reason
        self.value[at] = np.broadcast_to(value, server.shape)[rows]
        self.limit[at] = np.broadcast_to(limit, server.shape)[rows]


_NO_ROWS = frozen(np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates and rejections of a system, including those with reserves, rentals and shared cards."""

    arrays: SystemArrays
    table: CandidateTable
    over_limit: CandidateTable
    """Candidates that would need more replicas than allowed, capped at that limit; for partial service only.
    """
    with_reserve: CandidateTable
    """Candidates with additional replicas for the reserve of their server."""
    verdicts: Verdicts
    system: System
    shared: SharedCards | None = None
    """Patterns of shared cards; None if no server can share one."""
    offered: Mapping[str, CandidateTable] = field(default_factory=dict)
    """Candidates that features add, by feature; those of a feature with a topology need its rows."""
    extra_amounts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Changes of available amounts in a what-if question, by limit and item."""
    of_all_pools: "Candidates | None" = None
    """Candidates with all possible pools by length, if the system has only those that were chosen."""

    @property
    def own_tables(self) -> list[CandidateTable]:
        """Tables of all candidates that serve one server by themselves."""
        alone = [each.name for each in FEATURES if not each.has_topology and each.name in self.offered]
        return [self.table, self.over_limit, self.with_reserve, *(self.offered[name] for name in alone)]

    def with_tables(
        self, change: Callable[..., CandidateTable], other: "Candidates | None" = None
    ) -> "Candidates":
        """Return a copy in which `change` replaces each table; with `other`, it gets the tables of both."""
        sources = [self] if other is None else [self, other]
        return replace(
            self,
            table=change(*(each.table for each in sources)),
            over_limit=change(*(each.over_limit for each in sources)),
            with_reserve=change(*(each.with_reserve for each in sources)),
            offered={
                name: change(*(each.offered.get(name, each.table.take(_NO_ROWS)) for each in sources))
                for name in self.offered
            },
        )

    def rejections(self, server: int | None = None) -> Iterator[Rejection]:
        """Yield the rejected pairs of one server, or of all for None, sorted by name."""
        for s in range(len(self.arrays.server_names)) if server is None else (server,):
            for a in np.flatnonzero(self.verdicts.reason[s]):
                yield self._rejection(s, int(a))

    def to_wire(self) -> dict[str, list[dict[str, object]]]:
        """Return the candidates and rejections as plain values for JSON."""
        arrays, table = self.arrays, self.table
        units, cost = table.units, table.cost_cents_per_h
        rows = [
            {
                "server": arrays.server_names[table.server[c]],
                "accelerator": arrays.accelerator_names[table.accelerator[c]],
                "numReplicas": int(table.num_replicas[c]),
                "maxBatch": int(table.max_batch[c]),
                "maxRateRpm": float(table.max_rate_rps[c] * SECONDS_PER_MINUTE),
                "itlMs": float(table.itl_ms[c]),
                "ttftMs": float(table.ttft_ms[c]),
                "utilization": float(table.utilization[c]),
                "loss": float(table.loss[c]),
                "batchCeiling": int(table.batch_ceiling[c]),
                "bestRateRpm": float(table.best_rate_rps[c] * SECONDS_PER_MINUTE),
                "type": arrays.type_names[table.type[c]],
                "units": int(units[c]),
                "costCentsPerH": float(cost[c]),
                **self._mark(int(table.server[c]), int(table.accelerator[c])),
            }
            for c in range(len(table))
        ]
        return {"candidates": rows, "rejections": [asdict(item) for item in self.rejections()]}

    def estimated(self, s: int, a: int) -> EstimateEnd | None:
        """Return the end of the estimate's interval used for a pair; None if its profile is not estimated."""
        server = self.system.servers[self.arrays.server_names[s]]
        profile = self.system.profiles[server.model, self.arrays.accelerator_names[a]]
        return self.system.options.estimates if profile.is_estimated else None

    def _mark(self, s: int, a: int) -> dict[str, object]:
        end = self.estimated(s, a)
        return {} if end is None else {"estimated": end}

    def _rejection(self, s: int, a: int) -> Rejection:
        reason = RejectionReason(int(self.verdicts.reason[s, a]))
        value, limit = float(self.verdicts.value[s, a]), float(self.verdicts.limit[s, a])
        server = self.system.servers[self.arrays.server_names[s]]
        accelerator = self.arrays.accelerator_names[a]
        return Rejection(
            server.name,
            accelerator,
            reason.label,
            self._detail(reason, server, accelerator, (s, a)),
            None if np.isnan(value) else value,
            None if np.isnan(limit) else limit,
        )

    def _detail(
        self, reason: RejectionReason, server: Server, accelerator: str, pair: tuple[int, int]
    ) -> str:
        if reason is RejectionReason.not_allowed:
            stays_on = server.current.accelerators if server.keep_accelerator else ()
            if stays_on and accelerator not in stays_on:
                return f"keepAccelerator holds it on {' and '.join(stays_on)}"
            part = self.system.accelerators[accelerator].slice
            if part is not None:
                return f"it is a slice of {part.card}, for servers with sharedCard on shared cards"
            return "not in the server's list of accelerators"
        misfit = self.arrays.misfits.get(int(self.arrays.profile_of[pair]))
        if reason is RejectionReason.does_not_fit and misfit is not None:
            return str(misfit).replace("--tp", "tp")
        value, limit = float(self.verdicts.value[pair]), float(self.verdicts.limit[pair])
        place = self.system.accelerators[accelerator].place
        measure = self.arrays.servers.targets.measures[self.verdicts.measure[pair]]
        detail = _DETAILS[reason].format(
            service_class=server.service_class,
            model=server.model,
            accelerator=accelerator,
            here=server.place,
            there=place or "no place",
            value=value,
            limit=limit,
            measure=measure,
            shown=quantity(value),
            bound=quantity(limit),
            measured=measure.text(value, 4),
            target=measure.text(limit),
        )
        # A missed percentile can rest on an assumption, so the advice is to state it.
        missed = reason in {RejectionReason.slo_unattainable, RejectionReason.slo_missed}
        return detail + (_assumed_spread(measure, server) if missed else "")


def _assumed_spread(measure: TargetMeasure, server: Server) -> str:
    """Describe the assumed length variation that a percentile depends on, and the fields that state it."""
    load = server.current.load
    names = {"ttft": ["in_tokens_cv"], "e2e": ["in_tokens_cv", "out_tokens_cv"]}.get(measure.metric, [])
    # Percentiles depend on the spread of lengths, which many documents do not state.
    open_ones = [name for name in names if name not in load.model_fields_set]
    if measure.percentile is None or not open_ones or not load.out_tokens or load.shapes:
        return ""
    fields = " and ".join(str(type(load).model_fields[name].alias) for name in open_ones)
    return (
        f"; the {measure.statistic} rests on lengths with an assumed coefficient of variation of "
        f"{getattr(load, open_ones[-1]):g}: state {fields}"
    )


_DETAILS = {
    RejectionReason.no_target: "class {service_class} has no target for {model}",
    RejectionReason.no_profile: "no token times of {model} on {accelerator} are known",
    RejectionReason.does_not_fit: "one request has {value:,.0f} tokens, kvCapacity is {limit:,.0f}",
    RejectionReason.batch_limit: "batch limit {value:,.0f} exceeds {limit:,.0f}; reduce maxBatchSize",
    RejectionReason.no_work: "the service time of a request is zero; give the profile token times",
    RejectionReason.slo_unattainable: "best {measure.label} at batch 1 is {measured}, target {target}",
    RejectionReason.slo_missed: "{measure.label} at the load per replica is {measured}, target {target}",
    RejectionReason.window: "window: at {shown} requests/min a replica waits too long to fill its batches; "
    "its targets hold from {bound} requests/min",
    RejectionReason.place: "it is at {there}, which mayServeFrom does not list",
    RejectionReason.network: "the network from {here} to {there} takes {shown} ms, a target is {bound} ms",
    RejectionReason.simulation_missed: "its targets were missed at every simulated load",
    RejectionReason.replica_limit: "needs {value:,.0f} replicas, the limit is {limit:,.0f}",
}
