"""Studies: questions about a system, each with a command, two routes under ``/v1`` and a client method."""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeVar, cast, overload

from optimizer.parallel import Progress, ignore_progress

if TYPE_CHECKING:
    from optimizer.section import Section
    from optimizer.spec.system import System

Options = TypeVar("Options")
Answer = TypeVar("Answer")
_OptionsT_contra = TypeVar("_OptionsT_contra", contravariant=True)
_AnswerT_co = TypeVar("_AnswerT_co", covariant=True)


class Fleet(Enum):
    """Type of `FLEET`, the argument of client methods that selects the fleet of a stateful service."""

    FLEET = "fleet"


FLEET: Final = Fleet.FLEET
"""Argument of client methods that selects the fleet of a stateful service instead of a system."""


@dataclass(frozen=True, slots=True)
class Study(Generic[Options, Answer]):
    """A question about a system, with its options and the type of its result."""

    title: str
    """Title of the route that takes a system: an imperative sentence without a full stop."""
    options: type[Options]
    """Subclass of `Request`, whose fields are the flags, query parameters and client options."""
    answer: Any
    """Type of the result: a document, or a union of documents."""
    run: Callable[..., Answer]
    """Function that answers the question for a system, to which the optimizer options are already applied. It
    can have a parameter `progress`, a function that it calls with the number of finished parts and of all
    parts. Its docstring before `Args` and `Raises` describes the routes.
    """
    sections: "Callable[[Answer], list[Section]] | None" = None
    """Function that converts the result to sections; None if the command is not derived from the study."""
    table_names: tuple[str, ...] = ()
    """Names of tables that ``--table`` accepts."""
    csv: Callable[[Answer], str] | None = None
    """Function that writes the result for ``--csv``; None writes one of the tables."""
    media_types: Mapping[str, str] = field(default_factory=dict)
    """Media types of the formats other than JSON, by the value of the option `format`."""
    page: "Callable[[Answer, System, Options], bytes] | None" = None
    """Function that writes the result in a format other than JSON."""
    working: str = ""
    """Word for the progress display: ``sweeping``. If given, the work can run on a cluster."""
    simulates: bool = False
    """Whether the study simulates replicas."""
    has_load: bool = True
    """Whether the command has the flag ``--load``, which replaces the loads of the system."""
    epilog: str = ""
    """Text at the end of the command's help."""

    def answered(self, system: "System", options: Options, progress: Progress = ignore_progress) -> Answer:
        """Run the study for a system, with the optimizer options applied; return the result."""
        more = [progress] if "progress" in inspect.signature(self.run).parameters else []
        return self.run(system, options, *more)

    @property
    def description(self) -> str:
        """Description of the routes: the docstring of `run` without `Args` and `Raises`."""
        text = inspect.cleandoc(self.run.__doc__ or "")
        return text.partition("\n\nArgs:")[0].partition("\n\nRaises:")[0]


class Blocking(Protocol):
    """A client with blocking methods."""

    blocks: Literal[True]


class Awaited(Protocol):
    """A client with awaitable methods."""

    blocks: Literal[False]


class Method(Protocol[_OptionsT_contra, _AnswerT_co]):
    """Method of a client that requests a study."""

    def __call__(self, system: Any, options: _OptionsT_contra | None = None) -> _AnswerT_co:
        """Request the study for a system, or for the service's fleet with `FLEET`."""


class StudyEntry(Generic[Options, Answer]):
    """Entry of a study in the table of studies; imports the study's module on first use."""

    def __init__(self, module: str, summary: str, command: str | None = None) -> None:
        """Create an entry without importing the study.

        Args:
            module: name of the module in `optimizer.jobs`; its `STUDY` is the study.
            summary: one-line summary for the help of the program.
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
        """Name of the study's command."""
        return self._command or self.name

    @property
    def study(self) -> Study[Options, Answer]:
        """The study; its module is imported on first use."""
        module = import_module(f"optimizer.jobs.{self._module}").STUDY
        return cast("Study[Options, Answer]", module)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Method[Options, Answer]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Method[Options, Coroutine[Any, Any, Answer]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Return the entry itself from the class, or from a client the method that requests the study."""
        return self if client is None else client.method_of(self)
