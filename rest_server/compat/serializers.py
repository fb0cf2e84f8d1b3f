"""Items in llm-inferno's JSON format: every key of its types, with zero for missing values.

Values without a key in llm-inferno (``perfParms``, ``maxQueueSize``) are written if they were given. Integers
are written without a fraction, because its clients read many of them into integers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from optimizer.documents import Document
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
"""Integral floats above this are not converted to integers."""
_OF_SERVERS = (
    *("max_num_replicas", "max_queue_size", "accelerators", "split", "roll_back"),
    *("headroom_share", "spare_replicas", "availability_target", "preferred", "external"),
)


def plain_json(value: Any) -> Any:
    """Return plain values in which every integral float is an integer."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < EXACT else value
    if isinstance(value, Mapping):
        return {key: plain_json(item) for key, item in value.items()}
    return [plain_json(item) for item in value] if isinstance(value, list | tuple) else value


def accelerator_json(item: Accelerator) -> dict[str, Any]:
    """Return an accelerator in llm-inferno's JSON format."""
    return {
        "name": item.name,
        "type": _given(item, "type", ""),
        "multiplicity": _given(item, "multiplicity", 0),
        **_wire(item, "memory_gb", "memory_bandwidth_gb_per_s"),
        "power": _wire(item.power, "idle_w", "full_w", "mid_power_w", "mid_utilization"),
        **_wire(item, "cost_cents_per_h"),
        **_beyond(item, ("availability", "tiers")),
    }


def profile_json(item: ModelProfile) -> dict[str, Any]:
    """Return a model profile in llm-inferno's JSON format."""
    decode, prefill = item.decode or DecodeParms(), item.prefill or PrefillParms()
    return {
        **_wire(item, "name", "accelerator"),
        "accCount": _given(item, "acc_count", 0),
        **_wire(item, "max_batch_size", "at_tokens"),
        "decodeParms": _wire(decode, "base_ms", "per_request_ms"),
        "prefillParms": _wire(prefill, "base_ms", "per_token_ms"),
        **({} if item.iteration is None else {"perfParms": law_json(item.iteration)}),
        **_beyond(item, ("kv_capacity_tokens", "max_num_tokens", "scheduler")),
    }


def law_json(item: PerfParms) -> dict[str, Any]:
    """Return an iteration law in the JSON format of llm-inferno's newest version.

    It has the three terms of llm-inferno, and others if they were given.
    """
    given: dict[str, Any] = plain_json(item.model_dump(mode="json", by_alias=True, exclude_unset=True))
    return given | _wire(item, "base_ms", "compute_per_token_ms", "kv_read_per_token_ms")


def target_json(item: ModelTarget) -> dict[str, Any]:
    """Return the targets of a model in llm-inferno's JSON format."""
    return _wire(item, "model", "itl_ms", "ttft_ms", "tps")


def service_class_json(item: ServiceClass) -> dict[str, Any]:
    """Return a service class in llm-inferno's JSON format."""
    targets = [target_json(target) for target in item.model_targets]
    own = _beyond(item, ("headroom_share",))
    return {"name": item.name, "priority": item.priority, "modelTargets": targets, **own}


def server_json(item: Server) -> dict[str, Any]:
    """Return a server in llm-inferno's JSON format."""
    return {
        "name": item.name,
        "class": _given(item, "service_class", ""),
        **_wire(item, "model", "keep_accelerator", "min_num_replicas", "max_batch_size"),
        **_beyond(item, _OF_SERVERS),
        "currentAlloc": allocation_json(item.current),
        "desiredAlloc": allocation_json(item.desired),
    }


def allocation_json(item: AllocationData) -> dict[str, Any]:
    """Return an allocation in llm-inferno's JSON format."""
    return {
        **_wire(item, "accelerator", "num_replicas", "max_batch", "cost_cents_per_h", "itl_ms", "ttft_ms"),
        **_beyond(item, ("avg_concurrency", "pools")),
        "load": load_json(item.load),
    }


def kept_json(item: AllocationData) -> dict[str, Any]:
    """Return a retained allocation in the format of a planned one, with only llm-inferno's fields."""
    shape = allocation_json(item)
    for beyond in ("avgConcurrency", "pools"):
        shape.pop(beyond, None)
    shape["load"].pop("throughput", None)
    return shape


def load_json(item: Load) -> dict[str, Any]:
    """Return a load in llm-inferno's JSON format."""
    three = _wire(item, "arrival_rate_rpm", "in_tokens", "out_tokens")
    return three | _beyond(item, ("throughput_rpm",))


def _wire(item: Document, *names: str) -> dict[str, Any]:
    """Return the values of fields by their wire names, which are those of llm-inferno."""
    fields = type(item).model_fields
    return {fields[name].alias or name: plain_json(_dumped(getattr(item, name))) for name in names}


def _given(item: Document, field: str, zero: object) -> object:
    """Return the value of a field if it was given, else the zero value of Go."""
    return getattr(item, field) if field in item.model_fields_set else zero


def _beyond(item: Document, names: Iterable[str]) -> dict[str, Any]:
    """Return the given values of fields for which llm-inferno has no key."""
    return _wire(item, *(name for name in names if _given(item, name, None) is not None))


def _dumped(value: Any) -> Any:
    """Convert documents within a value to plain values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return [_dumped(item) for item in value] if isinstance(value, tuple) else value
