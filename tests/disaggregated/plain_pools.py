"""A second engine for prefill and decode pools: one event at a time, one object for each request."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.pools import BYTES_PER_MS, PooledReplicas


@dataclass(eq=False)
class Job:
    """One request."""

    arrival_ms: float
    computed: int
    cached: int
    answer: int
    routes: tuple[int, int]
    begun: int = 0
    made: int = 0
    prefilled_ms: float = 0.0
    received_ms: float = 0.0
    first_ms: float = 0.0
    last_ms: float = 0.0


@dataclass(eq=False)
class Station:
    """A prefill or decode replica."""

    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    holding: list[Job] = field(default_factory=list)
    busy: bool = False
    link_free_ms: float = 0.0


def iteration_ms(
    law: IterationCoefficients, decodes: int, context: int, prompts: int, tokens: int, pairs: float
) -> float:
    """Return the time of an iteration as in eq. 63, without experts."""
    work = law.compute_per_token_ms * (decodes + tokens)
    time = law.base_ms + (law.weight_read_ms**2 + work**2) ** 0.5 - law.weight_read_ms
    time += law.per_sequence_ms * (decodes + prompts) + law.kv_read_per_token_ms * context
    if tokens:
        time += law.prompt_attention_ms * pairs + law.prompt_base_ms + law.per_prompt_ms * prompts
    return float(time + (law.batch_base_ms if decodes + prompts > 1 else 0.0))


class Pools:
    """Both pools, with a clock that jumps from event to event."""

    def __init__(self, both: PooledReplicas) -> None:
        self.both = both
        self.prefill = [Station() for _ in range(both.prefill_replicas)]
        self.decode = [Station() for _ in range(both.decode_replicas)]
        self.events: list[tuple[float, int, str, object]] = []
        self.count = 0

    def at(self, time_ms: float, what: str, about: object) -> None:
        self.count += 1
        heapq.heappush(self.events, (time_ms, self.count, what, about))

    def run(self, jobs: Sequence[Job]) -> None:
        """Run all requests to their end."""
        for job in jobs:
            self.at(job.arrival_ms, "arrives", job)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, _, what, about = heapq.heappop(self.events)
                getattr(self, what)(now, about)
            for station in self.prefill:
                if not station.busy:
                    self.start_prefill(now, station)
            for station in self.decode:
                if not station.busy:
                    self.start_decode(now, station)

    def arrives(self, _: float, job: Job) -> None:
        self.prefill[job.routes[0]].waiting.append(job)

    def start_prefill(self, now: float, station: Station) -> None:
        left, pairs, prompts = self.both.budget, 0.0, 0
        for job in station.running:
            chunk = min(job.computed - job.begun, left)
            pairs += chunk * (job.cached + job.begun + chunk / 2)
            job.begun, left, prompts = job.begun + chunk, left - chunk, prompts + 1
        while station.waiting and left > 0:
            job = station.waiting[0]
            held = sum(one.computed + one.cached for one in (*station.running, *station.holding))
            if held and held + job.computed + job.cached > self.both.prefill_kv_tokens:
                break
            station.running.append(station.waiting.pop(0))
            chunk = min(job.computed, left)
            pairs += chunk * (job.cached + chunk / 2)
            job.begun, left, prompts = chunk, left - chunk, prompts + 1
        if prompts:
            station.busy = True
            spent = iteration_ms(self.both.times, 0, 0, prompts, self.both.budget - left, pairs)
            self.at(now + spent, "ends_prefill", station)

    def alone_ms(self, job: Job) -> float:
        time, begun = 0.0, 0
        while begun < job.computed:
            chunk = min(job.computed - begun, self.both.budget)
            time += iteration_ms(self.both.times, 0, 0, 1, chunk, chunk * (job.cached + begun + chunk / 2))
            begun += chunk
        return time

    def ends_prefill(self, now: float, station: Station) -> None:
        station.busy = False
        for job in [one for one in station.running if one.begun == one.computed]:
            station.running.remove(job)
            station.holding.append(job)
            job.prefilled_ms = now
            transfer = self.both.transfer
            whole = (job.computed + job.cached) * transfer.kv_bytes / (transfer.bandwidth * BYTES_PER_MS)
            rest = max(whole / transfer.layers, whole - (1 - 1 / transfer.layers) * self.alone_ms(job))
            station.link_free_ms = max(station.link_free_ms, now) + rest
            self.at(station.link_free_ms + transfer.fixed_ms, "receives", job)

    def receives(self, now: float, job: Job) -> None:
        job.received_ms = now
        if self.both.seeded:
            job.first_ms = now
            job.made = 1
        if self.both.seeded and job.answer == 1:
            job.last_ms = now
            self.prefill[job.routes[0]].holding.remove(job)
        else:
            self.decode[job.routes[1]].waiting.append(job)

    def start_decode(self, now: float, station: Station) -> None:
        old, law = list(station.running), self.both.decode_times
        while station.waiting and len(station.running) < self.both.limits.max_batch:
            station.running.append(station.waiting.pop(0))
        new = station.running[len(old) :]
        if station.running:
            station.busy = True
            context = sum(job.computed + job.cached + job.made for job in old)
            pairs = sum(job.computed + job.cached + job.made - 0.5 for job in new)
            spent = iteration_ms(law, len(old), context, len(new), len(new), pairs)
            self.at(now + spent, "ends_decode", (station, new))

    def ends_decode(self, now: float, about: tuple[Station, list[Job]]) -> None:
        station, new = about
        station.busy = False
        for job in new:
            self.prefill[job.routes[0]].holding.remove(job)
        for job in list(station.running):
            job.made += 1
            if job.made == 1:
                job.first_ms = now
            if job.made == job.answer:
                job.last_ms = now
                station.running.remove(job)
