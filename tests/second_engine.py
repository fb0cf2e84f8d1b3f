"""A second engine: one object for each request, one iteration after the other, in plain Python.

It is written from the rules in docs/simulation.md, and shares no code with the engine that is held to it.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.requests import Requests


@dataclass(eq=False)
class Job:
    """A request on its way."""

    row: int
    prompt: int
    answer: int
    sent: float
    made: int = 0
    """Tokens of the answer that the client has."""
    todo: int = 0
    """Tokens to compute before the next token of the answer."""
    done: int = 0
    """Those of them that are computed."""
    held: int = 0
    """Tokens in the KV cache."""
    begun: float = math.nan
    """First time in the batch."""
    first: float = math.nan
    last: float = math.nan
    losses: int = 0
    rank: int = 1
    """Priority, 1 is the highest."""
    cached: int = 0
    """Tokens of the prompt that are in the prefix cache whenever it joins the batch."""
    shared: int = 0
    """Those of them that all requests hold together."""

    @property
    def own(self) -> int:
        """Tokens in the KV cache that it holds for itself."""
        return self.held - self.shared if self.held else 0


@dataclass
class SecondEngine:
    times: IterationCoefficients
    limits: Limits
    requests: Requests
    now: float = 0.0
    next_row: int = 0
    wakes: list[float] = field(default_factory=list)
    queue: deque[Job] = field(default_factory=deque)
    batch: list[Job] = field(default_factory=list)
    """In the order of admission."""
    jobs: list[Job] = field(default_factory=list)
    iterations: int = 0
    cancels: dict[int, float] = field(default_factory=dict)
    """Time at which the client hangs up, by row: at once if it waits, else with the iteration in progress."""

    def run(self) -> list[Job]:
        if self.requests.wakes_ms is not None:
            self.wakes = sorted(self.requests.wakes_ms.tolist())
        while True:
            if not self.batch and not self.queue:
                coming = self.coming()
                if coming is None:
                    return self.jobs
                self.now = max(self.now, coming)
                self.receive(late=False)
                continue
            self.iterate()

    # --- clients -----------------------------------------------------------------------------------------

    def coming(self) -> float | None:
        if self.next_row == len(self.requests):
            return None
        if self.requests.arrival_ms is not None:
            return float(self.requests.arrival_ms[self.next_row])
        return self.wakes[0] if self.wakes else None

    def receive(self, *, late: bool) -> None:
        """Send what clients have for us by now; `late`: only places that just became free let it through."""
        while len(self.batch) + len(self.queue) < self.limits.max_in_flight:
            coming = self.coming()
            if coming is None or coming > self.now:
                self.hang_up(self.queue, self.now)
                return
            self.hang_up(self.queue, coming)
            row = self.next_row
            self.next_row += 1
            if self.requests.arrival_ms is None:
                self.wakes.pop(0)
            prompt, answer = int(self.requests.in_tokens[row]), int(self.requests.out_tokens[row])
            rank = 1 if self.requests.priority is None else int(self.requests.priority[row])
            cached, shared = (
                0 if given is None else int(given[row])
                for given in (self.requests.cached_tokens, self.requests.shared_tokens)
            )
            cached = min(cached, max(prompt - 1, 0))
            job = Job(
                row, prompt, answer, self.now if late else coming, todo=prompt, rank=rank, cached=cached,
                shared=min(shared, cached),
            )  # fmt: skip
            self.jobs.append(job)
            behind = len(self.batch) + len(self.queue) - self.limits.max_batch
            if behind >= self.limits.max_queue or prompt - job.shared + answer - 1 > self.limits.kv_tokens:
                self.think(job, job.sent)
            else:
                self.queue.insert(sum(other.rank <= rank for other in self.queue), job)

    def hang_up(self, jobs: "deque[Job] | list[Job]", now: float) -> None:
        for job in [job for job in jobs if self.cancels.get(job.row, math.inf) <= now]:
            jobs.remove(job)

    def think(self, job: Job, since: float) -> None:
        if self.requests.think_ms is not None:
            self.wakes.append(since + float(self.requests.think_ms[job.row]))
            self.wakes.sort()

    # --- one iteration -----------------------------------------------------------------------------------

    def answering(self) -> list[Job]:
        return [job for job in self.batch if job.done == job.todo]

    def held(self) -> int:
        return sum(job.own for job in self.batch)

    def iterate(self) -> None:
        decodes = self.answering()
        chunks = self.chunks(decodes)
        if not chunks:
            while self.held() + len(self.answering()) > self.limits.kv_tokens:
                self.preempt()
            decodes = self.answering()
        elif self.limits.prefill_first:
            decodes = []
        duration = self.duration(decodes, chunks)
        assert duration > 0
        self.now += duration
        self.iterations += 1
        self.receive(late=False)
        for job in decodes:
            job.held += 1
            self.emit(job)
        for job, tokens in chunks:
            job.done += tokens
            job.held += tokens
            if job.done == job.todo:
                self.emit(job)
        self.hang_up(self.batch, self.now)
        self.receive(late=True)

    def chunks(self, decodes: list[Job]) -> list[tuple[Job, int]]:
        """Admit requests and return the prompt tokens of this iteration."""
        room = self.limits.max_num_tokens - (0 if self.limits.prefill_first else len(decodes))
        free = self.limits.kv_tokens - self.held() - len(decodes)
        chosen: list[tuple[Job, int]] = []
        for job in [job for job in self.batch if job.done < job.todo]:
            tokens = min(job.todo - job.done, room)
            if room <= 0 or tokens > free:
                return []
            chosen.append((job, tokens))
            room, free = room - tokens, free - tokens
        while self.queue and len(self.batch) < self.limits.max_batch and room > 0:
            job = self.queue[0]
            left = job.todo - job.cached
            tokens = min(left, room)
            if self.limits.prefill_first and tokens < left:
                if any(tokens for _, tokens in chosen):
                    break
                tokens = left
            if tokens + job.cached - job.shared > free:
                break
            job.done = job.held = job.cached
            free -= job.cached - job.shared
            self.batch.append(self.queue.popleft())
            job.begun = self.now if math.isnan(job.begun) else job.begun
            chosen.append((job, tokens))
            room, free = room - tokens, free - tokens
        return chosen

    def preempt(self) -> None:
        job = self.batch.pop()
        job.losses += 1
        job.todo, job.done, job.held = job.prompt + job.made, 0, 0
        self.queue.insert(sum(other.rank < job.rank for other in self.queue), job)

    def emit(self, job: Job) -> None:
        if self.cancels.get(job.row, math.inf) <= self.now:
            return
        job.made += 1
        if job.made == 1:
            job.first = self.now
        if job.made == job.answer:
            job.last = self.now
            self.batch.remove(job)
            self.think(job, self.now)

    def duration(self, decodes: list[Job], chunks: list[tuple[Job, int]]) -> float:
        a, d, g, b, q, e, m, s, r, x, y, *_ = self.times
        n, prompts, tokens = len(decodes), len(chunks), sum(size for _, size in chunks)
        context = sum(job.held + 1 for job in decodes)
        time = a + math.hypot(m, d * (n + tokens)) - m + b * (n + prompts) + g * context
        if tokens:
            time += r * prompts + e + q * sum(size * (job.done + size / 2) for job, size in chunks)
        if n + prompts > 1:
            time += s
        time += x * (1 - (1 - y) ** (n + tokens))
        return time
