"""Candidates: pairs of server and accelerator, sized by queue models or rejected with a reason."""

from optimizer.candidates.finder import find_candidates
from optimizer.candidates.memo import SizingMemo
from optimizer.candidates.table import Candidates, CandidateTable, Rejection, RejectionReason

__all__ = ["CandidateTable", "Candidates", "Rejection", "RejectionReason", "SizingMemo", "find_candidates"]
