"""Text from documents as it may be shown: names are input, and may hold what steers a terminal."""


def printable(text: str, *, keep: str = "") -> str:
    """Return text in which what cannot be printed is a question mark, but for the characters to keep."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)
