"""Emulated replicas and their router over HTTP: what clients of vLLM and of batch servers meet."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from commands import Run
from emulated import FLEET, Emulator, emulated
from patience import until
from prometheus_client.parser import text_string_to_metric_families

STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def asked(tokens: int, **more: object) -> dict[str, object]:
    return {"model": "chat", "prompt": "one two three", "max_tokens": tokens, "ignore_eos": True, **more}


def samples(fleet: Emulator, url: str) -> dict[str, float]:
    """Return the samples of a replica, summed over labels except for the reason and the bucket."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(fleet.ask("/metrics", url=url).text):
        for sample in family.samples:
            name = sample.name + sample.labels.get("finished_reason", "") + sample.labels.get("le", "")
            found[name] = found.get(name, 0.0) + sample.value
    return found


def is_loaded(fleet: Emulator, url: str, running: int, waiting: int) -> bool:
    found = samples(fleet, url)
    return (found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]) == (running, waiting)


def test_replicas_are_those_of_the_plan(fleet: Emulator) -> None:
    assert [one["server"] for one in fleet.replicas] == ["eyes", "talk", "talk"]
    assert {one["accelerator"] for one in fleet.replicas} == {"GPU"}
    listed = fleet.ask("/emulator/replicas").json["replicas"]
    assert [one["url"] for one in listed] == [one["url"] for one in fleet.replicas]


@pytest.mark.parametrize("at_router", [True, False])
def test_completion_has_the_asked_tokens(fleet: Emulator, at_router: bool) -> None:  # noqa: FBT001
    url = fleet.url if at_router else fleet.replicas_of("talk")[0]["url"]
    answer = fleet.ask("/v1/completions", asked(5), url).json
    (choice,) = answer["choices"]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    assert (len(choice["text"].split()), choice["finish_reason"]) == (5, "length")
    ids = fleet.ask("/v1/completions", asked(1, prompt=[5, 6, 7, 8]), url).json
    assert ids["usage"]["prompt_tokens"] == 4


def test_stream_has_an_event_for_each_token(fleet: Emulator) -> None:
    *tokens, usage = fleet.ask("/v1/completions", asked(4, **STREAM)).events
    assert [len(event["choices"][0]["text"].split()) for event in tokens] == [1] * 4
    assert [event["choices"][0]["finish_reason"] for event in tokens] == [None] * 3 + ["length"]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 4)


def test_chat_counts_parts_and_streams_deltas(fleet: Emulator) -> None:
    parts = [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]
    chat = {"model": "talk", "messages": [{"role": "user", "content": parts}], "max_completion_tokens": 3}
    answer = fleet.ask("/v1/chat/completions", chat).json
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["choices"][0]["message"]["role"] == "assistant"
    *tokens, last = fleet.ask("/v1/chat/completions", chat | STREAM | {"ignore_eos": True}).events
    assert [len(event["choices"][0]["delta"]["content"].split()) for event in tokens] == [1, 1, 1]
    assert last["usage"]["completion_tokens"] == 3


def test_stop_string_and_natural_end_stop_early(fleet: Emulator) -> None:
    answer = fleet.ask("/v1/completions", asked(200, stop=["a"])).json
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert "a" not in choice["text"]
    assert answer["usage"]["completion_tokens"] < 200
    natural = fleet.ask("/v1/completions", asked(3000, ignore_eos=False)).json
    assert natural["usage"]["completion_tokens"] <= 16 * 20
    assert natural["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"model": "other", "prompt": "x"}, 404, "other"),
        (asked(3999), 400, "maximum context length is 4000"),
        (asked(-1), 400, "max_tokens"),
        (asked(1, n=2), 400, "n: 2"),
        (asked(1, prompt=[]), 400, "prompt"),
        ({"model": "chat", "messages": 5}, 400, "prompt"),
    ],
)
def test_wrong_requests_are_named(fleet: Emulator, body: dict[str, object], status: int, text: str) -> None:
    answer = fleet.ask("/v1/completions", body)
    assert answer.status == status
    assert text in answer.json["error"]["message"]


def test_other_routes_answer_like_vllm(fleet: Emulator) -> None:
    url = fleet.replicas_of("talk")[0]["url"]
    assert [fleet.ask(path, url=url).status for path in ("/health", "/version", "/none")] == [200, 200, 404]
    assert {one["id"] for one in fleet.ask("/v1/models", url=url).json["data"]} == {"chat", "talk"}
    assert fleet.ask("/v1/models", url=url).json["data"][0]["max_model_len"] == 4000
    assert fleet.ask("/tokenize", {"prompt": "a b c d"}, url).json["count"] == 4


def test_metrics_are_those_of_the_requests(fleet: Emulator) -> None:
    url = fleet.replicas_of("talk")[0]["url"]
    before = samples(fleet, url)
    for tokens in (1, 6):
        fleet.ask("/v1/completions", asked(tokens), url)
    after = samples(fleet, url)
    more = {name: after[name] - before[name] for name in after}
    counts = {
        "vllm:prompt_tokens_total": 6,
        "vllm:generation_tokens_total": 7,
        "vllm:request_success_totallength": 2,
        "vllm:time_to_first_token_seconds_count": 2,
        "vllm:inter_token_latency_seconds_count": 5,
        "vllm:request_time_per_output_token_seconds_count": 1,
        "vllm:e2e_request_latency_seconds_count": 2,
        **{f"vllm:request_{part}_time_seconds_count": 2 for part in ("queue", "prefill", "decode")},
        "vllm:request_generation_tokens_sum": 7,
        "vllm:request_generation_tokens_bucket5.0": 1,
        "vllm:request_generation_tokens_bucket10.0": 2,
    }
    assert {name: more[name] for name in counts} == counts
    # The law: 10 ms, 20 µs for each token computed, 0.1 µs for each token read; the model clock is exact.
    itl_s = (10.02 * 5 + 1e-4 * sum(range(4, 9))) / 1000
    assert more["vllm:inter_token_latency_seconds_sum"] == pytest.approx(itl_s, rel=1e-9)
    # An idle replica starts at once: 10 ms, and 3 tokens computed.
    prefill_s = 2 * (10 + 3 * 0.02) / 1000
    assert more["vllm:request_prefill_time_seconds_sum"] == pytest.approx(prefill_s, rel=1e-9)
    assert more["vllm:request_queue_time_seconds_sum"] == pytest.approx(
        0, abs=1e-3
    )  # the way into the engine
    assert more["vllm:request_inference_time_seconds_sum"] == pytest.approx(prefill_s + itl_s, rel=1e-9)
    assert after["vllm:num_requests_running"] == after["vllm:prefix_cache_hits_total"] == 0


def test_router_counts_as_the_gateway_of_llm_d(fleet: Emulator) -> None:
    def found() -> dict[str, float]:
        lines = [line for line in fleet.ask("/metrics").text.splitlines() if line.startswith("llm_d_epp_")]
        pairs = (
            line.replace('{model_name="chat",target_model_name="chat"}', "").rsplit(" ", 1) for line in lines
        )
        return {name: float(value) for name, value in pairs}

    before = found()
    for name, tokens in (("chat", 1), ("talk", 6)):
        assert fleet.ask("/v1/completions", asked(tokens) | {"model": name}).status == 200
    assert fleet.ask("/v1/completions", asked(1) | {"model": "other"}).status == 404
    fleet.ask("/predict", {})
    more = {name: value - before[name] for name, value in found().items()}
    prefix = "llm_d_epp_request"
    labelled = '{model_name="chat",target_model_name="chat"}'
    assert labelled in fleet.ask("/metrics").text
    assert (more[f"{prefix}_total"], more["llm_d_epp_flow_control_queue_size"]) == (2, 0)
    assert (more[f"{prefix}_input_tokens_count"], more[f"{prefix}_input_tokens_sum"]) == (2, 6)
    assert (more[f"{prefix}_output_tokens_count"], more[f"{prefix}_output_tokens_sum"]) == (2, 7)


@pytest.mark.slow
def test_full_replica_rejects_in_both_ways(fleet: Emulator) -> None:
    url = fleet.replicas_of("talk")[0]["url"]
    before = samples(fleet, url)["vllm:admission_rejections_total"]
    with ThreadPoolExecutor(3) as pool:
        held = []
        for running, waiting in ((1, 0), (2, 0), (2, 1)):  # two at once would both wait for an iteration
            held.append(pool.submit(fleet.ask, "/v1/completions", asked(300), url))
            until(partial(is_loaded, fleet, url, running, waiting))
        plain = fleet.ask("/v1/completions", asked(1), url)
        stream = fleet.ask("/v1/completions", asked(1, **STREAM), url)
        assert [one.result().status for one in held] == [200] * 3
    assert (plain.status, stream.status) == (503, 200)
    assert stream.events[0]["error"]["code"] == 503
    assert samples(fleet, url)["vllm:admission_rejections_total"] == before + 2


@pytest.mark.slow
def test_router_takes_a_replica_with_room(fleet: Emulator) -> None:
    with ThreadPoolExecutor(5) as pool:
        sent = [pool.submit(fleet.ask, "/v1/completions", asked(60)) for _ in range(5)]
        assert [one.result().status for one in sent] == [200] * 5
    assert "inferplan_router_replica_requests_total" in fleet.ask("/metrics").text


def test_client_that_hangs_up_frees_its_slot(fleet: Emulator) -> None:
    url = fleet.replicas_of("talk")[0]["url"]
    address = urlsplit(url)
    body = b'{"prompt": "x", "max_tokens": 3900, "ignore_eos": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as connection:
        connection.sendall(head + body)
        until(lambda: samples(fleet, url)["vllm:num_requests_running"] == 1)
    until(lambda: samples(fleet, url)["vllm:num_requests_running"] == 0)


@pytest.mark.slow
def test_batch_server_answers_together_and_rejects(fleet: Emulator) -> None:
    (replica,) = fleet.replicas_of("eyes")
    assert fleet.ask("/health_check", url=replica["url"]).json["status"] == "ready"
    with ThreadPoolExecutor(12) as pool:
        sent = [pool.submit(fleet.ask, "/predict", {}, replica["url"]) for _ in range(12)]
        answers = [one.result() for one in sent]
    statuses = [one.status for one in answers]
    assert statuses.count(200) >= 2
    assert statuses.count(503) >= 1
    assert statuses.count(200) + statuses.count(503) == 12
    assert all(one.json["latency_ms"] >= 200 for one in answers if one.status == 200)
    assert fleet.ask("/predict", {}).json["model"] == "vision"
    assert fleet.ask("/predict", {"model": "x"}).status == 200  # its body is the model's
    assert fleet.ask("/v1/other", {}).status == 404


@pytest.mark.slow
def test_killed_replica_loses_no_request_without_a_token(fleet_document: Path) -> None:
    with emulated(fleet_document, "--route", "round-robin") as fleet, ThreadPoolExecutor(8) as pool:
        first = fleet.replicas_of("talk")[0]
        path = f"/emulator/replicas/{first['id']}"
        assert fleet.ask(path, {"state": "stuck"}).json["state"] == "stuck"
        waiting = [pool.submit(fleet.ask, "/v1/completions", asked(2, **STREAM)) for _ in range(4)]
        until(lambda: [one.done() for one in waiting].count(True) == fleet.ask(path).json["load"] == 2)
        fleet.ask(path, {"state": "dead"})
        assert [len(one.result().events) for one in waiting] == [3] * 4
        with pytest.raises(ConnectionError):
            fleet.ask("/health", url=first["url"])
        fleet.ask(path, {"state": "slow", "factor": 3})
        healthy = f'inferplan_router_replica_healthy{{replica="{first["id"]}",server="talk",model="chat"}} 1'
        until(lambda: healthy in fleet.ask("/metrics").text)  # at the next check
        begun = [pool.submit(fleet.ask, "/v1/completions", asked(150, **STREAM)) for _ in range(2)]
        until(lambda: samples(fleet, first["url"])["vllm:generation_tokens_total"] > 3)
        fleet.ask(path, {"state": "out-of-memory"})
        ends = sorted("error" in one.result().events[-1] for one in begun)
        assert ends == [False, True]
        broken = next(one.result() for one in begun if "error" in one.result().events[-1])
        assert "memory" in broken.events[-1]["error"]["message"]
        assert fleet.ask("/emulator/replicas/none", {}).status == 404
        assert fleet.ask(path, {"state": "tired"}).status == 400


@pytest.mark.slow
def test_replica_drains_starts_and_drifts(fleet_document: Path) -> None:
    with emulated(fleet_document, "--startup", "0,chat=0.3") as fleet, ThreadPoolExecutor(2) as pool:
        first = fleet.replicas_of("talk")[0]
        path, url = f"/emulator/replicas/{first['id']}", first["url"]
        inside = pool.submit(fleet.ask, "/v1/completions", asked(100), url)
        until(lambda: fleet.ask(path).json["load"] == 1)
        assert fleet.ask(path, {"state": "draining"}).json["state"] == "draining"
        assert fleet.ask("/v1/completions", asked(1), url).status == 503
        assert fleet.ask("/health", url=url).status == 503
        assert inside.result().json["usage"]["completion_tokens"] == 100
        until(lambda: fleet.ask(path).json["state"] == "dead")
        assert fleet.ask(path, {"state": "starting"}).json["state"] == "starting"
        with pytest.raises(ConnectionError):
            fleet.ask("/health", url=url)
        until(lambda: fleet.ask(path).json["state"] == "ready")
        fleet.ask(path, {"state": "slow", "factor": 4, "seconds": 1})
        means = []
        for _ in range(6):
            before = samples(fleet, url)
            fleet.ask("/v1/completions", asked(20), url)
            after = samples(fleet, url)
            name = "vllm:inter_token_latency_seconds"
            means.append(round((after[f"{name}_sum"] - before[f"{name}_sum"]) / 19, 9))
        assert means == sorted(means)
        assert means[-1] == pytest.approx(4 * 0.01002, rel=0.001)
        assert fleet.ask(path, {"state": "slow", "factor": "x"}).status == 400


@pytest.mark.slow
def test_replicas_are_announced_when_they_have_started(fleet_document: Path) -> None:
    begin_s = time.monotonic()
    with emulated(fleet_document, "--startup", "1") as fleet:
        assert time.monotonic() - begin_s > 1
        assert {one["state"] for one in fleet.ask("/emulator/replicas").json["replicas"]} == {"ready"}


def test_start_up_times_are_checked(fleet_document: Path, run: Run) -> None:
    assert "--startup: 'x' must be seconds" in run("emulate", fleet_document, "--startup", "3,x").err


def test_prometheus_discovers_every_replica(fleet: Emulator) -> None:
    targets = fleet.ask("/emulator/targets").json
    assert [f"http://{one['targets'][0]}" for one in targets] == [one["url"] for one in fleet.replicas]
    assert {one["labels"]["server"] for one in targets} == {"eyes", "talk"}


@pytest.mark.slow
def test_stopped_emulator_leaves_no_port(fleet_document: Path) -> None:
    with emulated(fleet_document) as fleet:
        urls = [fleet.url, *(one["url"] for one in fleet.replicas)]
    for url in urls:
        with pytest.raises(ConnectionRefusedError):
            fleet.ask("/health", url=url)


@pytest.mark.slow
def test_openai_client_reads_answers_and_streams(fleet: Emulator) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="none", max_retries=0)
    assert {model.id for model in client.models.list()} == {"chat", "talk", "eyes", "vision"}
    messages = [{"role": "user", "content": "how are you"}]
    options = {"max_tokens": 4, "extra_body": {"ignore_eos": True}}
    answer = client.chat.completions.create(model="chat", messages=messages, **options)
    assert answer.usage.completion_tokens == 4
    stream = client.chat.completions.create(model="chat", messages=messages, stream=True, **options)
    assert len([part for part in stream if part.choices[0].delta.content]) == 4


@pytest.mark.slow
def test_tokens_come_when_the_model_makes_them(fleet_document: Path) -> None:
    with emulated(fleet_document) as fleet:
        url = fleet.replicas_of("talk")[0]["url"]
        begin = time.perf_counter()
        fleet.ask("/v1/completions", asked(400, **STREAM), url)
        spent_ms = (time.perf_counter() - begin) * 1000
    model_ms = 10 + 3 * 0.02 + 399 * 10.02 + 1e-4 * sum(range(4, 403))
    assert model_ms <= spent_ms <= 1.05 * model_ms


@pytest.mark.slow
def test_requests_wait_for_the_delays_of_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET.replace("gamma: 0.0001}", "gamma: 0.0001, clientOffset: 400, frontEndLag: 30}"))
    with emulated(path) as fleet:
        url = fleet.replicas_of("talk")[0]["url"]
        for others, least_s in ((0, 0.41), (1, 0.71)):  # 30 iterations of 10 ms for another request
            with ThreadPoolExecutor(1) as pool:
                held = [pool.submit(fleet.ask, "/v1/completions", asked(200), url) for _ in range(others)]
                until(partial(is_loaded, fleet, url, others, 0))
                begin_s = time.monotonic()
                assert fleet.ask("/v1/completions", asked(2), url).status == 200
                assert time.monotonic() - begin_s > least_s
                assert all(one.result().status == 200 for one in held)
        # The histogram has the time at the engine.
        assert samples(fleet, url)["vllm:time_to_first_token_seconds_sum"] < 0.2
