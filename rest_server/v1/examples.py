"""Examples of request bodies, which OpenAPI shows; each one is valid input."""

from typing import Any

ACCELERATOR: dict[str, Any] = {"name": "A100", "type": "A100", "memSize": 80, "cost": 40.0}
LAW = {"decodeParms": {"alpha": 6.7, "beta": 0.05}, "prefillParms": {"gamma": 5.2, "delta": 0.0002}}
PROFILE: dict[str, Any] = {"name": "llama_8b", "acc": "A100", "maxBatchSize": 64, "atTokens": 512, **LAW}
SERVICE_CLASS: dict[str, Any] = {
    "name": "Premium",
    "priority": 1,
    "modelTargets": [{"model": "llama_8b", "slo-itl": 24, "slo-ttft": 500}],
}
LOAD: dict[str, Any] = {"arrivalRate": 600, "avgInTokens": 128, "avgOutTokens": 256}
SERVER: dict[str, Any] = {
    "name": "Premium-llama_8b",
    "class": "Premium",
    "model": "llama_8b",
    "currentAlloc": {"load": LOAD},
}
CAPACITY: dict[str, Any] = {"type": "A100", "count": 16}
ROUTE: dict[str, Any] = {
    "name": "chat",
    "small": "chat-8b",
    "large": "chat-70b",
    "arrivalRate": 6000,
    "maxLoss": 0.02,
    "kinds": [{"share": 1, "inTokens": 300, "outTokens": 150, "loss": 0.05}],
}
OPTIONS: dict[str, Any] = {"unlimited": False, "saturationPolicy": "PriorityExhaustive"}
SYSTEM: dict[str, Any] = {
    "accelerators": [ACCELERATOR],
    "models": [PROFILE],
    "serviceClasses": [SERVICE_CLASS],
    "servers": [SERVER],
    "count": [CAPACITY],
}
WRAPPED: dict[str, Any] = {
    "system": {
        "acceleratorData": {"accelerators": [ACCELERATOR]},
        "modelData": {"models": [PROFILE]},
        "serviceClassData": {"serviceClasses": [SERVICE_CLASS]},
        "serverData": {"servers": [SERVER]},
        "capacityData": {"count": [CAPACITY]},
        "optimizerData": {"optimizer": OPTIONS},
    }
}
REPLICA: dict[str, Any] = {"maxBatch": 64, "inTokens": 128, "outTokens": 256, **LAW}
TARGETS: dict[str, Any] = {"ttft": 500, "itl": 24}


def _named(**values: object) -> dict[str, Any]:
    return {name: {"value": value} for name, value in values.items()}


SYSTEMS: Any = _named(bare=SYSTEM, wrapped=WRAPPED)
COMPARISONS: Any = SYSTEMS | _named(
    two_sides={"first": SYSTEM, "second": SYSTEM, "secondOptions": {"unlimited": True}}
)
OTHER_SIDES: Any = _named(other={"second": SYSTEM})
ANALYSES: Any = _named(
    one={"replica": REPLICA, "rate": 8.0},
    several={"items": [{"replica": REPLICA, "rate": 8.0}, {"replica": REPLICA, "rate": 12.0}]},
)
SIZINGS: Any = _named(
    one={"replica": REPLICA, "targets": TARGETS},
    several={"items": [{"replica": REPLICA, "targets": TARGETS}, {"replica": REPLICA}]},
)
LOADS: Any = _named(snapshot={SERVER["name"]: LOAD})
ENTITIES: Any = {
    "accelerators": _named(A100=ACCELERATOR),
    "models": _named(llama_8b=PROFILE),
    "serviceClasses": _named(Premium=SERVICE_CLASS),
    "servers": _named(Premium=SERVER),
    "count": _named(A100=CAPACITY),
    "optimizer": _named(saturation=OPTIONS),
    "routes": _named(chat=ROUTE),
}
"""Examples of single items, by section of documents."""
