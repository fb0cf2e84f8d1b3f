"""A complete system, or a part of one."""

from pydantic import Field

from optimizer.documents import Document
from optimizer.spec.schema.accelerators import Accelerator, Capacity
from optimizer.spec.schema.classes import ServiceClass
from optimizer.spec.schema.options import OptimizerOptions
from optimizer.spec.schema.profiles import ModelProfile
from optimizer.spec.schema.servers import Server


class SystemSpec(Document):
    """A complete system, or the part of one that a file of a directory holds."""

    accelerators: tuple[Accelerator, ...] = Field((), strict=False, fail_fast=True)
    """The accelerators that can be bought."""
    models: tuple[ModelProfile, ...] = Field((), strict=False, fail_fast=True)
    """Profiles: every model on every accelerator that it can run on."""
    service_classes: tuple[ServiceClass, ...] = Field(
        (), alias="serviceClasses", strict=False, fail_fast=True
    )
    """The service classes with their targets."""
    servers: tuple[Server, ...] = Field((), strict=False, fail_fast=True)
    """The servers to be placed, with their loads."""
    count: tuple[Capacity, ...] = Field((), strict=False, fail_fast=True)
    """Units by accelerator type; in limited mode a type that is not listed has none."""
    optimizer: OptimizerOptions = OptimizerOptions()
    """How to choose."""
