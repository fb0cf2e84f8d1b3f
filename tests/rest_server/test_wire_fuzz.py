"""Whatever JSON a client sends on the reference's wire, it gets an answer, never a fault of the service."""

import json
from typing import Any

from api_clients import state_of
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from rest_server.state import FleetStore

NAMES = [
    "system", "acceleratorData", "accelerators", "modelData", "models", "serviceClassData", "serviceClasses",
    "serverData", "servers", "capacityData", "count", "optimizerData", "optimizer", "name", "NAME", "type",
    "acc", "accCount", "maxBatchSize", "atTokens", "decodeParms", "alpha", "prefillParms", "class", "model",
    "priority", "modelTargets", "slo-itl", "percentile", "currentAlloc", "accelerator", "numReplicas", "cost",
    "load", "arrivalRate", "avgOutTokens", "saturationPolicy", "unlimited", "RPS", "avgInputTokens",
    "avgOutputTokens", "targetITL", "unknown", "",
]  # fmt: skip
ROUTES = [
    "/setAccelerators", "/addAccelerator", "/setCapacities", "/setCapacity", "/setModels",
    "/setServiceClasses", "/addServiceClassModelTargets", "/setServers", "/addServer",
    "/addModelAcceleratorPerf", "/optimizeOne", "/optimize", "/queue/solve", "/queue/target",
    "/queue/optimize",
]  # fmt: skip
READERS = [
    "/getAccelerators", "/getCapacities", "/getModels", "/getServiceClasses", "/getServers",
    "/applyAllocation",
    "/getServer/x", "/addModel/é", "/getModel/%F0%9F%98%80", "/removeServer/%00",
]  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.sampled_from([0.5, -1.5, 1e9, 10**400, 2**63])
    | st.sampled_from(["", "x", "A", "m", "None", "\ud800", "é\n", "x" * 300])
)
bodies = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)


@given(sent=st.lists(st.tuples(st.sampled_from(ROUTES), bodies), min_size=1, max_size=6))
def test_no_body_is_answered_by_a_fault(running_service: TestClient, sent: list[tuple[str, Any]]) -> None:
    state_of(running_service).held = FleetStore(instance="run")
    for route, body in sent:
        answer = running_service.post(route, content=json.dumps(body))
        assert answer.status_code in {200, 400, 404}, (route, body, answer.text)
        json.loads(answer.text)
    for path in READERS:
        answer = running_service.get(path)
        assert answer.status_code in {200, 404}, (path, answer.text)
        json.loads(answer.text)
