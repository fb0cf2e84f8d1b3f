"""The document of a system: accelerators, models, service classes, servers, cards and options."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

from pydantic import Field

from optimizer.documents import Document
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


SECTION_OF: Mapping[type[Document], str] = MappingProxyType(
    {
        get_args(field.annotation)[0]: name
        for name, field in SystemSpec.model_fields.items()
        if name != "optimizer"
    }
)
"""Section of each type of item, by its Python name."""


def item_key(item: Any) -> Any:
    """Return the name of an item: the model and the accelerator of a profile, the type of cards."""
    kind = type(item)  # much faster than isinstance, which asks the metaclass of documents
    if ModelProfile in kind.__mro__:
        return item.name, item.accelerator
    return item.type if kind is Capacity else item.name
