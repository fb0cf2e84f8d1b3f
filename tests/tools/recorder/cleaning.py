"""The one place where recordings lose what depends on the clock, on chance or on the machine."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

DROPPED_KEYS = frozenset(
    {
        "age",
        "ageSeconds",
        "at",
        "generatedAt",
        "inferplanVersion",
        "loadAgeSeconds",
        "loadSentAt",
        "requestId",
    }
)
"""Keys of JSON: times of day, ages, and names made at random."""
DROPPED_HEADERS = frozenset({"age", "content-length", "date", "etag", "server-timing", "x-request-id"})
"""Headers of answers: times, lengths that follow from them, and names made at random."""
DROPPED_LINES = ("inferplan: compiling ",)
"""How lines on stderr begin that depend on what ran on this machine before."""
DIGITS = 9
"""Significant digits of numbers in a recording that other machines compare with."""

_PICTURE = re.compile(r"<svg.*?</svg>|data:image/[^\"')]*", re.DOTALL)
_DIGEST = re.compile(r"\[picture [0-9a-f]*\]")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def parsed(text: str) -> Any:
    """Return the value of a JSON document or of JSON lines; any other text without its pictures."""
    if text[:1] in {"{", "["}:
        for values in (text, "[" + ",".join(text.splitlines()) + "]"):
            try:
                return cleaned(json.loads(values))
            except ValueError:
                continue
    return _PICTURE.sub(lambda found: f"[picture {_digest(found[0])}]", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cleaned(value: Any) -> Any:
    """Return a value of JSON without what is dropped by name."""
    if isinstance(value, dict):
        return {key: cleaned(item) for key, item in value.items() if key not in DROPPED_KEYS}
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return value


def notes(err: str) -> str:
    """Return what was written to stderr, without notes that depend on this machine."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith(DROPPED_LINES))


def headers(found: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an answer without those that are dropped by name."""
    return {name: value for name, value in sorted(found.items()) if name not in DROPPED_HEADERS}


def portable(value: Any) -> Any:
    """Return an answer as other machines give it: numbers of few digits, pictures unseen."""
    if isinstance(value, dict):
        return {key: portable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [portable(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return NUMBER.sub(_shortened, _DIGEST.sub("[picture]", value))
    return value


def _shortened(found: re.Match[str]) -> str:
    text = found[0]
    is_long = "." in text and len(text) > DIGITS + 1
    return f"{float(text):.{DIGITS}g}" if is_long else text
