"""The description of a feature: its fields, what it does not support, and its checks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from optimizer.documents import Document
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


def _none(_: Documents) -> Iterator[Finding]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, for the checks of documents and for what runs only if a system uses it."""

    name: str
    """Name of its folder."""
    fields: tuple[str, ...] = ()
    """Fields of servers that select it, by Python name, in documents or in planned form."""
    fields_of_accelerators: tuple[str, ...] = ()
    """Fields of accelerators that select it."""
    refused_fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Fields of the servers that use it, by Python name, that it does not support, with the reasons."""
    refused_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Options that it does not support, by Python name, with the reasons."""
    goes_with: frozenset[str] | None = None
    """Other features that its servers can use, if only those were tried; None: all but the refused fields."""
    has_coupling: bool = False
    """Whether it has a `coupling`: a topology with variables and rows of its own."""
    has_checks: bool = False
    """Whether it has `checks` with a function `check`, which finds errors of plans."""
    faults: Callable[[Documents], Iterator[Finding]] = _none
    """The contradictions of documents that use it."""

    def of_server(self, server: Server) -> bool:
        """Return whether a server uses it."""
        return self.field_of(server) is not None

    def field_of(self, server: Server) -> str | None:
        """Return the field by which a server uses it; None if the server does not."""
        return next((name for name in self.fields if _is_given(server, name)), None)

    def of_accelerator(self, accelerator: Accelerator) -> bool:
        """Return whether an accelerator uses it."""
        return any(_is_given(accelerator, name) for name in self.fields_of_accelerators)


def _is_given(document: Document, name: str) -> bool:
    value = getattr(document, name, None)
    return value is not None and value is not False and value != 0


def used_features(
    features: Iterable[Feature], servers: Iterable[Server], accelerators: Iterable[Accelerator]
) -> frozenset[str]:
    """Return the names of the features that some servers and accelerators use."""
    servers, accelerators = tuple(servers), tuple(accelerators)
    return frozenset(
        feature.name
        for feature in features
        if any(map(feature.of_server, servers)) or any(map(feature.of_accelerator, accelerators))
    )
