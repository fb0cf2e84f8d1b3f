"""Candidates: server x accelerator, sized by the queueing model, or rejected with the reason."""

from optimizer.candidates.finder import find_candidates
from optimizer.candidates.memo import SizingMemo
from optimizer.candidates.table import Candidates, CandidateTable, Reason, Rejection

__all__ = ["CandidateTable", "Candidates", "Reason", "Rejection", "SizingMemo", "find_candidates"]
