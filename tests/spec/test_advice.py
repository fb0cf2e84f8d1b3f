"""Messages that recommend a value: following them gives a system that is accepted."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from builders import Json, accelerator, document, profile, refusal, server, service_class

from optimizer import load_system
from optimizer.checking.checks import check_text

PERF = {"alpha": 10.0, "beta": 0.02}
FULL = PERF | {"weightRead": 4.0}
BATCH = {"base": "1.23456789 s"}


class Advice(NamedTuple):
    """A faulty document, its message, and what following the message changes."""

    name: str
    fault: Callable[[Json], object]
    message: str
    follow: Callable[[Json], object]


def model(source: Json) -> Json:
    found: Json = source["models"][0]
    return found


def target(source: Json) -> Json:
    found: Json = source["serviceClasses"][0]["modelTargets"][0]
    return found


def load(source: Json) -> Json:
    found: Json = source["servers"][0]["currentAlloc"]["load"]
    return found


def times(source: Json, **given: Any) -> Json:
    """Replace the latency model of the profile."""
    one = model(source)
    for key in ("decodeParms", "prefillParms", "batching", "perfParms", "batchParms"):
        one.pop(key, None)
    one |= given
    return one


def batches(source: Json, **settings: Any) -> None:
    """Make the server a batch server."""
    times(source, batchParms=BATCH)
    source["serviceClasses"][0]["modelTargets"] = [
        {"model": "m", "latency": [{"percentile": 99, "ms": 60000}]}
    ]
    source["servers"][0] |= settings


def static(source: Json, **more: float) -> Json:
    model(source)["batching"] = "padded"
    load(source).update({"outTokensCV": 0.5} | more)
    return source


GIVE_PERF = "remove it, or give perfParms (queueModel 'continuous') instead of decodeParms/prefillParms"
ADVICE = [
    Advice(
        "a percentile under the linear law",
        lambda s: target(s).update(latency=[{"percentile": 99, "ms": 22000}]), GIVE_PERF,
        lambda s: times(s, perfParms=PERF, queueModel="continuous"),
    ),
    Advice(
        "the percentile of all targets under the linear law",
        lambda s: target(s).update({"percentile": 95}), GIVE_PERF, lambda s: times(s, perfParms=PERF),
    ),
    Advice(
        "variable arrivals under the linear law",
        lambda s: load(s).update(arrivalCV=2), GIVE_PERF, lambda s: times(s, perfParms=PERF),
    ),
    Advice(
        "a goodput share of the reference's queue",
        lambda s: (times(s, perfParms=PERF, queueModel="reference"), target(s).update(goodputShare=0.9)),
        "remove it, or set queueModel to 'continuous' there",
        lambda s: model(s).update(queueModel="continuous"),
    ),
    Advice(
        "variable inputs in the reference's queue",
        lambda s: (times(s, perfParms=PERF, queueModel="reference"), load(s).update(inTokensCV=0.5)),
        "remove it, or set queueModel to 'continuous' there",
        lambda s: model(s).update(queueModel="continuous"),
    ),
    Advice(
        "a percentile of static batches",
        lambda s: (static(s), target(s).update({"percentile": 95})), f"{GIVE_PERF} and batching",
        lambda s: times(s, perfParms=PERF),
    ),
    Advice(
        "variable arrivals at static batches",
        lambda s: static(s, arrivalCV=2), f"{GIVE_PERF} and batching", lambda s: times(s, perfParms=PERF),
    ),
    Advice(
        "the linear law in the queue of continuous batching",
        lambda s: model(s).update(queueModel="continuous"), "set queueModel to 'reference'",
        lambda s: model(s).update(queueModel="reference"),
    ),
    Advice(
        "further terms in the reference's queue",
        lambda s: times(s, perfParms=FULL, queueModel="reference"), "set queueModel to 'continuous'",
        lambda s: model(s).update(queueModel="continuous"),
    ),
    Advice(
        "no lengths", lambda s: [load(s).pop(key) for key in ("avgInTokens", "avgOutTokens")],
        "give the mean input length (0 for requests without input) and the mean output length (at least 1)",
        lambda s: load(s).update(avgInTokens=0, avgOutTokens=1),
    ),
    Advice(
        "no input length", lambda s: load(s).pop("avgInTokens"), "or set arrivalRate to 0",
        lambda s: load(s).update(arrivalRate=0),
    ),
    Advice(
        "a clock shorter than a batch",
        lambda s: batches(s, batchTrigger="clock", batchTimeout="1 s"),
        "is shorter than a full batch of 1234.56789 ms; lengthen the window to at least that time",
        lambda s: s["servers"][0].update(batchTimeout=1234.56789),
    ),
    Advice(
        "a system limit of 0", lambda s: batches(s, maxQueueSize=0, queueCounts="system"),
        "set it to 1 or more", lambda s: s["servers"][0].update(maxQueueSize=1),
    ),
    Advice(
        "a system limit under a clock",
        lambda s: batches(s, maxQueueSize=8, queueCounts="system", batchTrigger="clock", batchTimeout="2 s"),
        "set queueCounts to waiting", lambda s: s["servers"][0].update(queueCounts="waiting"),
    ),
    Advice(
        "too few replicas", lambda s: s["servers"][0].update(minNumReplicas=4, maxNumReplicas=2),
        "maxNumReplicas 2 is below minNumReplicas 4; raise it, or lower the other",
        lambda s: s["servers"][0].update(maxNumReplicas=4),
    ),
]  # fmt: skip


def sound() -> Json:
    source = document(
        [server("s")], [accelerator("A")], {"A": 9}, models=[profile("m", "A")],
        classes=[service_class("gold", itl=100)],
    )  # fmt: skip
    return copy.deepcopy(source)


@pytest.mark.parametrize("advice", ADVICE, ids=lambda advice: advice.name)
def test_following_a_message_gives_an_accepted_system(advice: Advice) -> None:
    source = sound()
    advice.fault(source)
    assert advice.message in refusal(lambda: load_system(source))
    advice.follow(source)
    assert load_system(source)


ROUTED = {
    "name": "r", "small": "s", "large": "t", "arrivalRate": 60,
    "kinds": [
        {"share": 0.5, "inTokens": 10, "outTokens": 20}, {"share": 0.5, "inTokens": 90, "outTokens": 20},
    ],
}  # fmt: skip


@pytest.mark.parametrize("percentile", [None, 95])
@pytest.mark.parametrize("perf", [PERF, FULL])
def test_a_route_recommends_the_references_queue_if_it_can(
    perf: dict[str, float], percentile: float | None
) -> None:
    source = sound()
    source["servers"] = [server("s", 0.0), server("t", 0.0)]
    for one in source["servers"]:
        one["currentAlloc"]["load"] = {}
    times(source, perfParms=perf)
    source["routes"] = [ROUTED]
    target(source).update({} if percentile is None else {"percentile": percentile})
    message = refusal(lambda: load_system(source))
    assert "give all kinds the same lengths" in message
    able = perf is PERF and percentile is None
    assert ("set queueModel to 'reference' in its profiles" in message) == able
    if able:
        model(source)["queueModel"] = "reference"
        assert load_system(source)


@pytest.mark.parametrize(
    ("fault", "message", "keys"),
    [
        ({"slo-itl": 0.05}, r"write (0\.05s) for seconds, or (0\.05ms)", ("slo-itl",)),
        ({"slo-ttft": 2}, r"write (2s) for seconds, or (2ms)", ("slo-ttft",)),
        ({"slo-itl": 100, "percentile": 0.95}, r"did you mean (95)\?", ("percentile",)),
        ({"slo-itl": 100, "goodputShare": 0.05}, r"did you mean (0\.95)\?", ("goodputShare",)),
    ],
)
def test_following_a_warning_ends_it(fault: Json, message: str, keys: tuple[str, ...]) -> None:
    def warned(targets: Json) -> str:
        source = sound()
        times(source, perfParms=PERF)
        source["serviceClasses"][0]["modelTargets"] = [{"model": "m", **targets}]
        found = check_text(json.dumps(source))
        return " ".join(item.problem for item in found.warnings if item.location[-1] in keys)

    matched = re.search(message, warned(fault))
    assert matched
    for value in matched.groups():
        number = value if value.endswith("s") else float(value)
        assert warned(fault | {keys[0]: number}) == ""


def test_the_advised_unit_of_a_rate_ends_the_warning() -> None:
    source = sound()
    load(source)["arrivalRate"] = 0.01
    (text,) = (
        item.problem for item in check_text(json.dumps(source)).warnings if "per second" in item.problem
    )
    for value in re.findall(r"0\.01/(?:s|min)", text):
        load(source)["arrivalRate"] = value
        assert not [item for item in check_text(json.dumps(source)).warnings if "per second" in item.problem]
