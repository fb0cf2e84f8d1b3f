"""Detects the type of a row: a JSON line that describes a replica to analyse."""

from optimizer.compat.class_rows import LinearClassRow, ReplicaClassRow
from optimizer.compat.disaggregated_rows import DisaggregatedRow
from optimizer.compat.rows import LinearRow, ReplicaRow
from optimizer.kinds.batch_servers.shared_rows import SharedRow
from optimizer.kinds.rows import Row
from optimizer.kinds.table import KINDS

_LINEAR = frozenset({"decodeparms", "prefillparms", "batching"})
_CLASSES = frozenset({"classes"})
_SHARED = frozenset({"shared"})
_POOLS = frozenset({"disaggregated"})
_OF_KINDS = {frozenset({kind.gives.lower()}): kind.row for kind in KINDS if kind.row}
_CHOICES: tuple[tuple[type[Row], tuple[frozenset[str], ...]], ...] = (
    (SharedRow, (_SHARED,)),
    *((row, (key,)) for key, row in _OF_KINDS.items()),
    (LinearClassRow, (_LINEAR, _CLASSES)),
    (LinearRow, (_LINEAR,)),
    (ReplicaClassRow, (_CLASSES,)),
    (DisaggregatedRow, (_POOLS,)),
    (ReplicaRow, ()),
)
"""Types of rows, each with sets of keys in lower case. A row has the first type for which it contains a key
of every set.
"""
_MARKS = _CLASSES.union(_SHARED, _POOLS, {"rps"}, *_OF_KINDS)

ROWS: tuple[type[Row], ...] = tuple(row for row, _ in _CHOICES)
"""All types of rows (JSON lines that describe replicas)."""


def is_row(value: object) -> bool:
    """Return whether a JSON value is a row: it has a rate, classes, a shared card, or the key of a kind."""
    return bool(_keys(value) & _MARKS)


def kind_of_row(value: object) -> type[Row]:
    """Detect the type of a row from the keys for its kind, its latency model and its classes."""
    keys = _keys(value)
    return next(row for row, sets in _CHOICES if all(keys & some for some in sets))


def _keys(value: object) -> set[str]:
    return {str(key).lower() for key in value} if isinstance(value, dict) else set()
