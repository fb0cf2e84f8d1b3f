"""The routes of the reference, which are not in the OpenAPI document, get bodies and names of every shape."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from api_clients import client
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from rest_server.v1 import examples as api_examples

WRITERS = (
    "setAccelerators", "addAccelerator", "setCapacities", "setCapacity", "setModels", "setServiceClasses",
    "addServiceClassModelTargets", "addServiceClassModelTarget", "setServers", "addServer",
    "addModelAcceleratorPerf", "optimizeOne", "optimize", "queue/solve", "queue/target", "queue/optimize",
)  # fmt: skip
READERS = (
    "getAccelerators", "getAccelerator/{}", "getCapacities", "getCapacity/{}", "getModels", "getModel/{}",
    "getServiceClasses", "getServiceClass/{}", "getServiceClassModelTarget/{}/{}", "getServers",
    "getServer/{}", "getModelAcceleratorPerf/{}/{}", "addModel/{}", "addServiceClass/{}/{}",
    "removeAccelerator/{}", "removeCapacity/{}", "removeModel/{}", "removeServiceClass/{}",
    "removeServiceClassModelTarget/{}/{}", "removeServer/{}", "removeModelAcceleratorPerf/{}/{}",
    "applyAllocation",
)  # fmt: skip
SAMPLES: list[Any] = [
    api_examples.WRAPPED, api_examples.SYSTEM, *api_examples.WRAPPED["system"].values(),
    api_examples.ACCELERATOR, api_examples.PROFILE, api_examples.SERVICE_CLASS, api_examples.SERVER,
    api_examples.CAPACITY, api_examples.OPTIONS,
    {"RPS": 1, "maxBatchSize": 8, "avgInputTokens": 9, "avgOutputTokens": 9, "alpha": 5, "targetTTFT": 99},
]  # fmt: skip
numbers = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 1e300, 10**400, 0.5])
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Return a sample with something in it exchanged, any JSON, or any bytes."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=64))
    value = draw(values) if kind == 1 else mutated(draw, draw(st.sampled_from(SAMPLES)))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


def mutated(draw: st.DrawFn, value: Any) -> Any:
    """Return a value in which now and then a part is another one, or missing."""
    if draw(st.integers(0, 12)) == 0:
        return draw(values)
    if isinstance(value, dict):
        kept = {key: mutated(draw, item) for key, item in value.items() if draw(st.integers(0, 20))}
        return kept if draw(st.integers(0, 15)) else kept | {draw(st.text(max_size=8)): draw(scalars)}
    return [mutated(draw, item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def wire() -> Iterator[TestClient]:
    with client(stateful=True, max_batch=512) as found:
        yield found


@pytest.mark.slow
@settings(max_examples=100)
@given(path=st.sampled_from(WRITERS), body=bodies())
def test_the_references_routes_take_any_body(wire: TestClient, path: str, body: bytes) -> None:
    answer = wire.post(f"/{path}", content=body)
    assert answer.status_code in {200, 400, 404}, answer.text
    if answer.content:
        json.loads(answer.content, parse_constant=refuse)


names = st.sampled_from(["A100", "llama_8b", "Premium", "Premium-llama_8b", "1", "0", "-1", "x"])


@settings(max_examples=100)
@given(path=st.sampled_from(READERS), first=names | st.text(min_size=1, max_size=9), second=names)
def test_the_references_routes_take_any_name(wire: TestClient, path: str, first: str, second: str) -> None:
    from urllib.parse import quote

    answer = wire.get("/" + path.format(quote(first, safe=""), quote(second, safe="")))
    assert answer.status_code in {200, 400, 404}, answer.text
    if answer.headers["content-type"].startswith("application/json"):
        json.loads(answer.content, parse_constant=refuse)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
