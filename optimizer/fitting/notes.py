"""Sentences about decisions on runs: one for each kind of decision, which names all runs that it concerns."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from optimizer.arrays import grouped

Say = Callable[[str, str], None]
"""Takes the kind of a decision and its sentence."""
LEFT_OUT = "left out"
"""Kind of decision that is told for each run alone."""


class Note(NamedTuple):
    """A decision about a run."""

    source: str
    kind: str
    text: str
    """The sentence after the name of the run."""


def sentences(notes: Iterable[Note]) -> list[str]:
    """Return one sentence for each kind of decision, with the numbers of the first run."""
    kinds = grouped(((note.source if note.kind == LEFT_OUT else None, note.kind), note) for note in notes)
    return [_sentence(*same) for same in kinds.values()]


def _sentence(first: Note, *others: Note) -> str:
    file = first.source.partition(": ")[0]
    names = ", ".join(dict.fromkeys(other.source.removeprefix(f"{file}: ") for other in others))
    colon = "" if first.kind == LEFT_OUT else ":"
    return f"{first.source}{colon} {first.text}{f'; likewise {names}' if names else ''}"
