"""Makes text from documents safe to print: names are user input and can contain control characters."""

import re
from collections.abc import Sequence

FORMULA_SIGNS = ("=", "+", "-", "@", "\t")
"""Characters at the start of a text that make a spreadsheet treat it as a formula."""

_CARDS = re.compile(r"^(\d+)\s*[x×]\s*(.+)$", re.IGNORECASE)


def printable(text: str, *, keep: str = "") -> str:
    """Replace unprintable characters by question marks, except those in `keep`."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)


def capitalised(text: str) -> str:
    """Convert the first letter of a text to upper case, and leave the rest unchanged."""
    return text[:1].upper() + text[1:]


def some_names(names: Sequence[str], most: int = 5) -> str:
    """List the first `most` names, and count the others: ``a, b and 3 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def spreadsheet_text(value: object) -> object:
    """Return a value for a CSV cell; text that a spreadsheet would treat as a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", "?")  # the csv module does not quote it, so it would break rows
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text


def slice_of(name: str) -> tuple[int, str]:
    """Split a name such as ``8xH100`` into the number of cards and the name of one card."""
    match = _CARDS.match(name)
    return (int(match[1]), match[2]) if match else (1, name)


def slice_name(accelerator: str, cards: int) -> str:
    """Return the name of some cards together: ``H100``, ``8xH100``."""
    return accelerator if cards == 1 else f"{cards}x{accelerator}"
