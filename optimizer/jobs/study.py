"""Studies: questions about a system, each a command, two routes under ``/v1`` and a method of the clients."""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeVar, cast, overload

if TYPE_CHECKING:
    from optimizer.section import Section
    from optimizer.spec.system import System

Options = TypeVar("Options")
Answer = TypeVar("Answer")
_OptionsT_contra = TypeVar("_OptionsT_contra", contravariant=True)
_AnswerT_co = TypeVar("_AnswerT_co", covariant=True)


class Fleet(Enum):
    """Marker for the fleet of a stateful service."""

    FLEET = "fleet"


FLEET: Final = Fleet.FLEET
"""Argument of a client's method that selects the fleet of a stateful service instead of a system."""


@dataclass(frozen=True, slots=True)
class Study(Generic[Options, Answer]):
    """A question about a system, with its options and the type of its answer."""

    title: str
    """Title of the route that takes a system: an imperative sentence without a full stop."""
    options: type[Options]
    """Subclass of `Request`: the flags, query parameters and client options."""
    answer: Any
    """Type of the answer: a document, or a union of documents."""
    run: Callable[..., Answer]
    """Function that answers the question for a system, to which the given optimizer options are already
    applied. It can have a parameter `progress`, called with the numbers of finished parts and of all parts.
    Its docstring before `Args` and `Raises` describes the routes.
    """
    sections: "Callable[[Answer], list[Section]] | None" = None
    """Function that renders the answer as sections; None if the command is not derived from the study."""
    table_names: tuple[str, ...] = ()
    """Table names accepted by ``--table``."""
    csv: Callable[[Answer], str] | None = None
    """Function that writes the answer for ``--csv``; None writes one of the tables."""
    media_types: Mapping[str, str] = field(default_factory=dict)
    """Media types of the formats other than JSON, by the value of the option `format`."""
    page: "Callable[[Answer, System, Options], bytes] | None" = None
    """Function that writes the answer in the requested format other than JSON."""
    working: str = ""
    """Word for the progress display: ``sweeping``. If given, the work can run on a cluster."""
    simulates: bool = False
    """Whether it simulates replicas."""
    has_load: bool = True
    """Whether the command can replace the loads of the system."""
    epilog: str = ""
    """Text at the end of the command's help."""

    def answered(
        self,
        system: "System",
        options: Options,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Answer:
        """Return the answer of the study for a system."""
        more = [progress] if "progress" in inspect.signature(self.run).parameters else []
        return self.run(system, options, *more)

    @property
    def description(self) -> str:
        """Return the description of the routes."""
        text = inspect.cleandoc(self.run.__doc__ or "")
        return text.partition("\n\nArgs:")[0].partition("\n\nRaises:")[0]


class Blocking(Protocol):
    """A client with blocking methods."""

    blocks: Literal[True]


class Awaited(Protocol):
    """A client with awaitable methods."""

    blocks: Literal[False]


class Method(Protocol[_OptionsT_contra, _AnswerT_co]):
    """Method of a client."""

    def __call__(self, system: Any, options: _OptionsT_contra | None = None) -> _AnswerT_co:
        """Answer the question for a system, or `FLEET`."""


class StudyEntry(Generic[Options, Answer]):
    """Entry of a study in the table; loads the study's module on first use."""

    def __init__(self, module: str, summary: str, command: str | None = None) -> None:
        """Describe the study without importing it.

        Args:
            module: name of the module in `optimizer.jobs`; its `STUDY` is the study.
            summary: one line for the help of the program.
            command: name of the command; None selects the study's name.
        """
        self.summary = summary
        self.name = ""
        self._module = module
        self._command = command

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def command(self) -> str:
        """Return the name of the command."""
        return self._command or self.name

    @property
    def study(self) -> Study[Options, Answer]:
        """Return the study, importing its module on first use."""
        found = import_module(f"optimizer.jobs.{self._module}").STUDY
        return cast("Study[Options, Answer]", found)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Method[Options, Answer]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Method[Options, Coroutine[Any, Any, Answer]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Return the entry, or for a client the method that asks the service."""
        return self if client is None else client.method_of(self)
