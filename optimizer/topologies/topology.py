"""The interface of a topology: which servers serve together, and what that adds to a model.

A topology is to servers what a limit is to replicas: solvers ask it for rows, variables and masks, and know
none by name. Without any, every server serves its load with its own replicas.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.milp.rows import ModelRows

Values = npt.NDArray[Any]
"""Numbers or truth values, one for each variable of a block."""
Label = tuple[str, str, int, int]
"""Name, meaning, server and accelerator (-1: none) of a variable."""


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """The first variables of a model, n of candidates and one of each server with a candidate."""

    rows: IntArray
    """Row of the candidate table of each column, shape (n,)."""
    most: IntArray
    """Upper bounds, shape (n,)."""
    servers: IntArray
    """Servers with a column, in their order."""
    is_single: bool
    """Whether each server has one accelerator."""
    on_leaving: FloatArray
    """What a server without replicas adds to the changes, shape (S,)."""
    first: int
    """Index of the first of the topology's own variables."""

    def unserved(self, server: int) -> int:
        """Return the index of the variable that is 1 if a server is unserved."""
        return len(self.rows) + int(np.searchsorted(self.servers, server))


@dataclass(frozen=True, slots=True)
class Variables:
    """A block of variables of a model, from zero on."""

    upper: FloatArray
    """Upper bounds, shape (v,), as are all coefficients."""
    point: Callable[[IntArray], Values]
    """Computes their values in a solution, shape (C,)."""
    labels: Iterable[Label]
    value: Values | float = 0.0
    """Coefficients of the value [cents/h]."""
    changes: Values | float = 0.0
    """Coefficients of the number of changed servers."""
    integer: BoolArray | bool = True


class Topology(ABC):
    """Servers of a problem that serve together; all masks of servers have shape (S,)."""

    place: ClassVar[str]
    """Field of the documents that states it."""
    name: ClassVar[str]
    """Noun in messages, plural."""
    advice: ClassVar[str]
    """What to do if a plan is too large."""
    counts_replicas: ClassVar[bool] = False
    """Whether servers need numbers of replicas in plans of one accelerator per server, too."""
    extra_servers: ClassVar[int] = 0
    """Servers behind those of the system that it adds, whose replicas are of no single server."""
    joint_load: BoolArray
    """Servers whose load the rows of the topology carry."""
    idle: BoolArray
    """Servers that need not be served for themselves."""

    @classmethod
    @abstractmethod
    def rows(cls, candidates: Candidates) -> Sequence[CandidateTable]:
        """Return the candidates that it adds."""

    @classmethod
    @abstractmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "Self | None":
        """Return the topology of a system; None if it has none with load.

        Args:
            candidates: the candidates of the system.
            added: mask of its own rows in the candidate table, shape (C,).
            servers: number of servers S, with extra ones.

        Raises:
            SpecError: the options of the system do not allow it.
        """

    @abstractmethod
    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return its variables and rows in a model."""

    def take(self, rows: IntArray | BoolArray, servers: BoolArray | None = None) -> Self:  # noqa: ARG002
        """Return it over some candidates, and if servers are given over these alone."""
        return self

    def together(self, chosen: BoolArray) -> BoolArray:
        """Return chosen servers, with what serves them besides their own candidates."""
        return chosen

    def apart(self) -> tuple[BoolArray, ...]:
        """Return keys by which candidates never dominate each other, shapes (C,)."""
        return ()

    def mark(self, row: int) -> tuple[str, str]:  # noqa: ARG002
        """Return suffixes of name and meaning of the variable of a candidate."""
        return "", ""

    def usable(self, table: CandidateTable) -> BoolArray:
        """Return a mask of the candidates that it can use, shape (C,)."""
        return np.ones(len(table), np.bool_)

    def most_units(self, table: CandidateTable) -> FloatArray:
        """Return the units of each row above which more carry nothing, shape (C,); 0 for other rows."""
        return np.zeros(len(table))

    def served(self, table: CandidateTable, replicas: IntArray, has: BoolArray) -> BoolArray:  # noqa: ARG002
        """Return the servers that a solution serves, from those that have replicas."""
        return has

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:  # noqa: ARG002
        """Return the servers that a solution serves in full, from those whose own replicas do."""
        return full

    def tidied(self, table: CandidateTable, replicas: IntArray) -> IntArray:  # noqa: ARG002
        """Return a solution without replicas that are of no use."""
        return replicas
