"""Document fields for cards that several servers share: memory and shares of models, slices of cards."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Gigabytes, In, Name, is_none
from optimizer.units import SHARE

MemorySlices = Annotated[int, Field(ge=1, le=8)]
ComputeSlices = Annotated[int, Field(ge=1, le=7)]
Slowdown = Annotated[float, Field(ge=1, le=100)]


class CardShare(Document):
    """Share of a card's compute for one process of a model, for example with NVIDIA's MPS."""

    share: Annotated[float, In(SHARE, gt=0, le=1)]
    """Share of the card's compute; the shares on a card add up to at most 1."""
    slowdown: Slowdown = 1.0
    """Measured factor by which all times of the model are longer in this share than on a full card."""


class CardFields(Document):
    """Memory and shares of a model on a shared card."""

    memory_gb: Gigabytes = Field(0.0, alias="memory", exclude_if=not_)
    """Memory of one replica [GB]; required on cards that servers share."""
    shares: tuple[CardShare, ...] = Field((), strict=False, exclude_if=not_)
    """Shares of a card in which a replica can run. If there are none, batch servers share a card in time, one
    batch at a time.
    """


class SharedCardField(Document):
    """Whether a server can share cards."""

    shared_card: bool = Field(default=False, alias="sharedCard", exclude_if=not_)
    """Whether the server's replicas can share cards with those of other servers that allow it: by shares, by
    slices or in time. At most eight servers can allow it. The server can still use full cards.
    """


class CardSlice(Document):
    """A slice of a card with separate memory and compute, as in Multi-Instance GPU (MIG)."""

    card: Name
    """Name of the sliced accelerator."""
    memory: MemorySlices
    """Number of memory slices, of 8 on a card."""
    compute: ComputeSlices
    """Number of compute slices, of 7 on a card."""


class SliceField(Document):
    """Slice of a card that an accelerator represents."""

    slice: CardSlice | None = Field(None, exclude_if=is_none)
    """Slice of a card that this accelerator represents; only servers with `sharedCard` run on it, and the
    plan pays for full cards.
    """
