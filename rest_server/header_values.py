"""Characters that HTTP headers can carry, for keys on both sides of a connection."""


def unsendable_at(value: str, *, spaces: bool = False) -> int | None:
    """Return the position of the first character that is not printable ASCII, from 1; None if all are.

    Args:
        value: value of a header.
        spaces: whether spaces are allowed.
    """
    lowest = " " if spaces else "!"
    return next((at for at, character in enumerate(value, 1) if not lowest <= character <= "~"), None)
