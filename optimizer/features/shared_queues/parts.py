"""Partial service of shared queues: load that replicas serve beyond the members they serve in full.

A saturation policy can give a queue replicas that serve no further member in full. They serve the largest
share of the next member's load with which all served members meet their targets. Equation numbers refer to
``docs/math.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.candidates.arrays import tabulate
from optimizer.candidates.class_rows import ClassRows
from optimizer.candidates.measuring import parts
from optimizer.candidates.pairs import Pairs
from optimizer.candidates.table import Candidates, CandidateTable
from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.units import SECONDS_PER_MINUTE

SLACK = 1e-4
"""Margin below the largest share, so that the pool carries its load within all tolerances."""
SHARES = 32
"""Number of shares that are evaluated at once."""
ROUNDS = 3
"""Number of rounds of the search, after which the share is accurate to 1/30,000."""


@dataclass(frozen=True)
class QueueParts:
    """Computes the shares of further members that the replicas of queues can serve in part."""

    candidates: Candidates
    _known: dict[tuple[int, int, int, int], float] = field(default_factory=dict)

    def members(self, server: int, bits: int) -> tuple[list[int], int | None]:
        """Return the members of a queue that are served in full, and the next member by priority (or None).

        Args:
            server: index of the queue.
            bits: bit mask of the members that are served in full.
        """
        members = self.candidates.arrays.servers.members
        mine = np.flatnonzero(members.server == server).tolist()
        served = [m for m in mine if bits >> int(members.place[m]) & 1]
        open_members = [m for m in mine if m not in served and members.load_rps[m] > 0]
        return served, open_members[0] if open_members else None

    def shares(self, table: CandidateTable, row: int, replicas: int) -> dict[str, float]:
        """Return the share of each member's load that the replicas of a candidate serve, by name.

        If there are fewer replicas than the members need, only the first member is served, in part.
        """
        names = self.candidates.arrays.servers.members.names
        bits = int(table.members[row])
        if replicas < table.num_replicas[row]:
            served, part = self.members(int(table.server[row]), bits)
            loaded = [m for m in served if self._load(m) > 0]
            bits = sum(1 << int(self._place(m)) for m in served if m not in loaded)
            part = loaded[0]
            found = {names[m]: 1.0 for m in served if m not in loaded}
        else:
            served, part = self.members(int(table.server[row]), bits)
            found = {names[m]: 1.0 for m in served}
        if part is not None:
            share = self.share(table, row, bits, replicas)
            found |= {names[part]: share} if share > 0 else {}
        return found

    def share(self, table: CandidateTable, row: int, bits: int, replicas: int) -> float:
        """Return the largest share of the next member's load that replicas can serve in addition (eq. 181).

        Args:
            table: the candidates.
            row: index of a candidate of the queue on the accelerator.
            bits: bit mask of the members that are served in full.
            replicas: number of replicas.
        """
        key = int(table.server[row]), int(table.accelerator[row]), bits, replicas
        if key not in self._known:
            self._known[key] = self._searched(int(table.max_batch[row]), *key)
        return self._known[key]

    def _searched(self, batch: int, server: int, accelerator: int, bits: int, replicas: int) -> float:
        served, part = self.members(server, bits)
        if part is None or not replicas:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(ROUNDS):
            tried = np.linspace(low, high, SHARES + 1)[1:]
            holds = self._holds(batch, server, accelerator, replicas, served, part, tried)
            count = len(tried) if holds.all() else int(holds.argmin())
            low, high = (tried[count - 1] if count else low), (tried[count] if count < len(tried) else low)
            if low >= high:
                break
        return float(low) * (1 - SLACK)

    def _holds(
        self,
        batch: int,
        server: int,
        accelerator: int,
        replicas: int,
        served: Sequence[int],
        part: int,
        shares: FloatArray,
    ) -> BoolArray:
        """Return a mask of the shares of the next member's load at which all targets are met."""
        system, members = self.candidates.system, self.candidates.arrays.servers.members
        queue = system.servers[self.candidates.arrays.server_names[server]]
        assert isinstance(queue, SharedQueue)
        full = {members.names[m]: self._load(m) * SECONDS_PER_MINUTE for m in served}
        own = self._load(part) * SECONDS_PER_MINUTE
        variants = {
            f"{i:03d}": queue.only({**full, members.names[part]: share * own})
            for i, share in enumerate(shares.tolist())
        }
        factor = float(self.candidates.arrays.rate_factor[server, accelerator])
        arrays = tabulate(replace(system, servers=MappingProxyType(variants), rate_factors={}))
        count = len(shares)
        pairs = Pairs.of(arrays, np.arange(count), np.full(count, accelerator), np.full(count, batch))
        rates, holds = arrays.servers.load_rps / replicas / max(factor, 1e-9), np.zeros(count, np.bool_)
        for rows, some in parts(arrays, pairs):
            classes = ClassRows.of(arrays, some)
            stable = rates[rows] <= classes.queues.stable_rate_rps[classes.first]
            holds[rows] = stable & classes.met(classes.analyze(rates[rows]))
        return holds

    def _load(self, member: int) -> float:
        return float(self.candidates.arrays.servers.members.load_rps[member])

    def _place(self, member: int) -> int:
        return int(self.candidates.arrays.servers.members.place[member])
