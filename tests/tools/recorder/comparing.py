"""What differs between two recordings: JSON by values, texts by lines, stopped plans by their levels."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from recorder.cleaning import NUMBER

Path = tuple[str | int, ...]
ABSENT = "(absent)"
MAX_VALUE_CHARACTERS = 70
"""Characters of a value that are shown."""


class Difference(NamedTuple):
    """One value that differs."""

    document: str
    question: str
    path: Path
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Rules:
    """What counts as the same."""

    tolerance: float = 0.0
    """Relative difference of numbers up to which they are the same."""
    ignore_words: bool = False
    """Whether texts of several words are the same, whatever they say."""


def differences(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], rules: Rules
) -> Iterator[Difference]:
    """Yield what differs in one document; where the document itself does, only that."""
    found = list(_values((), before["document"], after["document"], rules))
    for path, one, other in found:
        yield Difference(name, "the document itself", path, one, other)
    if found:
        return
    questions = [*before["answers"], *(key for key in after["answers"] if key not in before["answers"])]
    for question in questions:
        one, other = (side["answers"].get(question, ABSENT) for side in (before, after))
        if is_stopped(one) and is_stopped(other):
            continue  # by tolerances, over all documents
        for path, left, right in _values((), one, other, rules):
            yield Difference(name, question, path, left, right)


def is_stopped(answer: object) -> bool:
    """Return whether an answer holds the levels of a plan that the clock stopped."""
    return isinstance(answer, dict) and "stopped" in answer


def _values(path: Path, one: Any, other: Any, rules: Rules) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _values((*path, key), one.get(key, ABSENT), other.get(key, ABSENT), rules)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _values((*path, i), left, right, rules)
    elif isinstance(one, str) and isinstance(other, str):
        yield from _texts(path, one, other, rules)
    elif not _same(one, other, rules.tolerance):
        yield path, one, other


MIN_DIFFERENCE = 1e-14
"""Rounding, where a tolerance is allowed: the small loss of a queue is 1 minus a number near 1."""


def _same(one: Any, other: Any, tolerance: float) -> bool:
    numbers = all(isinstance(side, int | float) and not isinstance(side, bool) for side in (one, other))
    if numbers:
        rounding = MIN_DIFFERENCE if tolerance else 0.0
        return bool(abs(one - other) <= tolerance * max(abs(one), abs(other)) + rounding)
    return type(one) is type(other) and bool(one == other)


def _texts(path: Path, one: str, other: str, rules: Rules) -> Iterator[tuple[Path, Any, Any]]:
    if one == other or (rules.ignore_words and any(re.search(r"\s", text) for text in (one, other))):
        return
    left, right = one.splitlines(), other.splitlines()
    if len(left) <= 1 and len(right) <= 1:
        if not _same_text(one, other, rules.tolerance):
            yield path, one, other
        return
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for _, i, i_end, j, j_end in (code for code in matcher.get_opcodes() if code[0] != "equal"):
        for k in range(max(i_end - i, j_end - j)):
            line = left[i + k] if i + k < i_end else ABSENT
            changed = right[j + k] if j + k < j_end else ABSENT
            if not _same_text(line, changed, rules.tolerance):
                yield (*path, f"line {i + k + 1}"), line, changed


def _same_text(one: str, other: str, tolerance: float) -> bool:
    """Return whether texts are the same but for numbers that are."""
    if one == other or tolerance == 0:
        return one == other
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    return NUMBER.sub("#", one) == NUMBER.sub("#", other) and all(
        _same(float(left), float(right), tolerance) for left, right in numbers
    )


# --- groups of differences ----------------------------------------------------------------------------------


def render(
    found: Iterable[Difference], documents: Mapping[str, Mapping[str, Any]], most: int | None = 3
) -> Iterator[str]:
    """Yield lines that show differences, those of one question and kind of value together.

    Args:
        found: differences.
        documents: the documents by name, whose names of servers and others do not tell kinds apart.
        most: examples of each group; None means all.
    """
    groups: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for item in found:
        groups[item.question, _pattern(item.path, documents[item.document])].append(item)
    for (question, pattern), items in groups.items():
        inside = len({item.document for item in items})
        yield f"{question}: {pattern or 'answer'}: {len(items)} in {inside} document{'s' * (inside > 1)}"
        for item in items[:most]:
            yield f"    {item.document} {_place(item.path)}"
            yield f"        {_short(item.before)}"
            yield f"      → {_short(item.after)}"
        if most is not None and len(items) > most:
            yield f"    … and {len(items) - most} more"


def _pattern(path: Path, document: Mapping[str, Any]) -> str:
    names = {
        item.get("name")
        for section in document.values()
        if isinstance(section, list)
        for item in section
        if isinstance(item, dict)
    }
    parts = []
    for part in path:
        known = "*" if part in names else "line" if str(part).startswith("line ") else str(part)
        parts.append("*" if isinstance(part, int) else known)
    return ".".join(parts)


def _place(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[: MAX_VALUE_CHARACTERS - 1]}…"
