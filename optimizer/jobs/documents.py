"""Jobs about documents and plans as they are: check, start, verify."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optimizer.plan import Plan, verify
from optimizer.spec.system import System

if TYPE_CHECKING:
    from optimizer.plan.proof import Proof
    from optimizer.starters.document import StarterFacts
    from optimizer.studies.checking import Checked


def check_documents(path: str | os.PathLike[str]) -> "Checked":
    """Find all errors in the documents of a path, then all warnings.

    Raises:
        SpecError: the path does not exist, or is a directory without a document.
    """
    from optimizer.studies import checking  # reads the catalogue

    return checking.check_documents(path)


def check_text(text: str) -> "Checked":
    """Find all errors in the text of a document, then all warnings."""
    from optimizer.studies import checking  # reads the catalogue

    return checking.check_text(text)


def start_document(start: "StarterFacts") -> tuple[str, tuple[str, ...]]:
    """Return a complete, commented system document from a few facts, and what it does not use of them.

    Raises:
        SpecError: a name does not exist, a fact is missing, or a model fits nothing that is offered.
    """
    from optimizer.starters.document import document_of, notes_of  # reads the catalogue

    return document_of(start), notes_of(start)


def verify_plan(plan: Plan, system: System, proof: "Proof | None" = None) -> "Verified":
    """Check a plan against its system by arithmetic, and the proof of its bounds, if it is given.

    Args:
        plan: what to check.
        system: what it was made for, with the options that it was made with.
        proof: the multipliers that were written with it.
    """
    from optimizer.plan.proof import check_proof

    wrong = verify(plan, system)
    if wrong or proof is None:
        return Verified(tuple(wrong))
    mistakes, open_points = check_proof(plan, system, proof)
    return Verified(tuple(f"proof: {item}" for item in mistakes), tuple(open_points))


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification."""

    wrong: tuple[str, ...]
    """Errors, one line each."""
    open_points: tuple[str, ...] = ()
    """Bounds that the multipliers do not prove, one line each."""
