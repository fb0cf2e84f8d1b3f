"""A client of the reference's wire on an app of one mode, and how its answers compare with recorded ones."""

import json
from functools import cache
from typing import Any

from builders import accelerator, profile, service_class
from fastapi import FastAPI
from fastapi.testclient import TestClient
from patience import PATIENT

from rest_server.app import create_app
from rest_server.settings import Settings
from rest_server.state import FleetStore

Json = dict[str, Any]

ACCELERATORS = [accelerator("A")]
MODELS = [profile("m", "A", atTokens=64)]
CLASSES = [service_class("gold", itl=50, ttft=900)]
LOAD = {"arrivalRate": 60, "avgInTokens": 16, "avgOutTokens": 64}


def one_server(name: str = "s", **more: Any) -> Json:
    """Return a server that one replica on A serves."""
    return {"name": name, "class": "gold", "model": "m", "currentAlloc": {"load": LOAD}} | more


def system(*servers: Json, **sections: Any) -> Json:
    """Return a system of servers, in the wrappers of the wire, unlimited unless told."""
    wrapped = {
        "acceleratorData": {"accelerators": sections.get("accelerators", ACCELERATORS)},
        "modelData": {"models": sections.get("models", MODELS)},
        "serviceClassData": {"serviceClasses": CLASSES},
        "serverData": {"servers": list(servers)},
        "capacityData": {"count": sections.get("count", [{"type": "A", "count": 100}])},
        "optimizerData": {"optimizer": sections.get("optimizer", {"unlimited": True})},
    }
    return {"system": wrapped}


def slow_system(servers: int) -> Json:
    """Return a system whose servers take a thirtieth of a second each: no two have the same requests."""
    return system(
        *(one_server(f"s{i}", currentAlloc={"load": LOAD | {"avgInTokens": i + 1}}) for i in range(servers)),
        models=[MODELS[0] | {"maxBatchSize": 2048}],
        optimizer={"batchSizing": "optimal"},
    )


def wire_client(**settings: Any) -> TestClient:
    """Return a client of a service in this process without a fleet; work runs in its threads.

    Services of the same settings are one application: two of them at the same time share their fleet.
    """
    app = _app(**settings)
    app.state.held = FleetStore()
    return TestClient(app, "http://localhost")


@cache
def _app(**settings: Any) -> FastAPI:
    return create_app(Settings(**PATIENT | {"solver_processes": 0} | settings))


def differences(answer: Any, wanted: Any, path: str = "") -> list[str]:
    """Return where an answer differs: numbers by more than 1 %, lists as sets, everything else at all."""
    found: list[str] = []
    if _is_number(answer) and _is_number(wanted):
        near = abs(answer - wanted) <= 0.01 * max(abs(answer), abs(wanted))
        found = [] if near else [f"{path}: {answer} is not {wanted}"]
    elif type(answer) is not type(wanted):
        found = [f"{path}: {answer!r} is not {wanted!r}"]
    elif isinstance(wanted, dict) and answer.keys() == wanted.keys():
        for key in wanted:
            found += differences(answer[key], wanted[key], f"{path}.{key}")
    elif isinstance(wanted, list) and len(answer) == len(wanted):
        pairs = zip(sorted(answer, key=_identity), sorted(wanted, key=_identity), strict=True)
        for i, (one, other) in enumerate(pairs):
            found += differences(one, other, f"{path}[{i}]")
    elif answer != wanted:
        found = [f"{path}: {answer!r} is not {wanted!r}"]
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _identity(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    return json.dumps([item.get(key) for key in ("name", "type", "model", "acc")])


def replay(client: TestClient, exchanges: list[Json]) -> list[str]:
    """Return where a service departs from recorded exchanges; a better error body is no departure."""
    found = []
    for i, exchange in enumerate(exchanges):
        given: Json = {"content": exchange["raw"]} if "raw" in exchange else {}
        if exchange.get("body") is not None:
            given = {"json": exchange["body"]}
        answer = client.request(exchange["method"], exchange["path"], **given)
        place = f"{i} {exchange['method']} {exchange['path']}"
        wanted = exchange["response"]
        if answer.status_code != exchange["status"]:
            found.append(f"{place}: status {answer.status_code}, not {exchange['status']}: {answer.text}")
        elif wanted == {"__text__": ""}:
            said = answer.json()
            found += [] if set(said) == {"message"} and said["message"] else [f"{place}: {said}"]
        elif isinstance(wanted, dict) and "__text__" in wanted:
            found += differences(answer.text, wanted["__text__"], place)
        else:
            found += differences(answer.json(), wanted, place)
    return found
