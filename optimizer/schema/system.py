"""The document of a system."""

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
    """The available accelerators."""
    models: tuple[ModelProfile, ...] = Field((), strict=False, fail_fast=True)
    """Profiles of models on accelerators."""
    service_classes: tuple[ServiceClass, ...] = Field(
        (), alias="serviceClasses", strict=False, fail_fast=True
    )
    """The service classes, with their targets."""
    servers: tuple[Server, ...] = Field((), strict=False, fail_fast=True)
    """The servers to place, with their loads."""
    count: tuple[Capacity, ...] = Field((), strict=False, fail_fast=True)
    """Cards by accelerator type; unless unlimited, a type that is not listed has none."""
    optimizer: OptimizerOptions = OptimizerOptions()
    """Options of the optimizer."""
