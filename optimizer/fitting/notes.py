"""Notes on decisions about runs, combined to one sentence for each topic with all runs that it concerns."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from optimizer.arrays import grouped

Say = Callable[[str, str], None]
"""Function that records a note: it takes the topic of a decision and a sentence."""
LEFT_OUT = "left out"
"""Topic of decisions that are reported for each run separately."""


class Note(NamedTuple):
    """A note on a decision about a run."""

    source: str
    topic: str
    text: str
    """Text of the sentence that follows the name of the run."""


def sentences(notes: Iterable[Note]) -> list[str]:
    """Combine notes to one sentence for each topic, with the numbers of its first run."""
    topics = grouped(((note.source if note.topic == LEFT_OUT else None, note.topic), note) for note in notes)
    return [_sentence(*same) for same in topics.values()]


def _sentence(first: Note, *others: Note) -> str:
    file = first.source.partition(": ")[0]
    names = ", ".join(dict.fromkeys(other.source.removeprefix(f"{file}: ") for other in others))
    colon = "" if first.topic == LEFT_OUT else ":"
    return f"{first.source}{colon} {first.text}{f'; likewise {names}' if names else ''}"
