"""The table of latency models: which laws there are, and the fields of a document that choose among them.

A law is a file beside this one and an entry here: its fields a base of `LawFields`, itself in `LAWS`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import FloatArray, IntArray, frozen
from optimizer.documents import Document
from optimizer.timing.batch import BatchFields, BatchLaw
from optimizer.timing.iteration import FullIterationLaw, IterationFields, IterationLaw
from optimizer.timing.law import Law, RequestShapes
from optimizer.timing.linear import LinearFields, LinearLaw
from optimizer.timing.mixture import MixtureIterationLaw
from optimizer.timing.static import StaticLaw, is_static


class LawFields(
    BatchFields, IterationFields, LinearFields
):  # pydantic takes the fields of the last base first
    """The fields of a document that gives one law, whichever."""

    @model_validator(mode="after")
    def _static_batches_are_linear(self) -> Self:
        if is_static(self) and (self.iteration is not None or self.batch is not None):
            raise PydanticCustomError(
                "static_law",
                "batching: {batching} batches take decodeParms and prefillParms (linear law); give those",
                {"batching": self.batching},
            )
        return self


LAWS: tuple[type[Law], ...] = (
    LinearLaw,
    IterationLaw,
    MixtureIterationLaw,
    FullIterationLaw,
    BatchLaw,
    StaticLaw,
)
"""All laws, in the order in which messages name them."""


def laws_given(document: Document) -> list[type[Law]]:
    """Return the laws of which a document gives any part."""
    return _laws_with(document, lambda _: True)


def laws_known(document: Document) -> list[type[Law]]:
    """Return the laws of which a document gives a non-zero parameter."""
    return _laws_with(document, _has_parameter)


def _laws_with(document: Document, counts: Callable[[Document], bool]) -> list[type[Law]]:
    """Return the laws of which a document gives a part that counts."""
    fields, found = vars(document), []
    for law in LAWS:
        for name in law.parts:
            part = fields.get(name)
            if part is not None and law.takes(document) and counts(part):
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
    """Law of each document, an index into `laws`; -1: no token time is known; shape (P,)."""
    parameters: tuple[FloatArray, ...]
    """Of each law, in the order of its `parameters`: shape (K, P), zero for documents of other laws."""

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Self:
        """Read the laws of documents, each of which knows at most one."""
        known = [laws_known(document) for document in documents]
        law = np.array([LAWS.index(mine[0]) if mine else -1 for mine in known], dtype=np.int64)
        tables = []
        for i, kind in enumerate(LAWS):
            rows = [kind.parameters(documents[row]) for row in np.flatnonzero(law == i).tolist()]
            table = np.zeros((len(rows[0]) if rows else 0, len(documents)))
            table[:, law == i] = np.array(rows).T if rows else 0.0
            tables.append(frozen(table))
        return cls(LAWS, frozen(law), tuple(tables))

    def take(self, document: IntArray) -> "LawTable":
        """Return the laws of the chosen documents, in their order."""
        return LawTable(self.laws, self.law[document], tuple(table[:, document] for table in self.parameters))

    def of_rows(self, law: int, document: IntArray, shapes: RequestShapes) -> Law:
        """Return rows of one law: the parameters of the given documents, shape (R,), with request shapes."""
        return self.laws[law].of_rows(self.parameters[law][:, document], shapes)
