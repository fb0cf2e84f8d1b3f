"""Tests that JSON of plans and studies cannot be misread: units in names, and pasted allocations."""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from copy import deepcopy

import pytest
from builders import accelerator, document, server, service_class

import optimizer
from optimizer import load_system, solve
from optimizer.attribute_docs import attribute_docs
from optimizer.documents import Document, OutputDocument, output_name
from optimizer.schema import CurrentPool
from optimizer.schema.pools import Pool
from optimizer.studies.simulation.simulation_document import SimulatedLatency

UNITS = {
    "cents/h": "CentsPerH", "cents": "Cents", "hundredths of the currency": "Cents", "requests/min": "Rpm",
    "requests/s": "Rps", "ms": "Ms", "W": "W", "GB": "Gb", "s": "S", "h": "H",
}  # fmt: skip
"""Ends of keys by the unit that the description of a field states in brackets."""
PLAIN = {"hours": "h"}
"""Keys that are units themselves."""


def outputs(base: type[Document] = OutputDocument) -> Iterator[type[Document]]:
    """Yield all documents that only inferplan writes."""
    for part in pkgutil.walk_packages(optimizer.__path__, "optimizer."):
        if part.name.startswith(("optimizer.studies", "optimizer.features", "optimizer.plan")):
            importlib.import_module(part.name)
    for kind in base.__subclasses__():
        yield kind
        yield from outputs(kind)


@pytest.mark.slow
def test_the_keys_of_amounts_end_in_their_units() -> None:
    wrong = []
    for kind in set(outputs()) - {SimulatedLatency}:  # ttftMs and itlMs contain it
        for name, field in kind.model_fields.items():
            (unit,) = re.findall(r"\[([^\]]+)\]", attribute_docs(kind).get(name, ""))[:1] or [""]
            key, end = field.alias or name, UNITS.get(unit)
            if (
                end is not None
                and not key.endswith((end, f"{end}PerMillionTokens", f"{end}econds"))
                and PLAIN.get(key) != unit
            ):
                wrong.append(f"{kind.__name__}.{key} [{unit}]")
    assert not wrong


def test_keys_follow_from_the_names_in_python() -> None:
    assert output_name("max_arrival_rate_rpm") == "maxArrivalRateRpm"
    assert Pool.model_fields["cost_cents_per_h"].alias == "costCentsPerH"


def test_every_pool_states_server_cards_and_targets() -> None:
    """Source of the limits: the class has an ITL of 60 ms and a TTFT of 2,000 ms."""
    plan = solve(load_system(SOURCE))
    (pool,) = json.loads(plan.to_json())["allocations"]["a"]
    assert [pool[key] for key in ("class", "model", "priority", "type")] == ["gold", "m", 1, "A"]
    assert pool["cards"] == pool["numReplicas"]
    assert [(item["metric"], item["statistic"], item["limitMs"]) for item in pool["targets"]] == [
        ("itl", "mean", 60.0),
        ("ttft", "mean", 2000.0),
    ]
    assert [item["valueMs"] for item in pool["targets"]] == [pool["itlMs"], pool["ttftMs"]]
    assert pool["loss"] == 0 or pool["loss"] >= 1e-9


def test_plans_of_equal_documents_have_equal_hashes() -> None:
    hashes = [solve(load_system(source)).document_hash for source in (SOURCE, deepcopy(SOURCE))]
    assert hashes[0] == hashes[1]
    assert hashes[0] != solve(load_system(SOURCE), gap=0.5).document_hash


@pytest.mark.parametrize("in_list", [False, True])
def test_a_planned_pool_can_be_a_current_allocation(*, in_list: bool) -> None:
    plan = solve(load_system(SOURCE))
    (pool,) = json.loads(plan.to_json())["allocations"]["a"]
    source = deepcopy(SOURCE)
    load = source["servers"][0]["currentAlloc"]["load"]
    source["servers"][0]["currentAlloc"] = {"load": load} | ({"pools": [pool]} if in_list else pool)
    again = solve(load_system(source))
    assert again.changes == ()
    assert again.objective == 0
    assert again.total_cost_cents_per_h == plan.total_cost_cents_per_h


SOURCE = document(
    [server("a", 900)],
    [accelerator("A", cost=50)],
    {"A": 9},
    classes=[service_class("gold", itl=60, ttft=2000)],
)


@pytest.mark.parametrize(("role", "kept"), [("prefill", "prefill"), ("shared spare", None), (None, None)])
def test_pasted_pools_keep_only_roles_of_documents(role: str | None, kept: str | None) -> None:
    """A planned pool can have the role of replicas that carry no load; documents know two other roles."""
    pasted = {"accelerator": "A", "numReplicas": 2, "costCentsPerH": 3.0, "itlMs": 9.0, "role": role}
    assert CurrentPool.model_validate(pasted).serving_role == kept
