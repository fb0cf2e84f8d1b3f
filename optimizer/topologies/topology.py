"""The interface of a topology: servers that serve together, and their variables and rows in a model.

Solvers get rows, variables and masks from topologies, without referring to any by name. Without a topology,
every server serves its load with its own replicas.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.milp.model import ModelRows
from optimizer.spec.system import System

Values = npt.NDArray[Any]
"""Numbers or booleans, one for each variable of a block."""
Label = tuple[str, str, int, int]
"""Name, meaning, server and accelerator (-1 for none) of a variable."""


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """The first variables of a model: n for candidates, and one for each server with a candidate."""

    rows: IntArray
    """Row of the candidate table of each column, shape (n,)."""
    most: IntArray
    """Upper bounds of the columns, shape (n,)."""
    replicas_each: IntArray
    """Number of replicas that one unit of each column represents, shape (n,)."""
    servers: IntArray
    """Servers with a column, in order."""
    is_single: bool
    """Whether each server has at most one accelerator."""
    on_leaving: FloatArray
    """Contribution of each server without replicas to the number of changes, shape (S,)."""
    first: int
    """Index of the first variable of the topology itself."""

    def unserved(self, server: int) -> int:
        """Return the index of the variable that is 1 if a server is unserved."""
        return len(self.rows) + int(np.searchsorted(self.servers, server))


@dataclass(frozen=True, slots=True)
class Variables:
    """A block of variables of a model, with lower bounds 0."""

    upper: FloatArray
    """Upper bounds, shape (v,), as are all coefficients."""
    point: Callable[[IntArray], Values]
    """Function that computes the values of the variables for a solution, shape (C,)."""
    labels: Callable[[], Iterable[Label]]
    """Function that computes the meaning of the variables."""
    value: Values | float = 0.0
    """Coefficients of the value objective [cents/h]."""
    changes: Values | float = 0.0
    """Coefficients of the objective that counts changed servers."""
    integer: BoolArray | bool = True


class Topology(ABC):
    """Servers of a problem that serve together; all masks of servers have shape (S,)."""

    place: ClassVar[str]
    """Document field that defines it."""
    name: ClassVar[str]
    """Plural noun in messages."""
    advice: ClassVar[str]
    """Advice if a plan is too large."""
    counts_replicas: ClassVar[bool] = False
    """Whether single-accelerator plans also need numbers of replicas as variables."""
    extra_servers: ClassVar[int] = 0
    """Number of artificial servers added after those of the system, for replicas that belong to no single
    server.
    """
    role: ClassVar[str] = ""
    """Role of its units as replicas of servers, if they are such."""
    shortage: ClassVar[str] = ""
    """Reason why a coupled server is not served although its own replicas would fit."""
    joint_load: BoolArray
    """Servers whose load the rows of the topology carry."""
    idle: BoolArray
    """Servers that need not be served by themselves."""

    @classmethod
    @abstractmethod
    def rows(cls, candidates: Candidates) -> Sequence[CandidateTable]:
        """Return the candidates that the topology adds."""

    @classmethod
    @abstractmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "Self | None":
        """Return the topology of a system; None if no server with load uses it.

        Args:
            candidates: the candidates of the system.
            added: mask of the topology's rows in the candidate table, shape (C,).
            servers: number of servers S, including artificial ones.

        Raises:
            SpecError: the options of the system do not support the topology.
        """

    @classmethod
    def coupled(cls, system: System) -> Collection[str]:  # noqa: ARG003
        """Return the servers whose own replicas suffice only with the topology's variables and rows.

        Solvers other than the compact model do not place them. The system has all servers, also if only some
        have candidates.
        """
        return ()

    def owners(self, table: CandidateTable) -> IntArray:
        """Return the server that has a unit as a replica of the topology's role; -1 for other rows, (C,)."""
        return np.full(len(table), -1)

    @abstractmethod
    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return the topology's variables and rows in a model."""

    def take(self, rows: IntArray | BoolArray, servers: BoolArray | None = None) -> Self:  # noqa: ARG002
        """Return the topology over some candidates, and only for `servers` if given."""
        return self

    def together(self, chosen: BoolArray) -> BoolArray:
        """Return the chosen servers, plus those that serve them in addition to their own candidates."""
        return chosen

    def apart(self, table: CandidateTable) -> tuple[BoolArray, ...]:  # noqa: ARG002
        """Return keys by which candidates never dominate each other, shapes (C,)."""
        return ()

    def mark(self, row: int) -> tuple[str, str]:  # noqa: ARG002
        """Return suffixes of name and meaning of the variable of a candidate."""
        return "", ""

    def usable(self, table: CandidateTable) -> BoolArray:
        """Return a mask of the candidates that the topology can use, shape (C,)."""
        return np.ones(len(table), np.bool_)

    def most_units(self, table: CandidateTable) -> FloatArray:
        """Return the maximum useful number of units of each row, shape (C,); 0 for other rows."""
        return np.zeros(len(table))

    def served(self, table: CandidateTable, replicas: IntArray, has: BoolArray) -> BoolArray:  # noqa: ARG002
        """Return a mask of the servers that a solution serves, given those that have replicas."""
        return has

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:  # noqa: ARG002
        """Return a mask of the servers served in full, given those whose own replicas suffice."""
        return full

    def groups(self) -> Iterable[Sequence[int]]:
        """Return groups of servers that must be solved together."""
        return ()

    def differs(self, other: "Topology") -> bool:  # noqa: ARG002
        """Return whether the topology differs for problems with equal candidates."""
        return False

    def without_idle(
        self,
        table: CandidateTable,  # noqa: ARG002
        replicas: IntArray,
        running: BoolArray,  # noqa: ARG002
    ) -> IntArray:
        """Return a solution without replicas that serve no requests.

        Args:
            table: the candidates.
            replicas: the solution, shape (C,).
            running: candidates that can be kept, because giving up running replicas has a price; shape (C,).
        """
        return replicas

    def tidied(self, table: CandidateTable, replicas: IntArray) -> IntArray:  # noqa: ARG002
        """Return a solution without useless replicas."""
        return replicas
