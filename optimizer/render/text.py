"""Text from documents as it may be shown: names are input, and may hold what steers a terminal."""

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t")
"""A spreadsheet takes text that begins with one of these for a formula."""


def printable(text: str, *, keep: str = "") -> str:
    """Return text in which what cannot be printed is a question mark, but for the characters to keep."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)


def spreadsheet_text(text: str) -> str:
    """Return text for a CSV file; what a spreadsheet would take for a formula has an apostrophe before it."""
    whole = text.replace("\r", "?")  # the library does not quote it, and it would end the row
    return f"'{whole}" if whole.startswith(_FORMULA_SIGNS) else whole
