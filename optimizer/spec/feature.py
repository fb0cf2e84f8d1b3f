"""What a feature says of itself: who uses it, what it does not go with, and its faults in documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from types import MappingProxyType

from optimizer.schema import Accelerator, ModelProfile, Server
from optimizer.schema.files import Part
from optimizer.schema.names import Finding, Index, Names


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents with an index of their items."""

    parts: Sequence[Part]
    index: Index
    profiles: Mapping[str, Sequence[ModelProfile]]
    """Profiles of each model."""
    names: Mapping[str, Names]
    """Defined names, by section: accelerators, classes, models, servers."""
    lengths_optional: bool
    """Whether an unstated input or output length is 0 instead of a fault."""


def _no(_: object) -> bool:
    return False


def _none(_: Documents) -> Iterator[Finding]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, for the checks of documents and for what runs only if a system uses it."""

    name: str
    """Name of its folder."""
    field: str
    """Field of servers that selects it, by Python name; for routes, the section of a system."""
    of_server: Callable[[Server], object] = _no
    """Whether a server uses it, as stated in a document or in planned form."""
    of_accelerator: Callable[[Accelerator], object] = _no
    """Whether an accelerator uses it."""
    refused_fields: Mapping[str, str] = default(default_factory=lambda: MappingProxyType({}))
    """Fields of the servers that use it, by Python name, that it does not support, with the reasons."""
    refused_options: Mapping[str, str] = default(default_factory=lambda: MappingProxyType({}))
    """Options that it does not support, by Python name, with the reasons."""
    goes_with: frozenset[str] | None = None
    """Other features that its servers can use, if only those were tried; None: all but the refused fields."""
    has_coupling: bool = False
    """Whether it has a `coupling`: a topology with variables and rows of its own."""
    has_checks: bool = False
    """Whether it has `checks` with a function `check`, which finds errors of plans."""
    faults: Callable[[Documents], Iterator[Finding]] = _none
    """The contradictions of documents that use it."""
