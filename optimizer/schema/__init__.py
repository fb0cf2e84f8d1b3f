"""Immutable pydantic models of the documents: one schema for YAML, JSON, Python and REST.

Wire names are those of the reference, llm-inferno (docs/glossary.md), matched in any case; Python names
include the unit (``arrival_rate_rpm``). Unknown keys, wrong types, NaN and infinity are errors with their
path.
"""

from typing import TYPE_CHECKING

from optimizer.lazy import names_of_modules

if TYPE_CHECKING:
    from optimizer.features.external.fields import External
    from optimizer.features.offline.fields import OfflineWork
    from optimizer.features.routes.fields import RequestKind, Route
    from optimizer.features.tiers.fields import PriceTier
    from optimizer.features.versions.fields import VersionShare
    from optimizer.kinds.fields import DEFAULT_MAX_BATCH, LatencyTarget, Load
    from optimizer.schema.accelerators import Accelerator, Capacity, Power
    from optimizer.schema.allocations import AllocationData, CurrentPool
    from optimizer.schema.classes import OFFLINE_PRIORITY, ModelTarget, ServiceClass, priority_name
    from optimizer.schema.options import AnyCasePolicy, OptimizerOptions, SaturationPolicy
    from optimizer.schema.profiles import EstimateEnd, EstimateSettings, ModelProfile
    from optimizer.schema.servers import Server
    from optimizer.schema.system import SystemSpec

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

__getattr__, __dir__ = names_of_modules(__name__)
