"""The part of a plan about shared cards."""

from pydantic import Field

from optimizer.documents import OutputDocument, is_none
from optimizer.features.shared_cards.patterns import SharingMode
from optimizer.schema.pools import Placement, Pool


class SharedPool(Pool):
    """Replicas of one server on shared cards; `accelerator` is the card, or the slice."""

    server: str
    """Name of the server."""
    per_card: int
    """Number of replicas on each card."""
    memory_gb: float
    """Memory of one replica [GB]."""
    share: float | None = Field(None, exclude_if=is_none)
    """Share of a card's compute that one replica gets; absent in other modes."""
    slowdown: float | None = Field(None, exclude_if=is_none)
    """Factor by which times are longer in a share of a card than on a full card; absent in other modes."""
    whole_cards: Placement | None = Field(None, exclude_if=is_none)
    """Cheapest unshared cards that could carry the server's full load; absent if there are none."""
    whole_cost_cents_per_h: float | None = Field(None, exclude_if=is_none)
    """Cost of the cards in `wholeCards` [cents/h]."""

    @property
    def placed_on(self) -> str:
        """Return the location of the replicas for tables: the accelerator and the part of it."""
        return f"{self.accelerator}, shared"


class SharedCardUse(OutputDocument):
    """Group of cards that the same servers share in the same way."""

    name: str
    """Name of the group of cards, derived from its servers."""
    accelerator: str
    """Name of the accelerator of the cards."""
    mode: SharingMode
    """How servers share the cards: by `shares` of the compute, by `slices`, or in `time`; `whole`: one
    replica uses an entire card.
    """
    num_cards: int
    """Number of cards."""
    cost_cents_per_h: float
    """Cost of the cards [cents/h]; the cost of each server is its part, by share, slices or turns."""
    servers: tuple[SharedPool, ...] = Field(strict=False)
    """Servers on each card of the group."""
