"""Cache of sizings, which can be reused because the maximum rate of a replica does not depend on the load.

In a control loop, loads change every minute, but profiles and targets rarely. The result for a row depends
only on its key and not on the other rows, to the last bit. So results with and without the cache are
identical.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np

from optimizer.arrays import row_bytes
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.sizing import SizedRows
from optimizer.queueing.targets import Targets

MAX_ROWS = 2**15
"""Default maximum number of rows in the cache: about 12 MB, enough for 50 fleets like specs/large."""


class SizingMemo:
    """A thread-safe cache of sized rows that drops the least recently used."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self.max_rows = max_rows
        """Maximum number of rows in the cache."""
        self.rows_sized = 0
        """Number of rows that were computed because they were not in the cache."""
        self._rows: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, replicas: QueueModel, targets: Targets) -> SizedRows:
        """Return the sizing of R ≥ 1 replicas; compute only those that are not in the cache."""
        keys = _keys(replicas, targets)
        with self._lock:
            # The key has every input of a sizing, so a hit is equal to the last bit.
            rows = [self._rows.get(key) for key in keys]
            for key, value in zip(keys, rows, strict=True):
                if value is not None:
                    self._rows.move_to_end(key)
        new = np.flatnonzero([value is None for value in rows])
        if len(new):
            some = (replicas, targets) if len(new) == len(keys) else (replicas.take(new), targets.take(new))
            for row, value in zip(new, SizedRows.of(*some).values(), strict=True):
                rows[row] = value
            self._keep([(keys[row], rows[row]) for row in new])
        return SizedRows.of_values([value for value in rows if value is not None])

    def _keep(self, rows: Sequence[tuple[Hashable, bytes | None]]) -> None:
        with self._lock:
            self.rows_sized += len(rows)
            for key, value in rows:
                assert value is not None
                self._rows[key] = value
            while len(self._rows) > self.max_rows:
                self._rows.popitem(last=False)


def _keys(replicas: QueueModel, targets: Targets) -> list[Hashable]:
    """Return the cache key of each row: the type of its queue model, and all its numbers to the last bit."""
    per_request = () if targets.per_request is None else targets.per_request
    columns = [*replicas.columns(), *targets.limits, targets.tps, *per_request]
    context = type(replicas), replicas.law_type, targets.measures
    return [(context, row.tobytes()) for row in row_bytes(columns)]
