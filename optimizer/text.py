"""Text from documents made safe to print: names are input and can contain control characters."""

FORMULA_SIGNS = ("=", "+", "-", "@", "\t")
"""Characters at the start of a text that make a spreadsheet treat it as a formula."""


def printable(text: str, *, keep: str = "") -> str:
    """Replace unprintable characters by question marks, except those to keep."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)


def spreadsheet_text(value: object) -> object:
    """Return a CSV cell, with an apostrophe before text that a spreadsheet would treat as a formula."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", "?")  # the csv module does not quote it, so it would end the row
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text
