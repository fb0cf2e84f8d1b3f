"""Document fields for preferred accelerators."""

from pydantic import Field

from optimizer.documents import Document, Name, is_none


class PreferredField(Document):
    """Preferred accelerators of a server."""

    preferred: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True, exclude_if=is_none)
    """Accelerators that the server prefers regardless of cost; absent: no preference."""
