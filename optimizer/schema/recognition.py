"""Recognises outputs of inferplan by their top-level keys, because they are not system documents."""

from collections.abc import Mapping

_ANSWERS = {
    "allocations": "a plan, or an answer",
    "relativecostdifference": "a comparison",
    "unanswered": "an explanation",
    "repairs": "a repaired plan with its simulation",
    "overview": "a report",
    "simulation": "a plan with its simulation",
    "goodputrps": "a simulation",
    "panels": "a figure",
    "rejections": "a list of candidates",
    "alphabybatch": "an estimate",
    "provenance": "a fitted profile",
}
"""Top-level keys that identify an output, in lower case, each with a name for it; the first match decides."""


def is_plan(raw: object) -> bool:
    """Return whether plain values look like a plan of inferplan or of llm-inferno."""
    return answer_name(raw) == _ANSWERS["allocations"]


def answer_name(raw: object) -> str | None:
    """Name the output of inferplan that plain values look like; None if they are not an output."""
    if not isinstance(raw, Mapping):
        return None
    keys = {str(key).lower() for key in raw}
    return next((name for key, name in _ANSWERS.items() if key in keys), None)
