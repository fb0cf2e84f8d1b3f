"""Nodes outside the plan: shares of their cost, replays, running fleets and manifests."""

import json
from pathlib import Path

import pytest
from builders import Json, accelerator, document, profile, refusal, server, service_class
from test_whole_nodes import example

from optimizer import load_system, solve
from optimizer.cli.main import main
from optimizer.plan import Plan
from optimizer.plan.document import Kept
from optimizer.plan.token_costs import token_costs
from optimizer.render.cluster_table import ClusterTable, NodeEntry
from optimizer.render.deployments import Deployments
from optimizer.render.manifests import node_comment, variants
from optimizer.schema.files import spec_from_value
from optimizer.spec.changes import SystemChange
from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.system import System
from optimizer.stabilisation.free_cards import FreeCards
from optimizer.stabilisation.rules import Rules
from optimizer.studies.figures.figure_document import GridPanel
from optimizer.studies.figures.making import make_figure
from optimizer.studies.replay.replay import replay
from rest_server.fleet import Entities, kept_allocation


def sixteen() -> System:
    """Return a replica of 16 cards, and one of one card, on nodes of 8."""
    cards = [accelerator("16xH", "H", 0, 16), accelerator("1xH", "H", 0)]
    models = [profile("m", "16xH"), profile("n", "1xH")]
    classes = [service_class("gold", 1, ("m", "n"))]
    servers = [server("a", model="m"), server("b", model="n")]
    nodes = [{"name": "p5", "type": "H", "cards": 8, "cost": 28, "maxNodes": 4}]
    return load_system(document(servers, cards, {}, models=models, classes=classes) | {"nodes": nodes})


def test_pools_share_the_cost_of_nodes_and_of_free_cards() -> None:
    system = load_system(example())
    plan = solve(system)
    (inside,) = plan.nodes[0].contents
    assert [one.cost_cents_per_h for one in inside.replicas] == pytest.approx([2800 / 5, 2800 * 4 / 5])
    tokens = token_costs(plan, system)
    per_h = {
        name: each / 1e6 * 60 * load.arrival_rate_rpm * (load.in_tokens + load.out_tokens)
        for name, each in tokens.items()
        if (load := system.servers[name].current.load)
    }
    assert sum(per_h.values()) == pytest.approx(plan.total_cost_cents_per_h)


def test_a_replay_pays_for_whole_nodes(tmp_path: Path) -> None:
    """Each interval costs the nodes of the plan for the load at its start."""
    system, rates = load_system(example()), [60.0, 9000.0, 60.0, 60.0]
    loads = tmp_path / "loads.csv"
    loads.write_text("time,a,b\n" + "".join(f"{3600 * i},{n},{n}\n" for i, n in enumerate(rates)))
    trace = read_load_trace(system, loads)
    followed, _ = replay(system, trace, {"every plan": Rules()}, 0.0).variants
    plans = []
    for rate in rates[:-1]:
        found = example()
        for one in found["servers"]:
            one["currentAlloc"]["load"]["arrivalRate"] = rate
        plans.append(solve(load_system(found)))
    assert plans[1].nodes[0].num_nodes > 1
    assert followed.cost == pytest.approx(sum(plan.total_cost_cents_per_h for plan in plans))


def test_free_cards_of_a_running_fleet_are_those_of_nodes() -> None:
    """Three nodes hold one more replica of 16 cards in two empty nodes, or eight of one card."""
    free = FreeCards.of(sixteen())
    free.take("a", "16xH", 1)
    assert (free.fitting("a", "16xH", 9), free.fitting("b", "1xH", 99)) == (1, 16)
    free.take("b", "1xH", 20)
    assert free.is_short
    assert free.missing("b", "1xH") == 4


def test_manifests_follow_the_cards_of_nodes() -> None:
    system = sixteen()
    plan = solve(system)
    table = ClusterTable().with_nodes_of(system)
    assert {one.accelerator: one.nodes for one in variants(plan, system, table)} == {"16xH": 2, "1xH": 1}
    assert "3 p5 (8 cards each)" in node_comment(plan)
    own = ClusterTable(nodes=(NodeEntry(accelerator="H", cards=4),))
    assert [*own.unknown_names(system)] == [
        "nodes[0].cards: 4, but the largest node of H in the system has 8"
    ]
    assert node_comment(Plan.model_validate({**json.loads(plan.to_json()), "nodes": []})) == ""


def test_pods_select_the_only_node_type_of_their_replicas() -> None:
    """The plan has two replicas of four cards on the owned node; all others are on `rented`."""
    nodes = [
        {"name": "owned", "type": "H", "cards": 8, "cost": 0, "maxNodes": 1},
        {"name": "rented", "type": "H", "cards": 8, "cost": 28},
    ]
    found = example(nodes)
    for one in found["servers"]:
        one["currentAlloc"]["load"]["arrivalRate"] = 1500
    system = load_system(found)
    plan = solve(system)
    labels = {"pool": "rented"}
    table = ClusterTable(nodes=(NodeEntry(accelerator="rented", labels=labels),)).with_nodes_of(system)
    assert [*table.unknown_names(system)] == []
    small, large = variants(plan, system, table)
    assert small.node_types == (("rented", 3),)
    assert large.node_types == (("owned", 2), ("rented", 1))
    made = Deployments(system, table, "serving", "vllm")
    pods = [made.of(one)["spec"]["template"]["spec"] for one in (small, large)]
    assert [pod["nodeSelector"] == labels for pod in pods] == [True, False]
    notes = [made.of(one)["metadata"]["annotations"]["inferplan.dev/nodes"] for one in (small, large)]
    assert notes == ["3 in rented", "2 in owned, 1 in rented"]


def test_horizons_of_nodes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "system.json"
    path.write_text(json.dumps(example()))
    assert main(["horizon", str(path), "--factors", "1,2"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nodes" in line
    assert "plan each load with solve" in line


def on_node(node: str, replicas: int = 1, **more: str) -> Json:
    return {"pools": [{"accelerator": "1xH", "numReplicas": replicas, "node": node} | more]}


@pytest.mark.parametrize(
    ("section", "change", "way"),
    [
        ("nodes", {"spareNodes": 2, "maxNodes": 1}, "spareNodes: 2 exceeds maxNodes, 1"),
        ("nodes", {"count": 2}, "limit them with maxNodes"),
        ("servers", on_node("p5"), "the name of a node type and the number of the node, such as p5/3"),
        ("servers", on_node("p4/1"), "node type 'p4' does not exist"),
        ("servers", on_node("p5/1", 9), "p5/1 has 8 cards, but its replicas have 9"),
        ("servers", on_node("p5/1", mode="shared"), "only pools with mode own"),
    ],
)
def test_what_is_not_planned_is_refused_with_the_way_on(section: str, change: Json, way: str) -> None:
    found = example()
    item = found[section][0]
    (item["currentAlloc"] if section == "servers" else item).update(change)
    assert way in refusal(lambda: load_system(found))


def test_cards_of_nodes_have_no_count_to_sweep() -> None:
    system = load_system(example())
    assert "change maxNodes of p5" in refusal(lambda: SystemChange("count", "H", 4).applied_to(system))
    assert "change maxNodes of p5" in refusal(lambda: system.with_capacity({"H": 4}))


def test_a_picture_shows_the_cards_of_nodes() -> None:
    (panel,) = make_figure(load_system(example()), "nodes").panels
    assert isinstance(panel, GridPanel)
    assert panel.rows == ("1 × p5",)
    assert [cell.text for cell in panel.cells[0]] == [*"bbbb", "a", *["free"] * 3]
    assert [cell.group for cell in panel.cells[0]] == [*["H"] * 5, *[""] * 3]
    assert (
        "has no nodes" in make_figure(load_system(document([server("s")], [accelerator("A")])), "nodes").note
    )


def test_a_stateful_service_keeps_nodes() -> None:
    fleet = Entities.of(spec_from_value(example()))
    assert solve(fleet.system()).total_cost_cents_per_h == 2800
    assert [*fleet.section("nodes")] == ["p5"]


@pytest.mark.parametrize("kept", [1, 3])
def test_an_unserved_server_keeps_its_replicas_on_nodes_once(kept: int) -> None:
    """The nodes stay stated if all replicas are kept; otherwise it is not known which ones are."""
    found = example()
    pools = [{"accelerator": "1xH", "numReplicas": n, "node": f"p5/{n}"} for n in (1, 2)]
    found["servers"][0]["currentAlloc"] |= {"accelerator": "1xH", "numReplicas": 3, "pools": pools}
    system = load_system(found)
    plan = Plan.model_validate(json.loads(solve(system).to_json()))
    plan = plan.model_copy(update={"kept": (Kept(server="a", accelerator="1xH", num_replicas=kept),)})
    allocation = kept_allocation(plan, system.servers["a"])
    assert allocation.replicas == {"1xH": kept}
    assert bool(allocation.pools) == (kept == 3)
