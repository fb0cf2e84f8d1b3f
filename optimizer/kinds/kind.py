"""What every kind of replica declares: its laws, the mark of its pools in a plan, its metrics, its words."""

from abc import ABC
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

from optimizer.kinds.shown import Shown, TableName, Words
from optimizer.timing import Law


class Kind(ABC):
    """A kind of replica. Nothing of it changes; the table of kinds holds one object of each."""

    name: ClassVar[str]
    """As code and messages call it."""
    laws: ClassVar[tuple[type[Law], ...]]
    """Latency models that make a profile one of this kind."""
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
