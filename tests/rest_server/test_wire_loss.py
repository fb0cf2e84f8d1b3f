"""What the reference's numbers lose, and who says so."""

from builders import accelerator, document, server
from wire_client import wire_client

from optimizer import load_system, solve


def test_the_references_lost_requests_are_named_in_a_header() -> None:
    body = document([server("a", 500, maxQueueSize=0), server("b", 60)], [accelerator("A")], milpSolver=True)
    lossy = wire_client(stateful=False).post("/optimizeOne", json=body)
    share = solve(load_system(body), max_loss="none").allocations["a"][0].loss
    assert lossy.headers["X-Inferplan-Loss"] == f"a={share:.3g}"
    assert share > 0.01
    bounded = dict(body, optimizer=body["optimizer"] | {"maxLoss": 0.001})
    answer = wire_client(stateful=False).post("/optimizeOne", json=bounded)
    assert "X-Inferplan-Loss" not in answer.headers
    replicas = [found.json()["allocations"]["a"]["numReplicas"] for found in (lossy, answer)]
    assert replicas[0] < replicas[1] == solve(load_system(body)).allocations["a"][0].num_replicas
