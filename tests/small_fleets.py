"""Small systems that use one feature each, or all prices and limits together."""

from typing import Any

from builders import Json, accelerator, document, profile, server, service_class

from optimizer import System, load_system

POWER = {"idle": 100, "full": 700, "midPower": 500, "midUtil": 0.5}


def everything() -> System:
    """Return a system with reserves, tiers, a budget and a limit on power; one server rents."""
    cards = [
        accelerator("A")
        | {"power": POWER, "availability": 0.98, "tiers": [{"units": 4, "cost": 5, "committed": True}]},
        accelerator("B", cost=31, multiplicity=2) | {"power": POWER},
    ]
    external = {"inPerMillion": 1.0, "outPerMillion": 1.0, "ttft": 20.0, "itl": 9.0}
    servers = [
        server("grows", 1500, headroomShare=0.5, preferred=["B"]),
        server("fails", 1500, spareReplicas=1, availabilityTarget=0.99),
        server("rents", 1500, service="silver", external=external),
    ]
    classes = [service_class("gold", 1, itl=40), service_class("silver", 2, itl=40)]
    return load_system(document(servers, cards, {"A": 8, "B": 4}, classes=classes, budget=900, maxPower=9000))


def offline(units: int, requests: float = 500_000, hours: float = 5, **options: Any) -> System:
    """Return a server by day, and offline work of the same model; a replica does 540 requests/min."""
    night = server("night", 0, deadline={"requests": requests, "hours": hours})
    classes = [service_class("gold", 1, itl=40)]
    return load_system(
        document([server("day", 1500), night], [accelerator("A")], {"A": units}, classes=classes, **options)
    )


def cached(hits: float = 0.4, rate: float = 900, cv: float = 1.0, **more: Any) -> System:
    """Return a server behind a cache, with a target on the p95."""
    item = server("a", rate, cacheHitRate=hits)
    item["currentAlloc"]["load"]["arrivalCV"] = cv
    classes = [service_class("gold", 1, ttft=150)]
    classes[0]["modelTargets"][0] |= {"percentile": 95} | more
    times = {"alpha": 10, "beta": 0.05, "gamma": 1e-5}
    fitted = {"name": "m", "acc": "A", "maxBatchSize": 8, "perfParms": times}
    return load_system(document([item], [accelerator("A")], {"A": 1}, classes=classes, models=[fitted]))


def canary(rate: float = 6000, units: int = 60, **more: Any) -> Json:
    """Return a document with a split server, nine tenths of whose requests go to the model ``m``."""
    split = [{"model": "m", "weight": 0.9}, {"model": "n", "weight": 0.1}]
    servers = [server("chat", rate, split=split) | more, server("other", 600)]
    models = [profile("m", "A"), profile("n", "A", alpha=14)]
    classes = [service_class("gold", ttft=300)]
    return document(servers, [accelerator("A")], {"A": units}, classes=classes, models=models)


def rolling(cards: int, **options: Any) -> System:
    """Return two servers of three replicas each, with two more each in a roll-out."""
    servers = [server("a", 1500, surge=0.5), server("b", 1500, surge=0.5)]
    return load_system(document(servers, [accelerator("A")], {"A": cards}, **options))


def available(**fields: Any) -> System:
    """Return a server of three replicas on cards that are there 99 % of the time."""
    cards = [accelerator("A") | {"availability": 0.99}]
    return load_system(document([server("a", 1500, **fields)], cards, {"A": 40}, rollout="all"))
