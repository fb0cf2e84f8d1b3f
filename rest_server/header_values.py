"""Characters that HTTP headers can carry; the client and the service use this for API keys."""


def unsendable_at(value: str, *, spaces: bool = False) -> int | None:
    """Return the position, from 1, of the first character that is not printable ASCII; None if there is none.

    Args:
        value: value of a header.
        spaces: whether spaces are allowed.
    """
    lowest = " " if spaces else "!"
    return next((at for at, character in enumerate(value, 1) if not lowest <= character <= "~"), None)
