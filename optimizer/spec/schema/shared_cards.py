"""Documents of cards that several servers share: memory and shares of models, and slices of cards."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Gigabytes, Name, is_none

MemorySlices = Annotated[int, Field(ge=1, le=8)]
ComputeSlices = Annotated[int, Field(ge=1, le=7)]
Slowdown = Annotated[float, Field(ge=1, le=100)]


class CardShare(Document):
    """A share of a card for one process of a model, as of NVIDIA's Multi-Process Service (MPS)."""

    share: float = Field(gt=0, le=1)
    """Share of the card's compute; those on a card add up to 1 at most."""
    slowdown: Slowdown = 1.0
    """Factor on all times of the model in this share, against a whole card; measured."""


class CardFields(Document):
    """Use of a shared card by a model."""

    memory_gb: Gigabytes = Field(0.0, alias="memory", exclude_if=not_)
    """Memory of one replica [GB]; required on cards that servers share."""
    shares: tuple[CardShare, ...] = Field((), strict=False, exclude_if=not_)
    """Shares of a card in which a replica can run. Without any, batch servers share a card in time, one batch
    at a time."""


class SharedCardField(Document):
    """Whether a server may share cards."""

    shared_card: bool = Field(default=False, alias="sharedCard", exclude_if=not_)
    """Whether its replicas may share cards with other servers for which this is true, in shares, in slices or
    in time. It can still have whole cards."""


class CardSlice(Document):
    """A slice of a card with its own memory and compute, as of Multi-Instance GPU (MIG)."""

    card: Name
    """The accelerator that is sliced."""
    memory: MemorySlices
    """Memory slices, of the 8 of a card."""
    compute: ComputeSlices
    """Compute slices, of the 7 of a card."""


class SliceField(Document):
    """The slice of a card that an accelerator is."""

    slice: CardSlice | None = Field(None, exclude_if=is_none)
    """The accelerator is this slice of a card; only servers with `sharedCard` run on it, and the plan pays
    whole cards."""
