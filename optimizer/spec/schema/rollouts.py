"""Documents of roll-outs."""

from operator import not_

from pydantic import Field

from optimizer.documents import Document, Share


class SurgeField(Document):
    """Extra replicas of a server during a roll-out."""

    surge: Share = Field(0.0, exclude_if=not_)
    """Share of its replicas, rounded up, that starts with the old ones while it rolls out. They take cards
    under `optimizer.rollout`; the server then has one pool, and no partial service."""
