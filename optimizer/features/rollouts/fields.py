"""Document fields for roll-outs."""

from operator import not_

from pydantic import Field

from optimizer.documents import Document, Share


class SurgeField(Document):
    """Extra replicas of a server during a roll-out."""

    surge: Share = Field(0.0, exclude_if=not_)
    """Extra replicas during a roll-out, as a share of the replicas, rounded up. If `optimizer.rollout` is
    set, cards are kept free for them; the server then has one pool and is never served in part.
    """
