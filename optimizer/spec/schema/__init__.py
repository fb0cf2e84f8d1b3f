"""Immutable pydantic models of the documents: one schema for YAML, JSON, Python and REST.

Wire names are those of the reference, llm-inferno (docs/glossary.md), matched in any case; Python names
include the unit (``arrival_rate_rpm``). Unknown keys, wrong types, NaN and infinity are errors with their
path.
"""

from optimizer.kinds.fields import DEFAULT_MAX_BATCH, LatencyTarget, Load
from optimizer.spec.schema.accelerators import Accelerator, Capacity, Power, PriceTier
from optimizer.spec.schema.allocations import AllocationData, CurrentPool
from optimizer.spec.schema.classes import OFFLINE_PRIORITY, ModelTarget, ServiceClass, priority_name
from optimizer.spec.schema.offline_fields import OfflineWork
from optimizer.spec.schema.options import AnyCasePolicy, OptimizerOptions, SaturationPolicy
from optimizer.spec.schema.profiles import EstimateEnd, EstimateSettings, ModelProfile
from optimizer.spec.schema.reserve_fields import External
from optimizer.spec.schema.route_fields import RequestKind, Route
from optimizer.spec.schema.servers import Server
from optimizer.spec.schema.system import SystemSpec
from optimizer.spec.schema.version_fields import VersionShare

__all__ = [
    "DEFAULT_MAX_BATCH",
    "OFFLINE_PRIORITY",
    "Accelerator",
    "AllocationData",
    "AnyCasePolicy",
    "Capacity",
    "CurrentPool",
    "EstimateEnd",
    "EstimateSettings",
    "External",
    "LatencyTarget",
    "Load",
    "ModelProfile",
    "ModelTarget",
    "OfflineWork",
    "OptimizerOptions",
    "Power",
    "PriceTier",
    "RequestKind",
    "Route",
    "SaturationPolicy",
    "Server",
    "ServiceClass",
    "SystemSpec",
    "VersionShare",
    "priority_name",
]
