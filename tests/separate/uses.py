"""What a plan states of separate servers."""

from pydantic import Field

from optimizer.documents import Document


class SeparateUse(Document):
    """Two separate servers, and the accelerator types on which they run."""

    server: str
    """Name of the server."""
    apart_from: str = Field(alias="apartFrom")
    """Name of the other server."""
    types: tuple[str, ...] = Field(strict=False)
    """Accelerator types of the server."""
    other_types: tuple[str, ...] = Field(alias="otherTypes", strict=False)
    """Accelerator types of the other server."""
