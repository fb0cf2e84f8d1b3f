"""Documents at the edges of what is valid, and beyond."""

from collections.abc import Callable
from functools import partial

from builders import Json, accelerator, document, profile, running, server, service_class

from recorder.fleets import mixed_fleet

CURRENCIES = ("EUR", "USD", "GBP", "INR")


def with_units(made: Callable[[], Json], i: int) -> Json:
    """Return a document whose prices, rates, times and sizes are texts with units."""
    source = made()
    for item in source["accelerators"]:
        item["cost"] = f"{item['cost'] / 100} {CURRENCIES[i % len(CURRENCIES)]}/h"
        item["memSize"] = f"{item['memSize']} GB"
        item["memBW"] = f"{item['memBW'] / 1000} TB/s"
        item["power"]["full"] = f"{item['power']['full'] / 1000}kW"
    for item in source["servers"]:
        load = item["currentAlloc"]["load"]
        load["arrivalRate"] = f"{load['arrivalRate']} requests/min"
        if "avgInTokens" in load:
            load["avgInTokens"] = f"{load['avgInTokens']} tokens"
        if "batchTimeout" in item:
            item["batchTimeout"] = f"{item['batchTimeout']} ms"
    for item in source["serviceClasses"]:
        for target in item["modelTargets"]:
            if "slo-ttft" in target:
                target["slo-ttft"] = f"{target['slo-ttft']}ms"
    return source


def _cards() -> list[Json]:
    return [accelerator("A"), accelerator("B", cost=15.0), accelerator("2xB", "B", 28.0, 2)]


def _named() -> Json:
    """Names that pages, tables, paths and Kubernetes must escape, or that are long."""
    names = ["<b>&'\"", "a/b c", "überlang " + "x" * 80, "=1+1", "*_|`"]
    return document(
        [server(name, rate=100.0 * (i + 1)) for i, name in enumerate(names)], _cards(), {"A": 3, "B": 2}
    )


def _moving() -> Json:
    """Servers that run on an accelerator that is dear, gone, kept, or not in the catalogue."""
    servers = [
        server("dear", 900.0, current=running("2xB", 2)),
        server("kept", 900.0, current=running("2xB", 2), keepAccelerator=True),
        server("gone", 900.0, current=running("Z9", 3, 80.0)),
        server("small", 10.0, current=running("B", 5)),
        server("idle", 0.0, current=running("A", 1)),
    ]
    return document(servers, _cards(), {"A": 9, "B": 6})


def _clock() -> Json:
    """A batch server with a clock."""
    source = mixed_fleet("clock", ["batch"], 2, None)
    source["servers"][0] |= {"batchTrigger": "clock", "batchTimeout": 900}
    source["servers"][0].pop("batchWindow", None)
    source["servers"][0].pop("stages", None)
    return source


def _unattainable() -> Json:
    """Every reason for which a pair is no candidate."""
    classes = [
        service_class("gold", models=("m", "n"), itl=1.0),
        service_class("silver", 2, ("m",), ttft=5000.0, tps=1e6),
    ]
    servers = [
        server("fast"),
        server("much", service="silver"),
        server("other", model="n"),
        server("untargeted", service="silver", model="n"),
        server("few", 9000.0, service="silver", maxNumReplicas=1),
        server("nowhere", service="silver", accelerators=["C"]),
    ]
    models = [profile("m", "A"), profile("m", "B"), profile("n", "B"), profile("n", "C", alpha=0.0)]
    return document(servers, [*_cards(), accelerator("C")], {"A": 4}, classes=classes, models=models)


ODD: dict[str, Callable[[], Json]] = {
    "one": lambda: document([server("only")], [accelerator("A")], {"A": 1}),
    "idle": lambda: document([server("a", 0.0), server("b", 0.0, replicas=2)], _cards(), {"A": 1}),
    "no-cards": lambda: document([server("a"), server("b", replicas=1)], _cards(), {}),
    "unlimited": lambda: document([server(f"s{i}", 4000.0 * i) for i in range(4)], _cards()),
    "names": _named,
    "moving": _moving,
    "clock": _clock,
    "unattainable": _unattainable,
    "alike": lambda: document(
        [server(f"s{i}", replicas=1 + i % 2) for i in range(6)], _cards(), {"A": 3, "B": 3}
    ),
    "free": lambda: document(
        [server("a")], [accelerator("A", cost=0.0), accelerator("B", cost=0.0)], {"A": 5}
    ),
    "heavy": lambda: document([server(f"s{i}", 60_000.0) for i in range(3)], _cards(), {"A": 90, "B": 70}),
}
"""Valid documents of unusual content."""


def _broken(section: str, kind: str = "linear", **values: object) -> Json:
    """Return a fleet of a kind with values in the first item of a section."""
    source = mixed_fleet(f"broken {kind}", [kind], 3, (4, 9))
    if isinstance(source[section], dict):
        source[section] |= values
    else:
        source[section][0] |= values
    return source


def _twice() -> Json:
    source = mixed_fleet("twice", ["linear"], 3, (4, 9))
    source["servers"].append(source["servers"][0])
    return source


WRONG: dict[str, Callable[[], Json]] = {
    "key": partial(_broken, "servers", curentAlloc={}),
    "type": partial(_broken, "accelerators", cost=[1]),
    "range": partial(_broken, "serviceClasses", priority=0),
    "class": partial(_broken, "servers", **{"class": "golden"}),
    "model": partial(_broken, "servers", model="unknown"),
    "law": partial(_broken, "models", perfParms={"alpha": 1.0}),
    "percentile": partial(
        _broken, "serviceClasses", modelTargets=[{"model": "linear-0", "slo-itl": 20, "percentile": 95}]
    ),
    "trigger": partial(_broken, "servers", batchTrigger="gap", batchTimeout=5),
    "window": partial(_broken, "servers", kind="batch", batchTrigger="clock", batchTimeout=0.001, jobs=None),
    "lengths": partial(
        _broken, "servers", kind="static", currentAlloc={"load": {"arrivalRate": 5, "avgOutTokens": 8}}
    ),
    "unit": partial(_broken, "accelerators", cost="5 EUR/kg"),
    "currency": partial(_broken, "servers", currentAlloc={"cost": "3 EUR/h", "accelerator": "L40S"}),
    "option": partial(_broken, "optimizer", saturationPolicy="Fair"),
    "twice": _twice,
    "empty": lambda: {"servers": []},
}
"""Documents that are refused."""
