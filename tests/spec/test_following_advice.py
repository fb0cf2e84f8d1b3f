"""Advice about latency models, queue models, targets and variability never leads in a circle.

Every alternative of every message is followed by a program, on every combination of settings that contradict
each other, until the document is accepted.
"""

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from builders import Json
from test_advice import load, model, sound

from optimizer import SpecError, load_system

Change = Callable[[Json, str, re.Match[str]], object]
PERF = {"alpha": 10.0, "beta": 0.02}
LAWS: dict[str, Json] = {
    "linear": {},
    "static": {"batching": "static"},
    "iteration": {"perfParms": PERF},
    "full iteration": {"perfParms": PERF | {"weightRead": 4.0}},
    "batch": {"batchParms": {"base": 20, "slope": 1}},
}
LINEAR = ("decodeParms", "prefillParms")
QUEUES = (None, "reference", "continuous")
SETTINGS: dict[str, tuple[str, Json]] = {
    "percentile": ("target", {"percentile": 95}),
    "share": ("target", {"goodputShare": 0.9}),
    "throughput": ("target", {"slo-tps": 2000}),
    "end-to-end percentile": ("target", {"latency": [{"percentile": 99, "ms": 60000}]}),
    "bursts": ("load", {"arrivalCV": 2}),
    "inputs": ("load", {"inTokensCV": 0.5}),
    "outputs": ("load", {"outTokensCV": 0.5}),
    "no lengths": ("load", {"avgInTokens": None, "avgOutTokens": None}),
    "clock": ("server", {"batchTrigger": "clock", "batchTimeout": 1}),
    "system": ("server", {"queueCounts": "system", "maxQueueSize": 0}),
    "jobs": ("server", {"jobs": 2, "batchTimeout": 50}),
}
MAX_STEPS = 6


def combined(law: str, queue: str | None, settings: tuple[str, ...]) -> Json:
    source = sound()
    model, target = source["models"][0], source["serviceClasses"][0]["modelTargets"][0]
    if law not in {"linear", "static"}:
        for key in LINEAR:
            del model[key]
    model |= LAWS[law] | ({} if queue is None else {"queueModel": queue})
    places = {"target": target, "server": source["servers"][0]}
    places["load"] = source["servers"][0]["currentAlloc"]["load"]
    for name in settings:
        place, values = SETTINGS[name]
        places[place] |= values
    return source


def remove(source: Json, path: str, _: re.Match[str]) -> None:
    """Remove the value at the path of a message."""
    steps = [int(step) if step.isdigit() else step for step in re.findall(r"[\w-]+", path)]
    holder: Any = source
    for step in steps[:-1]:
        holder = holder[step]
    del holder[steps[-1]]


def without(*keys: str) -> Change:
    """Return the change that removes fields of the server."""

    def change(source: Json, _path: str, _found: re.Match[str]) -> None:
        for key in keys:
            source["servers"][0].pop(key)

    return change


def target_without(key: str) -> Change:
    return lambda source, _, __: source["serviceClasses"][0]["modelTargets"][0].pop(key)


def with_server(**fields: object) -> Change:
    return lambda source, _, __: source["servers"][0].update(fields)


def with_load(**fields: object) -> Change:
    return lambda source, _, __: load(source).update(fields)


def with_window(source: Json, _: str, found: re.Match[str]) -> None:
    source["servers"][0]["batchTimeout"] = float(found[1])


def with_queue(source: Json, _: str, found: re.Match[str]) -> None:
    model(source)["queueModel"] = found[1]


def with_iterations(source: Json, _: str, __: re.Match[str]) -> None:
    for key in (*LINEAR, "batching", "queueModel"):
        model(source).pop(key, None)
    model(source)["perfParms"] = PERF


def with_latency(source: Json, _: str, __: re.Match[str]) -> None:
    target = source["serviceClasses"][0]["modelTargets"][0]
    kept = {"model": target["model"], "latency": target.get("latency", [{"ms": 60000}])}
    target.clear()
    target.update(kept)


WAYS: list[tuple[str, Change]] = [
    (r"; remove (it|this limit|the window)\b", remove),
    (r", or jobs$", without("jobs")),
    (r"remove batchTrigger and batchTimeout", without("batchTrigger", "batchTimeout")),
    (r"goodputShare and percentile exclude each other; keep one", target_without("percentile")),
    (r"goodputShare and percentile exclude each other; keep one", target_without("goodputShare")),
    (r"set queueModel to '(\w+)'", with_queue),
    (r"set queueModel to '\w+' or '(\w+)'", with_queue),
    (r"give perfParms \(queueModel 'continuous'\) instead of", with_iterations),
    (r"give the CV of the output lengths", with_load(outTokensCV=0.5)),
    (r"give the mean input length .*, or set arrivalRate to 0", with_load(avgInTokens=0, avgOutTokens=1)),
    (r"or set arrivalRate to 0", with_load(arrivalRate=0)),
    (r"set latency instead", with_latency),
    (r"full batch of ([\d.]+) ms; lengthen the window to at least that time", with_window),
    (r"set it to 1 or more", with_server(maxQueueSize=1)),
    (r"set queueCounts to waiting", with_server(queueCounts="waiting")),
    (r"allow at least one batch, or set no window", without("maxQueueSize")),
    (r"allow at least one batch, or set no window", without("batchTimeout")),
]
"""Advice in messages, and the change of the document that follows it."""


def alternatives(message: str, source: Json) -> Iterator[Json]:
    """Yield the document after each change that a message recommends."""
    path, _, problem = re.sub(r" \(and \d+ more errors?\)$", "", message).partition(": ")
    for pattern, change in WAYS:
        found = re.search(pattern, problem)
        if found:
            after = copy.deepcopy(source)
            change(after, path, found)
            yield after


def follow(source: Json, seen: tuple[str, ...] = ()) -> None:
    """Follow every message in every way that it names, until the document is accepted."""
    state = json.dumps(source, sort_keys=True)
    assert state not in seen, "advice leads in a circle"
    assert len(seen) < MAX_STEPS
    try:
        load_system(copy.deepcopy(source))
    except SpecError as error:
        message = str(error)
    else:
        return
    ways = list(alternatives(message, source))
    assert ways, message
    for way in ways:
        follow(way, (*seen, state))


@pytest.mark.few(1)
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("law", LAWS)
def test_no_advice_leads_in_a_circle(law: str, queue: str | None) -> None:
    for number in (0, 1, 2):
        for settings in itertools.combinations(SETTINGS, number):
            follow(combined(law, queue, settings))
