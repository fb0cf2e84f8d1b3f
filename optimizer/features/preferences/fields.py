"""Documents of preferences."""

from pydantic import Field

from optimizer.documents import Document, Name, is_none


class PreferredField(Document):
    """Preferred accelerators of a server."""

    preferred: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True, exclude_if=is_none)
    """Accelerators that are preferred regardless of cost; absent: no preference."""
