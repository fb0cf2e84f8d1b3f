"""Entities in the reference's JSON format: every key of its types, with zero for missing values.

Values without a key in the reference (``perfParms``, ``maxQueueSize``) are written if they were given.
Integers are written without a fraction, because its clients read many of them into integers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from optimizer.documents import Document
from optimizer.features.external.fields import ExternalField
from optimizer.features.reserves.fields import ReserveFields
from optimizer.schema import (
    Accelerator,
    AllocationData,
    Load,
    ModelProfile,
    ModelTarget,
    Server,
    ServiceClass,
)
from optimizer.timing import DecodeParms, PerfParms, PrefillParms

EXACT = 2**53
"""Integers above this remain floats."""


def plain_json(value: Any) -> Any:
    """Return plain values in which every integral float is an integer."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < EXACT else value
    if isinstance(value, Mapping):
        return {key: plain_json(item) for key, item in value.items()}
    return [plain_json(item) for item in value] if isinstance(value, list | tuple) else value


def accelerator_json(item: Accelerator) -> dict[str, Any]:
    """Return an accelerator in the reference's JSON format."""
    power = item.power
    return {
        "name": item.name,
        "type": _given(item, "type", ""),
        "multiplicity": _given(item, "multiplicity", 0),
        "memSize": plain_json(item.memory_gb),
        "memBW": plain_json(item.memory_bandwidth_gb_per_s),
        "power": {
            "idle": plain_json(power.idle_w),
            "full": plain_json(power.full_w),
            "midPower": plain_json(power.mid_power_w),
            "midUtil": plain_json(power.mid_utilization),
        },
        "cost": plain_json(item.cost_cents_per_h),
        **_beyond(item, ("availability", "tiers")),
    }


def capacity_json(kind: str, count: int) -> dict[str, Any]:
    """Return the cards of an accelerator type in the reference's JSON format."""
    return {"type": kind, "count": count}


def profile_json(item: ModelProfile) -> dict[str, Any]:
    """Return a profile in the reference's JSON format."""
    decode, prefill = item.decode or DecodeParms(), item.prefill or PrefillParms()
    return {
        "name": item.name,
        "acc": item.accelerator,
        "accCount": _given(item, "acc_count", 0),
        "maxBatchSize": item.max_batch_size,
        "atTokens": item.at_tokens,
        "decodeParms": {"alpha": plain_json(decode.base_ms), "beta": plain_json(decode.per_request_ms)},
        "prefillParms": {"gamma": plain_json(prefill.base_ms), "delta": plain_json(prefill.per_token_ms)},
        **({} if item.iteration is None else {"perfParms": law_json(item.iteration)}),
        **_beyond(item, ("kv_capacity_tokens", "max_num_tokens", "scheduler")),
    }


def law_json(item: PerfParms) -> dict[str, Any]:
    """Return an iteration law in the newest reference's JSON format: three terms, plus others if given."""
    three = {
        "alpha": plain_json(item.base_ms),
        "beta": plain_json(item.compute_per_token_ms),
        "gamma": plain_json(item.kv_read_per_token_ms),
    }
    given: dict[str, Any] = plain_json(item.model_dump(mode="json", by_alias=True, exclude_unset=True))
    return given | three


def target_json(item: ModelTarget) -> dict[str, Any]:
    """Return the targets of a model in the reference's JSON format."""
    return {
        "model": item.model,
        "slo-itl": plain_json(item.itl_ms),
        "slo-ttft": plain_json(item.ttft_ms),
        "slo-tps": plain_json(item.tps),
    }


def service_class_json(item: ServiceClass) -> dict[str, Any]:
    """Return a service class in the reference's JSON format."""
    targets = [target_json(target) for target in item.model_targets]
    own = _beyond(item, ("headroom_share",))
    return {"name": item.name, "priority": item.priority, "modelTargets": targets, **own}


def server_json(item: Server) -> dict[str, Any]:
    """Return a server in the reference's JSON format."""
    return {
        "name": item.name,
        "class": _given(item, "service_class", ""),
        "model": item.model,
        "keepAccelerator": item.keep_accelerator,
        "minNumReplicas": item.min_num_replicas,
        "maxBatchSize": item.max_batch_size,
        **_beyond(
            item,
            (
                "max_num_replicas",
                "max_queue_size",
                "accelerators",
                "split",
                "roll_back",
                *ReserveFields.model_fields,
                *ExternalField.model_fields,
            ),
        ),
        "currentAlloc": allocation_json(item.current),
        "desiredAlloc": allocation_json(item.desired),
    }


def allocation_json(item: AllocationData) -> dict[str, Any]:
    """Return an allocation in the reference's JSON format."""
    return {
        "accelerator": item.accelerator,
        "numReplicas": item.num_replicas,
        "maxBatch": item.max_batch,
        "cost": plain_json(item.cost_cents_per_h),
        "itlAverage": plain_json(item.itl_ms),
        "ttftAverage": plain_json(item.ttft_ms),
        **_beyond(item, ("avg_concurrency", "pools")),
        "load": load_json(item.load),
    }


def kept_json(item: AllocationData) -> dict[str, Any]:
    """Return a retained allocation in the form of a plan's answer, with the reference's fields only."""
    shape = allocation_json(item)
    for beyond in ("avgConcurrency", "pools"):
        shape.pop(beyond, None)
    shape["load"].pop("throughput", None)
    return shape


def load_json(item: Load) -> dict[str, Any]:
    """Return a load in the reference's JSON format."""
    return {
        "arrivalRate": plain_json(item.arrival_rate_rpm),
        "avgInTokens": plain_json(item.in_tokens),
        "avgOutTokens": plain_json(item.out_tokens),
        **_beyond(item, ("throughput_rpm",)),
    }


def _given(item: Document, field: str, zero: object) -> object:
    """Return a field's value if it was given, else Go's zero value."""
    return getattr(item, field) if field in item.model_fields_set else zero


def _beyond(item: Document, names: Iterable[str]) -> dict[str, Any]:
    """Return the given values of fields that the reference has no key for."""
    found = {}
    for name in names:
        value = getattr(item, name)
        if name in item.model_fields_set and value is not None:
            wire = type(item).model_fields[name].alias or name
            found[wire] = plain_json(_dumped(value))
    return found


def _dumped(value: Any) -> Any:
    """Return a value with documents as plain values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return [_dumped(item) for item in value] if isinstance(value, tuple) else value
