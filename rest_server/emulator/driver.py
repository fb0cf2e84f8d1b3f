"""Load client: sends the requests of a plan's servers to an address, and measures their latencies."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, frozen
from optimizer.errors import SpecError
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.requests import Requests
from rest_server.emulator.asgi import encoded
from rest_server.emulator.router import CONTROL, ERROR, SERVER_HEADER
from rest_server.emulator.settings import allow_files
from rest_server.emulator.steps.forwarded import PATH_HEADER, read_notes
from rest_server.emulator.steps.role_step import PARTS_OF_PREFILL
from rest_server.emulator.steps.route_step import KIND_HEADER
from rest_server.http_client import http_module, transport_reason

TIMEOUT_S = 30.0
"""Maximum time to wait for the list of replicas [s]."""
OK = b" 200 "
NO_CHOICE = b'"choices":[]'
FILLER_ID, FIRST_PREFIX_ID = 1, 2
"""Token ids at the end of all prompts, and in the shared prefix of the first request shape."""
OWN_IDS = 100, 30_000
"""Range of the token ids that distinguish a prompt from all others; every vocabulary has them."""
OWN_TOKENS = 2
"""Number of tokens that distinguish a prompt."""


@dataclass(frozen=True, slots=True)
class AnsweringServer:
    """A planned server that serves some of the requests to a name."""

    model: str
    share: float
    """Mean number of requests to its replicas for each request that is sent."""
    scale: float
    """Load of one of its replicas, divided by the load in the plan."""
    replicas: int
    noted: str
    """Name in the notes on its requests: the server itself, or that to which its pool belongs."""


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Requests to one name: a server of the document, or a route."""

    server: str
    model: str
    streams: bool
    """Whether responses are streams of tokens; otherwise they come from a batch server."""
    rate_rps: float
    """Mean arrival rate [requests/s]; inf for users who wait for each response."""
    requests: Requests
    """Requests with arrival times, or requests of users without thinking time."""
    arrival_cv: float = 1.0
    """Coefficient of variation of the interarrival times at a constant rate; inf if the rate changes."""
    parts: Mapping[str, AnsweringServer] = field(default_factory=dict)
    """Planned servers that serve the requests, by name."""
    kinds: tuple[str, ...] = ()
    """Kind of each request of a route; empty for a server."""

    @property
    def users(self) -> int | None:
        """Number of users who send one request after the other; None if requests have arrival times."""
        wakes_ms = self.requests.wakes_ms
        return None if wakes_ms is None else len(wakes_ms)


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """Measured times of R requests to a name [ms], each of shape (R,); NaN if an event did not happen."""

    load: ServerLoad
    sent_ms: FloatArray
    first_ms: FloatArray
    last_ms: FloatArray
    tokens: FloatArray
    """Number of tokens received for each request."""
    notes: tuple[Mapping[str, str], ...] = ()
    """The router's notes on each request; empty if it reports none."""

    @property
    def late_ms(self) -> FloatArray:
        """Delay by which the client sent each request too late [ms]; 0 for users."""
        arrival_ms = self.load.requests.arrival_ms
        return np.zeros(len(self.sent_ms)) if arrival_ms is None else self.sent_ms - arrival_ms

    def noted(self, name: str, *values: str) -> BoolArray:
        """Return a mask of the requests whose note of a name has one of the given values, shape (R,)."""
        return np.array([note.get(name, "") in values for note in self.notes], np.bool_)

    def names_of(self, server: str) -> tuple[str, ...]:
        """Return the names that the notes on requests to a server can have; addresses can give no notes."""
        noted = {part.noted for part in self.load.parts.values()}
        own = self.load.parts[server].noted
        return (own, "") if len(noted) == 1 else (own,)

    def rows(self, mask: BoolArray) -> "MeasuredLoad":
        """Return only the requests in a mask."""
        rows = np.flatnonzero(mask)
        load = replace(self.load, requests=self.load.requests.take(rows))
        return MeasuredLoad(
            load, self.sent_ms[rows], self.first_ms[rows], self.last_ms[rows], self.tokens[rows],
            tuple(self.notes[k] for k in rows.tolist()),
        )  # fmt: skip

    def at(self, server: str) -> "MeasuredLoad":
        """Return only the requests that reached replicas of one of the servers, and no others before."""
        part = self.load.parts[server]
        mask = self.noted("server", *self.names_of(server))
        mask &= ~self.noted("cache", "hit") & ~self.noted("to", "both")
        rate_rps = self.load.rate_rps if mask.all() else self.load.rate_rps * part.share
        parts = {server: part}
        load = replace(self.load, server=server, model=part.model, rate_rps=rate_rps, parts=parts, kinds=())
        return replace(self, load=load).rows(mask)

    @property
    def handed_over_ms(self) -> FloatArray:
        """Time at which a decode replica has the KV cache of each request [ms], shape (R,), or NaN."""
        parts = np.array([[float(note.get(name, "nan")) for name in PARTS_OF_PREFILL] for note in self.notes])
        return np.asarray(self.sent_ms + parts.sum(axis=1))

    @property
    def run(self) -> SimulatedRun:
        """The requests as results of a simulated run, in which the client sees tokens without delay."""
        none = frozen(np.zeros(len(self.sent_ms)))
        tokens = np.where(np.isnan(self.tokens), self.load.requests.out_tokens, self.tokens)
        return SimulatedRun(
            replace(self.load.requests, out_tokens=tokens.astype(np.int64)), frozen(self.sent_ms),
            frozen(self.first_ms), frozen(self.last_ms), none, none.astype(np.int64), np.nan, np.nan, 0,
        )  # fmt: skip

    @property
    def latencies_ms(self) -> dict[str, FloatArray]:
        """Latencies of each request by metric [ms]; NaN for requests without a complete response."""
        latency_ms = self.last_ms - self.sent_ms
        if not self.load.streams:
            return {"latency": latency_ms}
        gaps = np.where(self.tokens > 1, self.tokens - 1, np.nan)
        first_ms = np.where(np.isnan(latency_ms), np.nan, self.first_ms - self.sent_ms)
        return {"ttft": first_ms, "itl": (self.last_ms - self.first_ms) / gaps, "e2e": latency_ms}

    @property
    def loss(self) -> float:
        """Fraction of requests without a complete response."""
        return float(np.isnan(self.last_ms).mean())


@dataclass(frozen=True, slots=True)
class DrivenFleet:
    """Information that an address provides about its fleet."""

    replicas: Mapping[tuple[str, str], int] | None = None
    """Number of running replicas by server and accelerator; None if not reported."""
    accelerators: Mapping[str, str] = field(default_factory=dict)
    """Accelerator of each running replica, by the name of the replica."""
    speed: float = 1.0
    """Factor by which model time passes faster than real time."""

    def ids_of(self, accelerator: str) -> list[str]:
        """Return the names of the replicas on an accelerator."""
        return [name for name, each in self.accelerators.items() if each == accelerator]


def fleet_at(url: str) -> DrivenFleet:
    """Return the running replicas and the speed of an emulator; for other addresses both are unknown.

    Raises:
        SpecError: nothing responds at the address.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise SpecError(f"URL: {url!r} must look like 'http://127.0.0.1:8100'")
    http = http_module("emulator")
    try:
        answer = http.get(url.rstrip("/") + CONTROL, timeout=TIMEOUT_S)
        if answer.is_error:
            return DrivenFleet()
        loads = answer.json()
    except (http.HTTPError, ValueError) as error:
        raise SpecError(
            f"URL: {url}: no fleet answers: {transport_reason(error)}; start it with 'inferplan emulate'"
        ) from None
    counts = Counter((server, one["accelerator"]) for one in loads["replicas"] for server in one["servers"])
    return DrivenFleet(counts, {one["id"]: one["accelerator"] for one in loads["replicas"]}, loads["speed"])


@dataclass(frozen=True, slots=True)
class _Clock:
    """Clock of a run in model time, which starts at 0."""

    begin_s: float
    speed: float

    def now_ms(self) -> float:
        """Return the current model time [ms]."""
        return (time.monotonic() - self.begin_s) * 1000 * self.speed

    async def wait(self, due_ms: float) -> None:
        """Wait until a model time [ms]."""
        wait_ms = due_ms - self.now_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / (1000 * self.speed))


def drive(url: str, loads: Sequence[ServerLoad], speed: float = 1.0) -> list[MeasuredLoad]:
    """Send all requests at their times, and wait for all responses.

    Args:
        url: address of the fleet.
        loads: the requests to each name.
        speed: factor by which model time passes faster than real time; all times are model times.
    """
    allow_files(sum(len(load.requests) for load in loads))

    async def run() -> list[MeasuredLoad]:
        clock = _Clock(time.monotonic(), speed)
        return list(await asyncio.gather(*(_drive_server(url, load, clock) for load in loads)))

    return asyncio.run(run())


async def _drive_server(url: str, load: ServerLoad, clock: _Clock) -> MeasuredLoad:
    count = len(load.requests)
    contents = contents_of(load)
    times = sent_ms, first_ms, last_ms, tokens = np.full((4, count), np.nan)
    notes: list[Mapping[str, str]] = [{}] * count
    rows = iter(range(count))

    async def send(row: int) -> None:
        notes[row] = await _ask(url, load, contents[row], clock, times, row)

    async def use() -> None:
        for row in rows:
            await send(row)

    if load.requests.arrival_ms is None:
        sending = [asyncio.create_task(use()) for _ in range(load.users or 0)]
    else:
        sending = []
        for row, due_ms in enumerate(load.requests.arrival_ms.tolist()):
            await clock.wait(due_ms)
            sending.append(asyncio.create_task(send(row)))
    await asyncio.gather(*sending)
    return MeasuredLoad(load, sent_ms, first_ms, last_ms, tokens, tuple(notes))


def contents_of(load: ServerLoad) -> list[bytes]:
    """Return the body of each request.

    Prompts are token ids. Requests that find a prefix in the cache begin with the tokens of their shape. All
    continue with tokens of their own, also in the next run, because engines cache every prompt.
    """
    requests = load.requests
    if not load.streams:
        return [b"{}"] * len(requests)
    none = np.zeros(len(requests), np.int64)
    cached = none if requests.cached_tokens is None else requests.cached_tokens
    shapes = none if requests.shape is None else requests.shape
    own = np.random.default_rng().integers(*OWN_IDS, (len(requests), OWN_TOKENS))
    contents = []
    for k, (prompt, output) in enumerate(zip(requests.in_tokens, requests.out_tokens, strict=True)):
        shared = min(int(cached[k]), int(prompt) - 1)
        tokens = [FIRST_PREFIX_ID + int(shapes[k])] * shared + own[k].tolist()
        tokens += [FILLER_ID] * (int(prompt) - len(tokens))
        body: dict[str, Any] = {"model": load.model, "prompt": tokens[: max(int(prompt), 1)]}
        more = {"max_tokens": int(output), "ignore_eos": True, "stream": True}
        contents.append(encoded(body | more))
    return contents


def _head(host: str, load: ServerLoad, row: int, size: int) -> bytes:
    """Return the head of an HTTP request: its first line and headers."""
    path = "/v1/completions" if load.streams else "/predict"
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    head += f"Content-Length: {size}\r\nContent-Type: application/json\r\n"
    head += f"{SERVER_HEADER.decode()}: {quote(load.server)}\r\n"
    if load.kinds:
        head += f"{KIND_HEADER.decode()}: {quote(load.kinds[row])}\r\n"
    return f"{head}\r\n".encode()


async def _ask(
    url: str, load: ServerLoad, content: bytes, clock: _Clock, times: FloatArray, row: int
) -> Mapping[str, str]:
    """Send a request on its own connection, record its times, and return the router's notes on it."""
    sent_ms, first_ms, last_ms, tokens = times
    parts = urlsplit(url)
    sent_ms[row] = clock.now_ms()
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except OSError:
        return {}
    writer.write(_head(parts.netloc, load, row, len(content)) + content)
    made, failed, at_ms, notes = 0, False, np.nan, dict[str, str]()
    try:
        failed = OK not in await reader.readline()
        while line := await reader.readline():
            if line.startswith(ERROR):
                failed = True
            elif line.startswith(PATH_HEADER):
                notes = read_notes(line.partition(b":")[2].decode("latin-1"))
            elif line.startswith(b"data: {") and NO_CHOICE not in line:
                at_ms = clock.now_ms()
                made += 1
                if made == 1:
                    first_ms[row] = at_ms
        if not load.streams:
            made, at_ms = 1, clock.now_ms()
            first_ms[row] = at_ms
    except (OSError, ValueError):
        failed = True
    finally:
        writer.close()
    if made and not failed:
        last_ms[row], tokens[row] = at_ms, made
    return notes


def report_of(measured_load: MeasuredLoad) -> dict[str, Any]:
    """Return the measurements of a token server in the format of `vllm bench serve`, which `fit` reads."""
    complete, load = ~np.isnan(measured_load.last_ms), measured_load.load
    requests, latencies = load.requests, measured_load.latencies_ms
    span_s = float(np.nanmax(measured_load.last_ms) - np.nanmin(measured_load.sent_ms)) / 1000
    is_ramp = np.isinf(load.arrival_cv)
    return {
        "model_id": load.model,
        "num_prompts": len(requests),
        "completed": int(complete.sum()),
        "request_rate": load.rate_rps if load.users is None else "inf",
        "burstiness": 1.0 if load.users is not None or is_ramp else load.arrival_cv**-2,
        "ramp_up_strategy": "linear" if is_ramp else None,
        "max_concurrency": load.users,
        "data_parallel_size": sum(part.replicas for part in load.parts.values()) or 1,
        "duration": span_s,
        "request_throughput": float(complete.sum()) / span_s,
        "total_input_tokens": int(requests.in_tokens[complete].sum()),
        "total_output_tokens": int(requests.out_tokens[complete].sum()),
        "input_lens": requests.in_tokens[complete].tolist(),
        "output_lens": requests.out_tokens[complete].tolist(),
        **{
            f"{statistic}_{metric}_ms": value
            for metric in ("ttft", "itl")
            for statistic, value in (
                ("mean", float(np.nanmean(latencies[metric]))),
                ("median", float(np.nanmedian(latencies[metric]))),
            )
        },
    }
