"""Emulated prefill and decode replicas: handovers, memory, metrics, scaling, and the load client."""

import asyncio
import json
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Json
from commands import Run
from emulated import emulated
from patience import until
from prometheus_client.parser import text_string_to_metric_families
from slow_cases import seeds

from optimizer import load_system, solve
from optimizer.plan import Plan
from optimizer.render.manifests import variants
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.live.prefills import LivePrefills
from optimizer.simulation.machine.prefills import run_prefills
from optimizer.spec.system import System
from rest_server.emulator.backend import Backend
from rest_server.emulator.driver import MeasuredLoad, ServerLoad
from rest_server.emulator.elastic import ElasticFleet
from rest_server.emulator.engine import LAG_S
from rest_server.emulator.fleet import backends, placements
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.router import Router
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import PATH_HEADER, read_notes

SPEED = 20.0
TIMES = IterationCoefficients(
    base_ms=7.0, compute_per_token_ms=0.02, kv_read_per_token_ms=0.0, prompt_attention_ms=1e-6
)


def short_prompts(first_token: str, handover_ms: float = 20) -> Json:
    """Return a server with prompts of 400 and answers of 20 tokens."""
    law = {"alpha": 6.83, "beta": 0.0224, "gamma": 4.36e-5, "perSequence": 0.0189, "weightRead": 4.3}
    model = {"name": "m", "acc": "H100", "maxBatchSize": 64, "kvCapacity": 450_000, "perfParms": law}
    load = {"arrivalRate": "12/s", "avgInTokens": 400, "avgOutTokens": 20}
    server = {"name": "s", "class": "c", "model": "m", "currentAlloc": {"load": load}}
    return {
        "accelerators": [{"name": "H100", "type": "H100", "cost": 300}],
        "count": [{"type": "H100", "count": 10}],
        "models": [model | {"kvBytesPerToken": 131_072}],
        "serviceClasses": [{"name": "c", "modelTargets": [{"model": "m", "slo-itl": 12, "slo-ttft": 2000}]}],
        "servers": [server | {"disaggregation": "required", "firstToken": first_token}],
        "optimizer": {"handover": {"fixedMs": handover_ms}},
    }


@cache
def planned(first_token: str, handover_ms: float = 20) -> tuple[System, Plan]:
    system = load_system(short_prompts(first_token, handover_ms))
    return system, solve(system)


class Fleet:
    """The router and the replicas of a plan, without HTTP."""

    def __init__(self, system: System, plan: Plan) -> None:
        settings, lag = FleetSettings(speed=SPEED), Histogram(LAG_S)
        self.replicas = backends(plan.planned_in(system), placements(system, plan), settings, lag, str)
        self.router = Router(system, plan, self.replicas, settings, lag)

    def of_role(self, role: str) -> list[Backend]:
        return [one for one in self.replicas if one.app.role == role]

    async def ask(self, tokens: int = 5, prompt: int = 100, **more: Any) -> tuple[int, dict[str, str], Json]:
        """Return the status, the notes and the answer of a request."""
        body = {"model": "m", "prompt": [7] * prompt, "max_tokens": tokens, "ignore_eos": True, **more}
        content, sent, gone = json.dumps(body).encode(), list[MutableMapping[str, Any]](), asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not content_sent:
                content_sent.append(True)
                return {"type": "http.request", "body": content}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        content_sent: list[bool] = []
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        await self.router(scope, receive, send)
        start, *parts = sent
        notes = read_notes(dict(start["headers"]).get(PATH_HEADER, b"").decode())
        return start["status"], notes, json.loads(b"".join(part["body"] for part in parts))


def samples(replica: Backend) -> dict[str, float]:
    families = text_string_to_metric_families(replica.app.metrics_text().decode())
    return {sample.name: sample.value for one in families for sample in one.samples}


@pytest.mark.parametrize("first_token", ["decode", "prefill"])
def test_a_request_passes_both_pools(first_token: str) -> None:
    """The decode replica makes all tokens, and both show the metrics of vLLM and its NIXL connector."""
    fleet = Fleet(*planned(first_token))
    (first, *_), (second, *_) = fleet.of_role("prefill"), fleet.of_role("decode")
    status, notes, answer = asyncio.run(fleet.ask(5, 100))
    assert (status, answer["usage"]["completion_tokens"]) == (200, 5)
    assert (notes["server"], notes["prefill"], notes["replica"]) == ("s", first.id, second.id)
    bytes_ms = 100 * 131_072 / 50e6  # 50 GB/s
    assert float(notes["handover_ms"]) == pytest.approx(20 + bytes_ms, abs=0.001)
    assert float(notes["prefill_ms"]) > 6.83
    prefill, decode = samples(first), samples(second)
    assert (prefill["vllm:generation_tokens_total"], decode["vllm:generation_tokens_total"]) == (1, 5)
    assert decode["vllm:nixl_bytes_transferred_sum"] == 100 * 131_072
    assert decode["vllm:nixl_xfer_time_seconds_sum"] == pytest.approx(bytes_ms / 1000)
    assert decode["vllm:external_prefix_cache_hits_total"] == 100
    assert decode["vllm:time_to_first_token_seconds_sum"] > 0.020
    assert (prefill["vllm:kv_cache_usage_perc"], decode["vllm:kv_cache_usage_perc"]) == (0, 0)


def test_prefill_replicas_hold_caches_until_the_first_step() -> None:
    fleet = Fleet(*planned("decode"))
    ((first, *_),) = (fleet.of_role("prefill"),)

    async def play() -> tuple[float, float]:
        asking = asyncio.create_task(fleet.ask(400, 1000))
        used = [0.0]
        while not asking.done() and used[-1] == max(used):
            used.append(samples(first)["vllm:kv_cache_usage_perc"])
            await asyncio.sleep(0.001)
        running = not asking.done()
        asking.cancel()
        return max(used), running

    assert asyncio.run(play()) == (1000 / 450_000, True)  # freed while the decode goes on


def test_a_prefill_replica_that_fails_loses_its_cache() -> None:
    fleet = Fleet(*planned("decode", 1000))
    (first, *_) = fleet.of_role("prefill")

    async def play() -> tuple[int, dict[str, str], Json]:
        asking = asyncio.create_task(fleet.ask(5, 100))
        while not samples(first)["vllm:generation_tokens_total"]:  # noqa: ASYNC110  nothing else tells it
            await asyncio.sleep(0.0005)
        first.app.life.change({"state": "dead"})
        return await asking

    status, _, answer = asyncio.run(play())
    assert (status, "none took the request" in answer["error"]["message"]) == (503, True)
    assert samples(fleet.of_role("decode")[0])["vllm:nixl_num_failed_transfers_total"] == 1


def test_errors_of_the_prefill_replica_reach_the_client() -> None:
    fleet = Fleet(*planned("decode"))
    status, notes, answer = asyncio.run(fleet.ask(10**6))
    assert (status, "maximum context length" in answer["error"]["message"]) == (400, True)
    assert "prefill" not in notes
    fleet.of_role("prefill")[0].app.life.change({"state": "out-of-memory"})
    assert asyncio.run(fleet.ask())[0] == 503


def test_workloads_are_those_of_the_manifests() -> None:
    """Both Deployments are named and scaled as the manifests say; pods have llm-d's label of the role."""
    system, plan = planned("decode")
    workloads = ElasticFleet(system, plan, FleetSettings()).workloads
    written = {one.name: one.replicas for one in variants(plan, system)}
    assert {name: one.replicas for name, one in workloads.items()} == {
        name: replicas for name, replicas in written.items() if replicas
    }
    labels = [one.document([])["spec"]["template"]["metadata"]["labels"] for one in workloads.values()]
    assert [label["llm-d.ai/role"] for label in labels] == ["decode", "prefill"]


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_a_live_prefill_replica_equals_the_whole_run(seed: int) -> None:
    """Prompts end at the same times, also when KV caches are freed late and memory is small."""
    rng = np.random.default_rng(seed)
    count, budget, memory = 60, int(rng.integers(50, 900)), int(rng.choice([800, 3000, 10**9]))
    arrival_ms = np.cumsum(rng.exponential(15.0, count))
    computed, cached = rng.integers(1, 700, count), rng.integers(0, 2, count) * rng.integers(0, 300, count)
    free_ms = arrival_ms + rng.exponential(60.0, count)
    end_ms, held = np.empty(count), (np.empty(count + 1), np.empty(count + 1))
    assert run_prefills(TIMES, budget, memory, (arrival_ms, computed, cached, free_ms), held, end_ms)
    live, row_of, found = LivePrefills(TIMES, budget, memory), dict[int, int](), np.zeros(count)
    events = [(float(at), k, True) for k, at in enumerate(arrival_ms)]
    while events or live.next_ms() < np.inf:
        events.sort()
        if events and events[0][0] < live.next_ms():
            at_ms, k, arrives = events.pop(0)
            if arrives:
                row_of[live.add(at_ms, int(computed[k] + cached[k]), cached_tokens=int(cached[k]))] = k
            else:
                live.free(int(computed[k] + cached[k]), at_ms)
            continue
        step = live.step()
        for row in step.ended:
            k = row_of.pop(row)
            found[k] = step.time_ms
            if free_ms[k] > step.time_ms:
                events.append((float(free_ms[k]), k, False))
            else:
                live.free(int(computed[k] + cached[k]), step.time_ms)
    assert (live.waiting, live.running, live.kv_tokens) == (0, 0, 0)
    np.testing.assert_allclose(found, end_ms, rtol=1e-12)


def test_a_prompt_that_is_cancelled_frees_its_memory() -> None:
    live = LivePrefills(TIMES, 100, 1000)
    long, short, last = (live.add(0.0, tokens) for tokens in (900, 90, 50))
    assert (live.next_ms() > 0, live.running, live.waiting, live.kv_tokens) == (True, 1, 2, 900)
    live.cancel(short, 1.0)
    live.cancel(long, 1.0)  # at the end of the iteration
    assert (live.step().ended, live.kv_tokens) == ([], 0)
    assert (live.next_ms() < np.inf, live.step().ended) == (True, [last])


def test_decode_latencies_need_notes_on_the_handover() -> None:
    times_ms = np.arange(12.0)
    load = ServerLoad("s", "m", streams=True, rate_rps=1.0, requests=None)  # type: ignore[arg-type]
    without = MeasuredLoad(load, times_ms, times_ms, times_ms, times_ms, ({},) * 12)
    assert np.isnan(without.handed_over_ms).all()
    noted = ({"prefill_ms": "30", "handover_ms": "4.5"},) * 12
    after = MeasuredLoad(load, times_ms, times_ms, times_ms, times_ms, noted).handed_over_ms
    np.testing.assert_allclose(after, times_ms + 34.5)


@pytest.mark.slow
@pytest.mark.parametrize("first_token", ["decode", "prefill"])
def test_measured_latencies_are_near_the_simulated(first_token: str, tmp_path: Path, run: Run) -> None:
    """Means of 600 requests: ITLs of the engines within 2 %, TTFTs within 10 ms and 10 %.

    HTTP and a busy machine delay what the client sees, so more is allowed there.
    """
    path = tmp_path / "pools.json"
    path.write_text(json.dumps(short_prompts(first_token)))
    with emulated(path, "--route", "random") as fleet:
        driven = run("drive", path, fleet.url, "--requests", "600", "--json")
        shown = [fleet.ask("/metrics", url=one["url"]).text for one in fleet.replicas]
    assert driven.status == 0, driven.err
    decode, prefill = driven.json["pools"]
    second, first = run("simulate", path, "--requests", "20000", "--json").json["pools"]
    assert [row["requests"] for row in driven.json["answers"]] == [600, 600]
    assert driven.json["offeredRps"] == pytest.approx(12, rel=0.15)
    itl_ms, ttft_ms = second["itlMs"]["mean"]["value"], first["ttftMs"]["mean"]["value"]
    own_ms = mean_ms(shown[0], "request_time_per_output_token_seconds")
    parts_ms = [mean_ms(text, "time_to_first_token_seconds") for text in shown]
    assert own_ms == pytest.approx(itl_ms, rel=0.02)
    assert sum(parts_ms) == pytest.approx(ttft_ms, rel=0.1, abs=10)
    assert decode["itlMs"]["mean"]["value"] == pytest.approx(itl_ms, rel=0.1)
    assert prefill["ttftMs"]["mean"]["value"] == pytest.approx(ttft_ms, rel=0.1, abs=25)


def mean_ms(text: str, name: str) -> float:
    """Return the mean of a histogram of a replica [ms]."""
    sums = {
        sample.name: sample.value for one in text_string_to_metric_families(text) for sample in one.samples
    }
    return 1000 * sums[f"vllm:{name}_sum"] / sums[f"vllm:{name}_count"]


@pytest.mark.slow
def test_both_pools_are_scaled_through_kubernetes(tmp_path: Path) -> None:
    """A second prefill replica starts, and gets requests; the decode pool keeps its size."""
    path = tmp_path / "pools.json"
    path.write_text(json.dumps(short_prompts("decode")))
    with emulated(path, "--scalable", "--startup", "0.1", "--route", "round-robin") as fleet:
        scale = "/apis/apps/v1/namespaces/serving/deployments/s-prefill-h100/scale"
        wanted = fleet.ask(scale).json | {"spec": {"replicas": 2}}
        assert fleet.ask(scale, wanted, method="PUT").status == 200
        until(lambda: len(fleet.ask("/emulator/replicas").json["replicas"]) == 3)
        for _ in range(4):
            asked = {"model": "m", "prompt": "a b c", "max_tokens": 2, "ignore_eos": True}
            assert fleet.ask("/v1/completions", asked).status == 200
        shown = fleet.ask("/emulator/replicas").json["replicas"]
        counts = {}
        for one in shown:
            text = fleet.ask("/metrics", url=one["url"]).text
            families = text_string_to_metric_families(text)
            counts[one["id"]] = sum(
                sample.value for found in families for sample in found.samples
                if sample.name == "vllm:request_success_total"
            )  # fmt: skip
    assert counts == {"s-decode-h100-0": 4, "s-prefill-h100-0": 2, "s-prefill-h100-1": 2}
