"""The field of separate servers."""

from pydantic import Field

from optimizer.documents import Document, Name, is_none


class SeparateField(Document):
    """Separation of servers."""

    apart_from: Name | None = Field(None, alias="apartFrom", exclude_if=is_none)
    """Name of another server; the two run on no common accelerator type. Absent: no restriction."""


def apart_from(server: object) -> str | None:
    """Return the server from which a server is separate, None if there is none."""
    return server.apart_from if isinstance(server, SeparateField) else None
