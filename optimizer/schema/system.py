"""The document of a system: accelerators, models, service classes, servers, cards and options."""

from pydantic import Field

from optimizer.features.fields import SystemFeatureFields
from optimizer.schema.accelerators import Accelerator, Capacity
from optimizer.schema.classes import ServiceClass
from optimizer.schema.options import OptimizerOptions
from optimizer.schema.profiles import ModelProfile
from optimizer.schema.servers import Server


class SystemSpec(SystemFeatureFields):
    """A complete system, or one file of a system in a directory."""

    accelerators: tuple[Accelerator, ...] = Field((), strict=False, fail_fast=True)
    """Accelerators that can be used."""
    models: tuple[ModelProfile, ...] = Field((), strict=False, fail_fast=True)
    """Model profiles, one for each model on an accelerator."""
    service_classes: tuple[ServiceClass, ...] = Field(
        (), alias="serviceClasses", strict=False, fail_fast=True
    )
    """Service classes, with their priorities and targets."""
    servers: tuple[Server, ...] = Field((), strict=False, fail_fast=True)
    """Servers to place, with their loads."""
    count: tuple[Capacity, ...] = Field((), strict=False, fail_fast=True)
    """Number of cards by accelerator type. Unless the plan is unlimited, a type that is not listed has none.
    """
    optimizer: OptimizerOptions = OptimizerOptions()
    """Options of the optimizer."""
