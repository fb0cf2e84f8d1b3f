"""Description of a feature: the fields that select it, what it does not support, and its checks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from optimizer.documents import Document
from optimizer.schema import Accelerator, ModelProfile, Server
from optimizer.schema.files import Part
from optimizer.schema.names import Entry, Finding, Index, Names
from optimizer.schema.positions import Location


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents of one system, with an index of their items."""

    parts: Sequence[Part]
    index: Index
    profiles: Mapping[str, Sequence[ModelProfile]]
    """Model profiles by model."""
    names: Mapping[str, Names]
    """Names that are defined, by section: accelerators, classes, models, servers and nodes."""
    lengths_optional: bool
    """Whether an unstated input or output length counts as 0 instead of as a fault."""
    known: frozenset[int] = frozenset()
    """Identities of the items that were checked before."""

    def unchecked(self, section: Mapping[Any, Entry]) -> Iterator[Entry]:
        """Yield the items of a section of the index that were not checked before."""
        return (entry for entry in section.values() if id(entry.item) not in self.known)


def _none(_: object) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of systems, such as routes: how documents select it, and what it needs or excludes."""

    name: str
    """Name of the feature, which is also that of its folder."""
    fields: tuple[str, ...] = ()
    """Server fields that select the feature, by Python name, in documents or in planned form."""
    fields_of_accelerators: tuple[str, ...] = ()
    """Accelerator fields that select the feature, by Python name."""
    section: str = ""
    """Section of documents whose items select the feature; empty for none."""
    refused_fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Server fields that the feature does not support, by Python name, with the reasons."""
    refused_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Options that the feature does not support, by Python name, with the reasons."""
    refuses_shapes: str = ""
    """Reason why the feature does not support request shapes and shared prefixes; empty if it does."""
    goes_with: frozenset[str] | None = None
    """Other features that can be used together with this one; None: all that do not use a refused field."""
    has_offers: bool = False
    """Whether the feature has a module `offers` whose function `offered` returns additional candidates."""
    has_topology: bool = False
    """Whether the feature has a module `topology`, a topology with its own variables and rows."""
    has_checks: bool = False
    """Whether the feature has a module `checks` whose function `check` finds errors of plans."""
    faults: Callable[[Documents], Iterator[Finding]] = _none
    """Function that yields the contradictions of documents that use the feature."""
    faults_alone: Callable[[Document], Iterator[tuple[Location, str]]] = _none
    """Function that yields the location and message of each contradiction within one item of a document."""

    def of_server(self, server: Server) -> bool:
        """Return whether a server uses the feature."""
        return self.field_of(server) is not None

    def field_of(self, server: Server) -> str | None:
        """Return the field by which a server uses the feature; None if the server does not use it."""
        given = next((name for name in self.fields if _is_given(server, name)), None)
        return None if given is None else type(server).model_fields[given].alias or given

    def of_accelerator(self, accelerator: Accelerator) -> bool:
        """Return whether an accelerator uses the feature."""
        return any(_is_given(accelerator, name) for name in self.fields_of_accelerators)


def _is_given(document: Document, name: str) -> bool:
    value = getattr(document, name, None)
    return value is not None and value is not False and value != 0
