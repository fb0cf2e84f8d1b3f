"""Live replica of a card that dynamic-batching servers share in time."""

from collections.abc import Sequence

import numpy as np

from optimizer.simulation.batches import BatchServer
from optimizer.simulation.live.replica import MIN_ROWS, LiveReplica, Rows, Step


class LiveTurns(LiveReplica):
    """Dynamic-batching servers that take turns on one card.

    The `level` of a request is the index of its server.
    """

    def __init__(self, servers: Sequence[BatchServer]) -> None:
        from optimizer.simulation.machine import time_sharing

        self._code = time_sharing
        self._rows = Rows()
        self._size = MIN_ROWS
        """Length of the array section for each server's requests."""
        heads = self._size * np.arange(len(servers))
        self._card = time_sharing.empty_card(servers, heads, np.zeros(self._size * len(servers)))
        self._row_at = np.zeros(len(self._card.arrival_ms), np.int64)
        """Request at each index of the arrays."""
        self._served: list[int] = []

    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int:  # noqa: ARG002
        """Add an arriving request of a server; the queue has no limit."""
        card, row = self._card, self._rows.take()
        if card.ends[level] == (level + 1) * self._size:
            self._repack()
            card = self._card
        place = int(card.ends[level])
        card.arrival_ms[place], self._row_at[place] = now_ms, row
        card.ends[level] = place + 1
        return row

    def cancel(self, row: int, now_ms: float) -> None:  # noqa: ARG002
        """Remove a request; if its batch is in service, the batch still takes its full time."""
        card = self._card
        for k, (head, end) in enumerate(zip(card.heads.tolist(), card.ends.tolist(), strict=True)):
            for place in head + np.flatnonzero(self._row_at[head:end] == row):
                for values in (card.arrival_ms, self._row_at):
                    values[place : end - 1] = values[place + 1 : end].copy()
                card.ends[k] = end - 1
                self._rows.release(row)
                return
        self._rows.leaving.add(row)

    def next_ms(self) -> float:
        """Return the time of the next start or end of a batch [ms]; inf if the card is idle."""
        return float(self._card.free_ms[0]) if self._served else float(self._code.next_start_ms(self._card))

    def step(self) -> Step:
        """Advance to the next start or end of a batch."""
        time_ms, card = self.next_ms(), self._card
        if self._served:
            made, ended = self._rows.end(self._served, self._served)
            self._served = []
            return Step(time_ms, made, ended)
        before = card.heads.copy()
        self._code.run_turns(card, time_ms)
        k = int(np.flatnonzero(card.heads > before)[0])
        self._served = self._row_at[before[k] : card.heads[k]].tolist()
        return Step(time_ms, [], [])

    @property
    def waiting(self) -> int:
        """Number of requests in the queues of all servers."""
        return int((self._card.ends - self._card.heads).sum())

    @property
    def running(self) -> int:
        """Number of requests in service."""
        return len(self._served)

    def _repack(self) -> None:
        """Move the waiting requests of each server to the start of its section.

        Lengthen sections if few entries are free.
        """
        card, old_size = self._card, self._size
        counts = card.ends - card.heads
        if 2 * counts.max() > old_size:
            self._size *= 2
        firsts = self._size * np.arange(len(counts))
        size = self._size * len(counts)
        arrival_ms, row_at = np.zeros(size), np.zeros(size, np.int64)
        for first, head, count in zip(firsts, card.heads, counts, strict=True):
            arrival_ms[first : first + count] = card.arrival_ms[head : head + count]
            row_at[first : first + count] = self._row_at[head : head + count]
        self._row_at = row_at
        self._card = card._replace(
            heads=firsts, ends=firsts + counts, arrival_ms=arrival_ms,
            start_ms=np.zeros(size), last_ms=np.zeros(size),
        )  # fmt: skip
