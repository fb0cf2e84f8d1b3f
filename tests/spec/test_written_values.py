"""Messages about values: as they were written, one for each mistake, with the keys that are valid."""

from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, profile, refusal, server, service_class

from optimizer import load_system, solve, verify
from optimizer.checking.checks import check_documents
from optimizer.spec.loads import with_loads
from optimizer.spec.writing import write_document
from optimizer.stabilisation.rules import Rules


def one_server(**options: Any) -> Json:
    return document([server("s")], [accelerator("A")], {"A": 4}, **options)


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (("servers", 0, "currentAlloc", "load", "arrivalRate"), "-12/s", "must be at least 0, not -12/s"),
        (("servers", 0, "currentAlloc", "load", "arrivalRate"), -12, "must be at least 0, not -12"),
        (("serviceClasses", 0, "modelTargets", 0, "slo-ttft"), "-2 s", "must be at least 0, not -2 s"),
        (
            ("serviceClasses", 0, "modelTargets", 0, "slo-ttft"),
            "1e30s",
            "at most 1,000,000,000,000 s, not 1e30s",
        ),
        (("accelerators", 0, "cost"), "-3 USD/h", "must be at least 0, not -3 USD/h"),
        (("accelerators", 0, "availability"), "120%", "must be at most 100%, not 120%"),
        (("optimizer", "maxLoss"), "500%", "must be at most 100%, not 500%"),
        (("optimizer", "headroomShare"), "1200%", "must be at most 1,000%, not 1200%"),
        (("optimizer", "timeLimit"), "0 min", "must be more than 0, not 0 min"),
        (("servers", 0, "cacheHitRate"), "100%", "must be less than 100%, not 100%"),
    ],
)
def test_a_value_is_shown_as_it_was_written(place: tuple[Any, ...], value: object, text: str) -> None:
    is_refused(place, value, text)


def is_refused(place: tuple[Any, ...], value: object, text: str) -> None:
    source = one_server()
    inner: Any = source
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert refusal(lambda: load_system(source)).endswith(text)


def test_a_missing_budget_is_in_the_currency_of_the_prices() -> None:
    for cost, budget, text in (
        ("2 USD/h", "1.50 USD/h", "2.00 USD/h of the budget; 1.50 of 1.50 are left"),
        (200, 150, "200 cents/h of the budget; 150 of 150 are left"),
    ):
        source = one_server(budget=budget)
        source["accelerators"][0]["cost"] = cost
        system = load_system(source)
        plan = solve(system)
        assert plan.unserved[0].detail.endswith(text)
        assert verify(plan, system) == []


def test_wrong_prices_are_shown_as_they_were_written() -> None:
    source = one_server()
    source["accelerators"][0] |= {"cost": "2 USD/h", "tiers": [{"units": 1, "cost": "3 USD/h"}]}
    message = refusal(lambda: load_system(source))
    assert "tier 1 costs 3.00 USD/h, the accelerators after it 2.00 USD/h" in message
    source["accelerators"][0]["tiers"] = [{"units": 2, "cost": "1.50 USD/h", "committed": True}]
    source["optimizer"] = {"budget": "1 USD/h"}
    paid = "1.00 USD/h is below the cost of the committed tiers, 3.00 USD/h"
    assert paid in refusal(lambda: load_system(source))
    source = one_server()
    source["accelerators"][0]["cost"] = "2 USD/h"
    source["count"] = [{"type": "A", "count": 1, "more": "1 USD/h"}]
    assert "1.00 USD/h is below the price of the first cards, 2.00 USD/h" in refusal(
        lambda: load_system(source)
    )


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (("servers", 0, "load"), {}, "servers[0].load: unknown key; it belongs in currentAlloc"),
        (("servers", 0, "arrivalRate"), 5, "arrivalRate: unknown key; it belongs in currentAlloc.load"),
        (("models", 0, "alpha"), 5, "models[0].alpha: unknown key; it belongs in decodeParms"),
        (("accelerators", 0, "power"), 700, "with keys, not 700; its keys are idle, full, midPower, midUtil"),
        (("servers", 0, "deadline"), "6 h", 'with keys, not "6 h"; its keys are requests, hours'),
        (("servers", 0, "cacheHitRate"), 35, "must be less than 1, not 35; did you mean 0.35?"),
        (("optimizer", "maxLoss"), 5, "must be at most 1, not 5; did you mean 0.05?"),
        (("optimizer", "maxLoss"), 500, "must be at most 1, not 500"),
        (("count", 0, "count"), "infinite", "must be an integer or 'unlimited', not \"infinite\""),
    ],
)
def test_a_message_says_what_was_meant(place: tuple[Any, ...], value: object, text: str) -> None:
    is_refused(place, value, text)


def test_a_misspelt_key_is_one_mistake() -> None:
    source = one_server()
    source["accelerators"][0]["tpye"] = source["accelerators"][0].pop("type")
    message = refusal(lambda: load_system(source))
    assert message == "accelerators[0].tpye: unknown key; did you mean 'type'?"
    source["accelerators"][0]["colour"] = 1
    assert refusal(lambda: load_system(source)).endswith("did you mean 'type'? (and 1 more error)")


def test_every_share_can_be_in_percent() -> None:
    source = one_server(headroomShare="35%", gap="5%", maxLoss="1%", rollout="all")
    source["accelerators"][0] |= {"availability": "99%"}
    source["accelerators"][0]["power"] = {"idle": 1, "full": 9, "midPower": 5, "midUtil": "50%"}
    source["servers"][0] |= {"cacheHitRate": "35%", "availabilityTarget": "99.5%", "surge": "25%"}
    source["serviceClasses"][0] |= {"headroomShare": "10%"}
    system = load_system(source)
    assert system.options.headroom_share == 0.35
    assert (system.options.gap, system.options.max_loss) == (0.05, 0.01)
    assert system.accelerators["A"].availability == 0.99
    found = system.servers["s"]
    assert (found.cache_hit_rate, found.availability_target, found.surge) == (0.35, 0.995, 0.25)
    assert type(found.cache_hit_rate) is float
    rules = Rules.model_validate(
        {"minSaving": "2%", "scaleUpLimit": {"share": "300%", "replicas": 1, "period": 9}}
    )
    assert rules.min_saving == 0.02
    assert rules.scale_up_limit is not None
    assert rules.scale_up_limit.share == 3.0
    assert load_system(system.to_spec().model_dump(by_alias=True)).servers == system.servers


def test_goodput_and_splits_take_percent() -> None:
    models = [profile(name, "A") for name in ("m", "n")]
    classes = [service_class("gold", models=("m", "n"), ttft=900)]
    split = {"split": [{"model": "m", "weight": "70%"}, {"model": "n", "weight": "30%"}]}
    source = document([server("s") | split], [accelerator("A")], {"A": 9}, models=models, classes=classes)
    weights = [item.weight for item in load_system(source).documented["s"].split or ()]
    assert weights == [0.7, 0.3]
    classes[0]["modelTargets"][0]["goodputShare"] = "195%"
    assert refusal(lambda: load_system(source)).endswith("must be less than 100%, not 195%")


@pytest.mark.parametrize("key", ["qps", "rate_of_requests", "x"])
def test_an_unknown_key_of_a_load_is_refused(key: str) -> None:
    source = one_server()
    source["servers"][0]["currentAlloc"]["load"][key] = 3
    message = refusal(lambda: load_system(source))
    assert message.endswith(f"load.{key}: unknown key; remove it or correct its spelling")


def faults_of(source: Json, folder: Path) -> list[str]:
    path = folder / "system.yaml"
    write_document(source, path)
    return [f"{fault.path}: {fault.problem}" for fault in check_documents(path).faults]


def test_one_wrong_profile_gives_one_message(tmp_path: Path) -> None:
    """Without its law, the kind of the model is unknown, and with it what its loads must state."""
    source = document(
        [server("s")],
        [accelerator("A")],
        {"A": 4},
        models=[{"name": "m", "acc": "A", "maxBatchSize": 8, "batchParms": {"base": -6, "slope": 1}}],
    )
    source["servers"][0]["currentAlloc"]["load"] = {"arrivalRate": 60}
    assert faults_of(source, tmp_path) == ["models[0].batchParms.base: must be at least 0, not -6"]


def test_one_wrong_power_gives_one_message(tmp_path: Path) -> None:
    source = one_server(maxPower="9 kW")
    source["accelerators"][0]["power"] = {"idle": 9, "full": -350, "midPower": 5, "midUtil": 0.5}
    assert faults_of(source, tmp_path) == ["accelerators[0].power.full: must be at least 0, not -350"]


@pytest.mark.parametrize("wrong", range(4))
def test_one_price_in_another_currency_gives_one_message(tmp_path: Path, wrong: int) -> None:
    cards: list[Json] = [accelerator(name) | {"cost": "2 USD/h"} for name in "ABCD"]
    cards[wrong]["cost"] = "2 EUR/h"
    source = document([server("s")], cards, {"A": 4}, budget="90 USD/h")
    (message,) = faults_of(source, tmp_path)
    assert message.startswith(f"accelerators[{wrong}].cost: a price in EUR; give all prices in one currency")
    assert "there is one in USD at" in message


def test_a_file_of_loads_lists_its_columns(tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text("server,qps\ns,3\n", "utf-8")
    message = refusal(lambda: with_loads(load_system(one_server()), tmp_path / "loads.csv"))
    assert "arrivalRate" in message
