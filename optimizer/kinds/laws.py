"""Latency models of documents, and their parameters as arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray, frozen
from optimizer.documents import Document
from optimizer.kinds.table import QUEUE_MODELS_OF
from optimizer.timing import Law, RequestShapes


def laws_given(document: Document) -> list[type[Law]]:
    """Return the laws for which a document has at least one parameter field."""
    return _laws_with(document, lambda _: True)


def laws_known(document: Document) -> list[type[Law]]:
    """Return the laws for which a document has a non-zero parameter."""
    return _laws_with(document, _has_parameter)


def _laws_with(document: Document, counts: Callable[[Document], bool]) -> list[type[Law]]:
    """Return the laws for which a document has a part that satisfies a condition."""
    fields, found = vars(document), []
    for law in QUEUE_MODELS_OF:
        for name in law.parts:
            part = fields.get(name)
            if part is not None and law.applies_to(document) and counts(part):
                found.append(law)
                break
    return found


def _has_parameter(part: Document) -> bool:
    return any(value != 0 for value in vars(part).values() if isinstance(value, float))


@dataclass(frozen=True, slots=True)
class LawTable:
    """The laws of P documents."""

    laws: tuple[type[Law], ...]
    """All laws."""
    law: IntArray
    """Law of each document as an index into `laws`; -1 if no token times are known; shape (P,)."""
    parameters: tuple[FloatArray, ...]
    """Parameters of each law, shape (K, P); zero for documents of other laws."""

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Self:
        """Read the laws of documents, at most one each."""
        known = [laws_known(document) for document in documents]
        laws, tables = tuple(QUEUE_MODELS_OF), []
        law = np.array([laws.index(mine[0]) if mine else -1 for mine in known], dtype=np.int64)
        for i, kind in enumerate(laws):
            rows = [kind.parameters(documents[row]) for row in np.flatnonzero(law == i).tolist()]
            table = np.zeros((len(rows[0]) if rows else 0, len(documents)))
            table[:, law == i] = np.array(rows).T if rows else 0.0
            tables.append(frozen(table))
        return cls(laws, frozen(law), tuple(tables))

    def take(self, document: IntArray) -> "LawTable":
        """Return the laws of the selected documents, in that order."""
        return LawTable(self.laws, self.law[document], tuple(table[:, document] for table in self.parameters))

    def of_rows(self, law: int, document: IntArray, shapes: RequestShapes) -> Law:
        """Return one law with R rows.

        Args:
            law: index of the law.
            document: the document of each row, shape (R,).
            shapes: request shapes, R rows.
        """
        return self.laws[law].of_rows(self.parameters[law][:, document], shapes)
