"""Text from documents as it may be shown: names are input, and may hold what steers a terminal."""

FORMULA_SIGNS = ("=", "+", "-", "@", "\t")
"""A spreadsheet takes text that begins with one of these for a formula."""


def printable(text: str, *, keep: str = "") -> str:
    """Return text in which what cannot be printed is a question mark, but for the characters to keep."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)


def spreadsheet_text(value: object) -> object:
    """Return a value as a cell of a CSV file; text that would be a formula has an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", "?")  # the library does not quote it, and it would end the row
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text
