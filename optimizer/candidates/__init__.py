"""Candidates: server–accelerator pairs sized by queue models, and the reasons for rejected pairs."""

from typing import TYPE_CHECKING

from optimizer.lazy import names_of_modules

if TYPE_CHECKING:
    from optimizer.candidates.finder import find_candidates
    from optimizer.candidates.memo import SizingMemo
    from optimizer.candidates.table import Candidates, CandidateTable, Rejection, RejectionReason

__all__ = ["CandidateTable", "Candidates", "Rejection", "RejectionReason", "SizingMemo", "find_candidates"]

__getattr__, __dir__ = names_of_modules(
    __name__,
    {
        "optimizer.candidates.finder": ("find_candidates",),
        "optimizer.candidates.memo": ("SizingMemo",),
        "optimizer.candidates.table": ("Candidates", "CandidateTable", "Rejection", "RejectionReason"),
    },
)
