"""What every kind of replica declares and does: everything above asks the object and knows none by name.

A kind stands below `optimizer.spec`: it sees its own fields of profiles and servers, and loads; never a whole
system, its arrays or a plan.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from optimizer.arrays import IntArray
from optimizer.documents import Document
from optimizer.kinds.fields import Load, PlacedServer, ReplicaProfile
from optimizer.kinds.rows import Row
from optimizer.kinds.shown import Shown, TableName, Words
from optimizer.queueing.performance import OwnArrays, QueueModel
from optimizer.simulation.replicas import SimulatedReplica
from optimizer.timing import Law
from optimizer.units import SECONDS_PER_MINUTE

Fault = tuple[str, str]
"""The keys of a field below its document, joined by points, and what is wrong there."""


class Refused(NamedTuple):
    """Fields that a kind has no use for, by their Python names, and why."""

    fields: tuple[str, ...] = ()
    because: str = ""


class OwnRows(NamedTuple):
    """What some servers of a kind have beside the arrays of all servers: one row for each way to run them."""

    arrays: OwnArrays
    server: IntArray
    """Server of each row, not falling. Of several rows the first that is as good as any is chosen; the last
    is what the server states."""


P = TypeVar("P", bound=ReplicaProfile)
S = TypeVar("S", bound=PlacedServer)


class KindOf(ABC, Generic[P, S]):
    """A kind of replica. Nothing of it changes; the table of kinds holds one object of each.

    P and S are the profiles and servers that it sees: what all have, with its own fields.
    """

    name: ClassVar[str]
    """As code and messages call it, in the plural."""
    gives: ClassVar[str]
    """What a profile of this kind gives: "batchParms", "tokens"."""
    queue_models: ClassVar[Mapping[type[Law], tuple[type[QueueModel], ...]]]
    """Latency models that make a profile one of this kind, each with its queue models, the default first."""
    server_fields: ClassVar[type[Document] | None] = None
    """The fields of a server that only this kind has."""
    does: ClassVar[str] = ""
    """What those fields are about, after the kind's name: "collect requests"."""
    refused_in_profiles: ClassVar[Refused] = Refused()
    refused_targets: ClassVar[Refused] = Refused()
    row: ClassVar[type[Row] | None] = None
    """One replica at one rate, told by the key that `gives` names; none: the reference's format."""
    compiles_queues: ClassVar[bool] = False
    """Whether its queue models run code that is compiled first, which takes some seconds."""
    mark: ClassVar[str | None] = None
    """Field of a pool that only pools of this kind have; none: the default kind."""
    simulated_mark: ClassVar[str | None] = None
    """The same of a simulated pool: a truth value."""
    metrics: ClassVar[tuple[Shown, ...]]
    """What is shown of its pools, in the order of columns."""
    orders: ClassVar[Mapping[TableName, tuple[str, ...]]] = MappingProxyType({})
    """Metrics by table in another order; those that it does not name come last."""
    lengths: ClassVar[tuple[str, ...]] = ()
    """Fields of a load that matter to it beside the rate."""
    of_server: ClassVar[tuple[str, ...]] = ()
    """Fields of a server that stand beside its pools."""
    words: ClassVar[Words]

    def check(self, server: S, profiles: Sequence[P], load: Load) -> Iterator[Fault]:  # noqa: ARG002  most check more
        """Yield what is wrong with a server beside the profiles of its model."""
        yield from ()

    def demand_rps(self, load: Load, throughput_tps: float) -> float:  # noqa: ARG002  for tokens
        """Return what a server has to carry [requests/s]; 0 where it is idle.

        Args:
            load: its load.
            throughput_tps: its throughput target [tokens/s]; 0: none.
        """
        return load.arrival_rate_rpm / SECONDS_PER_MINUTE

    def own(self, servers: Sequence[S]) -> OwnRows | None:  # noqa: ARG002  for those that have any
        """Return what some servers have beside the arrays of all; none: nothing."""
        return None

    @abstractmethod
    def replica(
        self, server: S, profile: P, max_batch: int, pool: Document | None = None
    ) -> SimulatedReplica:
        """Return a replica of a server as the simulator runs it.

        Args:
            server: the server.
            profile: its model on an accelerator.
            max_batch: its batch limit.
            pool: a pool of a plan, whose own fields say what the plan chose; none: as the server states.
        """

    def pool_fields(self, server: S, profile: P, max_batch: int, own: OwnArrays | None) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what a pool shows beside the figures of all, by the fields of `Pool`, whatever its load.

        Args:
            server: its server.
            profile: its model on an accelerator.
            max_batch: its batch limit.
            own: its row of what servers of this kind have beside others.
        """
        return {}

    def shown(self, table: TableName) -> Mapping[str, Shown]:
        """Return what a table shows of its pools, by metric, in the order of the columns."""
        return self._tables.get(table, {})

    @cached_property
    def _tables(self) -> dict[TableName, dict[str, Shown]]:
        found: dict[TableName, dict[str, Shown]] = {}
        for shown in self.metrics:
            for table in shown.tables:
                found.setdefault(table, {})[shown.metric] = shown
        for table, order in self.orders.items():
            found[table] = {metric: found[table][metric] for metric in (*order, *found[table])}
        return found

    @property
    def fields(self) -> set[str]:
        """The fields of the row of a pool that it gives a meaning under their own names."""
        own = {shown.field for shown in self.metrics if shown.field and not shown.alias}
        targets = {shown.target_field for shown in self.metrics if shown.target}
        return {*self.lengths, *own, *targets}


Kind = KindOf[Any, Any]
"""A kind, whichever."""
