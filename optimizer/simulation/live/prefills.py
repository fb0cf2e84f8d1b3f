"""Live prefill replica: computes prompts, and holds their KV caches until decode replicas have taken them."""

import math
from collections import deque
from dataclasses import dataclass

from optimizer.simulation.engine import check_progress
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.live.replica import LiveReplica, Rows, Step


@dataclass(eq=False, slots=True)
class _Prompt:
    """A prompt that is not complete."""

    row: int
    cached: int
    """Tokens in the prefix cache, and those computed so far."""
    left: int
    """Tokens that remain to be computed."""
    begin_ms: float = math.nan
    """Start of its first iteration [ms]; NaN while it waits."""


class LivePrefills(LiveReplica):
    """A live prefill replica, whose requests make one token each, first come, first served.

    The KV cache of a complete prompt remains in memory until the caller frees it.
    """

    def __init__(self, times: IterationCoefficients, budget: int, kv_tokens: int) -> None:
        """Start empty.

        Args:
            times: iteration law.
            budget: token budget of an iteration.
            kv_tokens: capacity of the KV cache [tokens].
        """
        from optimizer.simulation.machine.prefills import prefill_ms

        self._spent_ms = prefill_ms
        self._times, self._budget, self._capacity = times, budget, kv_tokens
        self._rows = Rows()
        self._line = deque[_Prompt]()
        self._begin_ms: dict[int, float] = {}
        self._batch: list[tuple[_Prompt, int]] = []
        """Prompts in the iteration in progress, with their computed tokens."""
        self._now_ms = 0.0
        """Time of the last change, or end of the iteration in progress [ms]."""
        self.kv_tokens = 0
        """Number of tokens in the KV cache, also of complete prompts that are not freed."""

    def add(
        self,
        now_ms: float,
        in_tokens: int = 0,
        out_tokens: int = 1,  # noqa: ARG002
        level: int = 0,  # noqa: ARG002
        cached_tokens: int = 0,
        shared_tokens: int = 0,  # noqa: ARG002
    ) -> int:
        """Add an arriving prompt, and return its number; at least one token is computed."""
        row, tokens = self._rows.take(), max(in_tokens, 1)
        cached = min(cached_tokens, tokens - 1)
        self._line.append(_Prompt(row, cached, tokens - cached))
        self._begin_ms[row] = math.nan
        self._pass(now_ms)
        return row

    def cancel(self, row: int, now_ms: float) -> None:
        """Remove a prompt, at the latest when the iteration in progress ends."""
        if any(prompt.row == row for prompt, _ in self._batch):
            self._rows.leaving.add(row)
            return
        self._remove(next(prompt for prompt in self._line if prompt.row == row))
        self._pass(now_ms)

    def free(self, tokens: int, now_ms: float) -> None:
        """Free the KV cache of a complete prompt that a decode replica has taken [tokens]."""
        self.kv_tokens -= tokens
        self._pass(now_ms)

    def next_ms(self) -> float:
        """Return the end of the iteration in progress [ms]; inf if there is none."""
        if not self._batch:
            self._begin()
        return self._now_ms if self._batch else math.inf

    def step(self) -> Step:
        """End the iteration in progress, and return the prompts that are complete."""
        ended, batch, self._batch = [], self._batch, []
        for prompt, tokens in batch:
            prompt.cached, prompt.left = prompt.cached + tokens, prompt.left - tokens
            if prompt.row in self._rows.leaving:
                self._rows.leaving.remove(prompt.row)
                self._remove(prompt)
            elif not prompt.left:
                self._line.popleft()
                ended.append(prompt.row)
        self._rows.end([], ended)
        return Step(self._now_ms, ended, ended)

    def scheduled_ms(self, row: int) -> float:
        """Return the start of the first iteration of a prompt [ms]."""
        return self._begin_ms[row]

    @property
    def waiting(self) -> int:
        """Number of prompts that have not started."""
        return len(self._line) - self.running

    @property
    def running(self) -> int:
        """Number of prompts that are partly computed."""
        return sum(not math.isnan(prompt.begin_ms) for prompt in self._line)

    def _pass(self, now_ms: float) -> None:
        """Let the time pass while no iteration is in progress."""
        if not self._batch:
            self._now_ms = max(self._now_ms, now_ms)

    def _remove(self, prompt: _Prompt) -> None:
        self._line.remove(prompt)
        if not math.isnan(prompt.begin_ms):
            self.kv_tokens -= prompt.cached + prompt.left
        self._rows.release(prompt.row)

    def _begin(self) -> None:
        """Start an iteration with the first prompts whose KV caches fit; one alone always starts."""
        tokens, attention = 0, 0.0
        for prompt in self._line:
            if math.isnan(prompt.begin_ms):
                context = prompt.cached + prompt.left
                if self.kv_tokens and self.kv_tokens + context > self._capacity:
                    break
                self.kv_tokens += context
                prompt.begin_ms = self._begin_ms[prompt.row] = self._now_ms
            chunk = min(prompt.left, self._budget - tokens)
            attention += chunk * (prompt.cached + chunk / 2)
            tokens += chunk
            self._batch.append((prompt, chunk))
            if tokens == self._budget:
                break
        if self._batch:
            spent_ms = self._spent_ms(self._times, len(self._batch), tokens, attention)
            check_progress(is_stuck=spent_ms <= 0)
            self._now_ms += spent_ms
