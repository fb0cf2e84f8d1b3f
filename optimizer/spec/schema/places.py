"""Documents of places: where accelerators are, where requests come from, and the network between."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Milliseconds, Name, is_none

NetworkTimes = Annotated[dict[Name, dict[Name, Milliseconds]], Field(strict=False)]


class PlaceField(Document):
    """Place of an accelerator."""

    place: Name | None = Field(None, exclude_if=is_none)
    """Region or site. All accelerators of a type have the same place. Absent: near every server."""


class ServedPlaceFields(Document):
    """Places of a server's requests and replicas."""

    place: Name | None = Field(None, exclude_if=is_none)
    """Region or site from which its requests come. Absent: near every accelerator."""
    may_serve_from: tuple[Name, ...] | None = Field(
        None, alias="mayServeFrom", strict=False, fail_fast=True, exclude_if=is_none
    )
    """Places of accelerators on which it may run, such as for data residency. Absent: all."""


class NetworkField(Document):
    """Network between places."""

    network_ms: NetworkTimes = Field(default_factory=dict, alias="networkMs", exclude_if=not_)
    """Time that the network adds to the first token, or to the answer of a batch server, by place of the
    server and place of the accelerator [ms]: `{"eu": {"us": 90}}`. 0 within a place; other pairs of places
    that occur need a time, in either direction."""
