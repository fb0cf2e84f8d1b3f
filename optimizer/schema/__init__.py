"""Immutable pydantic models of the documents: one schema for YAML, JSON, Python and REST.

Wire names are those of the reference, llm-inferno (docs/glossary.md), matched in any case; Python names
include the unit (``arrival_rate_rpm``). Unknown keys, wrong types, NaN and infinity are errors with their
path.
"""

from typing import TYPE_CHECKING

from optimizer.lazy import names_of_modules

if TYPE_CHECKING:
    from optimizer.documents import EstimateEnd
    from optimizer.features.routes.fields import Route
    from optimizer.kinds.fields import Load
    from optimizer.schema.accelerators import Accelerator, Capacity
    from optimizer.schema.allocations import AllocationData, CurrentPool
    from optimizer.schema.classes import ModelTarget, ServiceClass
    from optimizer.schema.options import OptimizerOptions, SaturationPolicy
    from optimizer.schema.profiles import ModelProfile
    from optimizer.schema.servers import Server
    from optimizer.schema.system import SystemSpec

__all__ = [
    "Accelerator",
    "AllocationData",
    "Capacity",
    "CurrentPool",
    "EstimateEnd",
    "Load",
    "ModelProfile",
    "ModelTarget",
    "OptimizerOptions",
    "Route",
    "SaturationPolicy",
    "Server",
    "ServiceClass",
    "SystemSpec",
]

__getattr__, __dir__ = names_of_modules(
    __name__,
    {
        "optimizer.features.routes.fields": ("Route",),
        "optimizer.kinds.fields": ("Load",),
        "optimizer.schema.accelerators": ("Accelerator", "Capacity"),
        "optimizer.schema.allocations": ("AllocationData", "CurrentPool"),
        "optimizer.schema.classes": ("ModelTarget", "ServiceClass"),
        "optimizer.schema.options": ("OptimizerOptions", "SaturationPolicy"),
        "optimizer.documents": ("EstimateEnd",),
        "optimizer.schema.profiles": ("ModelProfile",),
        "optimizer.schema.servers": ("Server",),
        "optimizer.schema.system": ("SystemSpec",),
    },
)
