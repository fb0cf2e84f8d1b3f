"""What plain values were written as, by the keys at their top: answers of the program are not systems."""

from collections.abc import Mapping

_ANSWERS = {
    "allocations": "a plan, or an answer",
    "relativeCostDifference": "a comparison",
    "unanswered": "an explanation",
    "repairs": "a repaired plan with its simulation",
    "overview": "a report",
    "simulation": "a plan with its simulation",
    "goodput": "a simulation",
    "panels": "a figure",
    "rejections": "a list of candidates",
    "alphaByBatch": "an estimate",
    "provenance": "a fitted profile",
}
"""Keys that only one kind of answer has at its top, and the kind; the first that is found decides."""
_SPELLING = {key.lower(): key for key in _ANSWERS}


def is_plan(raw: object) -> bool:
    """Return whether plain values are meant to be a plan, or the reference's answer, and not a system."""
    return answer_name(raw) == _ANSWERS["allocations"]


def answer_name(raw: object) -> str | None:
    """Return which answer of the program plain values are, in words; None if they are none."""
    if not isinstance(raw, Mapping):
        return None
    keys = {str(key).lower() for key in raw}
    return next((_ANSWERS[key] for lower, key in _SPELLING.items() if lower in keys), None)
