"""Interface of topologies: servers that serve load together, with their variables and rows in a model.

Solvers get rows, variables and masks from topologies, and refer to none of them by name. Without a topology,
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
"""Array with a number or Boolean for each variable of a block."""
Label = tuple[str, str, int, int]
"""Name, meaning, server and accelerator (-1 for none) of a variable."""


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """The first variables of a model: n columns for candidates, and one variable per server with a column."""

    candidates: IntArray
    """Candidate of each column, as a row of the candidate table, shape (n,)."""
    most: IntArray
    """Upper bound of each column, shape (n,)."""
    replicas_each: IntArray
    """Number of replicas that one unit of each column represents, shape (n,)."""
    servers: IntArray
    """Servers that have a column, in ascending order."""
    is_single: bool
    """Whether each server can use at most one accelerator."""
    on_leaving: FloatArray
    """Contribution to the number of changes of each server that gets no replicas, shape (S,)."""
    leaving_value: FloatArray
    """Contribution to the transition cost of each server that gets no replicas [cents/h], shape (S,)."""
    first: int
    """Index of the first variable that the topology adds."""

    def unserved(self, server: int) -> int:
        """Return the index of the variable that is 1 if a server is unserved."""
        return len(self.candidates) + int(np.searchsorted(self.servers, server))

    def add_single(self, rows: ModelRows, one_of: IntArray, z: IntArray, server: IntArray) -> None:
        """Add rows that allow only one accelerator for each server (eq. 225).

        Args:
            rows: receives the rows.
            one_of: columns of which each server can use only one, shape (Z,).
            z: variables that are 1 if the column is used, shape (Z,).
            server: server of each column, shape (n,).
        """
        count = len(one_of)
        if not count:
            return
        # x ≤ most z for each column, and Σ z ≤ 1 for each server.
        every, one = np.arange(count), np.ones(count)
        most = self.most[one_of].astype(np.float64)
        rows.add(np.full(count, -np.inf), np.zeros(count), (every, one_of, one), (every, z, -most))
        servers, row = np.unique(server[one_of], return_inverse=True)
        rows.add(np.full(len(servers), -np.inf), np.ones(len(servers)), (row, z, one))


@dataclass(frozen=True, slots=True)
class Variables:
    """A block of v variables of a model, with lower bounds 0."""

    upper: FloatArray
    """Upper bound of each variable, shape (v,); the coefficients have the same shape."""
    point: Callable[[IntArray], Values]
    """Function that computes the values of the variables for a solution, given as replicas of each candidate
    (C,).
    """
    labels: Callable[[], Iterable[Label]]
    """Function that returns the label of each variable."""
    value: Values | float = 0.0
    """Coefficients of the transition cost objective [cents/h]."""
    changes: Values | float = 0.0
    """Coefficients of the objective that counts changed servers."""
    integer: BoolArray | bool = True


class Topology(ABC):
    """Servers of a problem that serve load together; masks of servers have shape (S,)."""

    place: ClassVar[str]
    """Document field that defines the topology."""
    name: ClassVar[str]
    """Plural noun for the topology in messages."""
    advice: ClassVar[str]
    """Advice in messages if a plan with the topology is too large to solve."""
    counts_replicas: ClassVar[bool] = False
    """Whether single-accelerator plans also need numbers of replicas as variables."""
    extra_servers: ClassVar[int] = 0
    """Number of artificial servers added after those of the system, for replicas that belong to no single
    server.
    """
    role: ClassVar[str] = ""
    """Purpose of the topology's units if they are replicas of servers; otherwise empty."""
    shortage: ClassVar[str] = ""
    """Reason for messages why a coupled server is not served although its own replicas would fit."""
    served_by_rows: BoolArray
    """Mask of the servers whose load the rows of the topology carry."""
    optional: BoolArray
    """Mask of the servers that need no replicas of their own."""

    @property
    def as_sized(self) -> BoolArray:
        """Mask of the servers that have replicas as sized or none, also in mixed plans."""
        return np.zeros(len(self.optional), np.bool_)

    @property
    def repeated(self) -> BoolArray:
        """Mask of the servers that have the same current replicas as another, which alone runs them."""
        return np.zeros(len(self.optional), np.bool_)

    @classmethod
    @abstractmethod
    def added_tables(cls, candidates: Candidates) -> Sequence[CandidateTable]:
        """Return the candidates that the topology adds to those of the servers."""

    @classmethod
    @abstractmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "Self | None":
        """Return the topology of a problem; None if no server with load uses it.

        Args:
            candidates: the candidates of the system.
            added: mask of the candidates that the topology added, shape (C,).
            servers: number of servers S, including artificial ones.

        Raises:
            SpecError: the options of the system do not support the topology.
        """

    @classmethod
    def coupled(cls, system: System) -> Collection[str]:  # noqa: ARG003
        """Return the servers whose own replicas suffice only together with the topology's variables and rows.

        Only the compact model places these servers. The system has all servers, even if only some have
        candidates.
        """
        return ()

    @classmethod
    def partnered(cls, system: System) -> Collection[str]:
        """Return the servers that need more than their own replicas to be served."""
        return cls.coupled(system)

    def owners(self, table: CandidateTable) -> IntArray:
        """Return the server for which each candidate's unit is a replica in the topology's role, shape (C,).

        It is -1 for all other candidates.
        """
        return np.full(len(table), -1)

    @abstractmethod
    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return the variables and rows that the topology adds to a model."""

    def take(self, rows: IntArray | BoolArray, servers: BoolArray | None = None) -> Self:  # noqa: ARG002
        """Return the topology with only the given candidates and, if given, only the servers in a mask."""
        return self

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return the mask `chosen`, extended by the servers that can only be served together with these."""
        return chosen

    def dominance_groups(self, table: CandidateTable) -> tuple[BoolArray, ...]:  # noqa: ARG002
        """Return keys that differ between candidates that must never dominate each other, shapes (C,)."""
        return ()

    def usable(self, table: CandidateTable) -> BoolArray:
        """Return a mask of the candidates that can be used under the topology, shape (C,)."""
        return np.ones(len(table), np.bool_)

    def most_units(self, table: CandidateTable) -> FloatArray:
        """Return the maximum useful number of units of each candidate of the topology, shape (C,).

        It is 0 for other candidates.
        """
        return np.zeros(len(table))

    def served(self, table: CandidateTable, replicas: IntArray, has: BoolArray) -> BoolArray:  # noqa: ARG002
        """Return a mask of the servers that a solution serves, given the servers that have replicas."""
        return has

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:  # noqa: ARG002
        """Return a mask of the servers served in full, given the servers whose own replicas suffice."""
        return full

    def groups(self) -> Iterable[Sequence[int]]:
        """Return groups of servers that must be solved together."""
        return ()

    def differs(self, other: "Topology") -> bool:  # noqa: ARG002
        """Return whether another topology differs from this one, for problems with equal candidates."""
        return False

    def without_idle(
        self,
        table: CandidateTable,  # noqa: ARG002
        replicas: IntArray,
        running: BoolArray,  # noqa: ARG002
    ) -> IntArray:
        """Return a solution without the topology's replicas that serve no requests.

        Args:
            replicas: the solution, shape (C,).
            running: candidates that can be kept, because giving up running replicas has a price; shape (C,).
        """
        return replicas

    def without_unused(self, table: CandidateTable, replicas: IntArray) -> IntArray:  # noqa: ARG002
        """Return a solution without replicas of the topology that have no use."""
        return replicas


class ServerTopology(Topology):
    """A topology of ordinary servers: it adds no candidates, and its rows carry the load of its servers."""

    counts_replicas: ClassVar[bool] = True

    @classmethod
    def added_tables(cls, candidates: Candidates) -> Sequence[CandidateTable]:  # noqa: ARG003
        """Return no additional candidates."""
        return []

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:
        """Return the mask `full` of servers served in full; optional servers always count as such."""
        nobody = np.zeros(len(full), np.bool_)
        return np.where(self.served_by_rows, self.optional | self.served(table, replicas, nobody), full)
