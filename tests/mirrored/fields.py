"""The field of mirrored servers."""

from operator import not_

from pydantic import Field

from optimizer.documents import Document


class MirroredField(Document):
    """Twins of replicas."""

    mirrored: bool = Field(default=False, exclude_if=not_)
    """Whether every replica has a twin in another place."""


def is_mirrored(server: object) -> bool:
    """Return whether a server is mirrored."""
    return isinstance(server, MirroredField) and server.mirrored
