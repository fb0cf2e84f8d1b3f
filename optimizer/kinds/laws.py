"""Latency models (laws) of documents, with their parameters as arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray, frozen
from optimizer.documents import Document
from optimizer.kinds.table import QUEUE_MODELS_OF
from optimizer.timing.law import Law, RequestShapes


def laws_given(document: Document) -> list[type[Law]]:
    """Return the latency models for which a document states at least one parameter."""
    return _laws_with(document, lambda _: True)


def laws_known(document: Document) -> list[type[Law]]:
    """Return the latency models for which a document states a parameter that is not 0."""
    return _laws_with(document, _has_parameter)


def _laws_with(document: Document, counts: Callable[[Document], bool]) -> list[type[Law]]:
    """Return the latency models of which a document has a part that satisfies a condition."""
    fields, laws = vars(document), []
    for law in QUEUE_MODELS_OF:
        for name in law.parts:
            part = fields.get(name)
            if part is not None and law.applies_to(document) and counts(part):
                laws.append(law)
                break
    return laws


def _has_parameter(part: Document) -> bool:
    return any(value != 0 for value in vars(part).values() if isinstance(value, float))


@dataclass(frozen=True, slots=True)
class LawTable:
    """The latency models (laws) of P documents, with their parameters."""

    laws: tuple[type[Law], ...]
    """All types of latency models."""
    law: IntArray
    """Index in `laws` of each document's latency model, shape (P,); -1 if no token times are known."""
    parameters: tuple[FloatArray, ...]
    """Parameters of each latency model, shape (K, P); 0 for documents with other models."""

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Self:
        """Read the latency models of documents; each has at most one."""
        known = [laws_known(document) for document in documents]
        laws, tables = tuple(QUEUE_MODELS_OF), []
        law = np.array([laws.index(given[0]) if given else -1 for given in known], dtype=np.int64)
        for i, kind in enumerate(laws):
            rows = [kind.parameters(documents[row]) for row in np.flatnonzero(law == i).tolist()]
            table = np.zeros((len(rows[0]) if rows else 0, len(documents)))
            table[:, law == i] = np.array(rows).T if rows else 0.0
            tables.append(frozen(table))
        return cls(laws, frozen(law), tuple(tables))

    def take(self, document: IntArray) -> "LawTable":
        """Return a copy with only the documents with the given indices, in the given order."""
        return LawTable(self.laws, self.law[document], tuple(table[:, document] for table in self.parameters))

    def of_rows(self, law: int, document: IntArray, shapes: RequestShapes) -> Law:
        """Return the latency model of R rows that all have the same type.

        Args:
            law: index of the type in `laws`.
            document: index of each row's document, shape (R,).
            shapes: request lengths of the R rows.
        """
        return self.laws[law].of_rows(self.parameters[law][:, document], shapes)
