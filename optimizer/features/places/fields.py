"""Documents of places: locations of accelerators and of requests, and network latencies between them."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Milliseconds, Name, is_none

NetworkTimes = Annotated[dict[Name, dict[Name, Milliseconds]], Field(strict=False)]


class PlaceField(Document):
    """Place of an accelerator."""

    place: Name | None = Field(None, exclude_if=is_none)
    """Region or site. All accelerators of a type have the same place. Absent: close to every server."""


class ServedPlaceFields(Document):
    """Places of a server's requests and replicas."""

    place: Name | None = Field(None, exclude_if=is_none)
    """Region or site from which requests come. Absent: close to every accelerator."""
    may_serve_from: tuple[Name, ...] | None = Field(
        None, alias="mayServeFrom", strict=False, fail_fast=True, exclude_if=is_none
    )
    """Places of the accelerators that can run it, for example for data residency. Absent: all places."""


class NetworkField(Document):
    """Network latencies between places."""

    network_ms: NetworkTimes = Field(default_factory=dict, alias="networkMs", exclude_if=not_)
    """Network latency that is added to the first token, or to the answer of a batch server, by place of the
    server and place of the accelerator [ms]: `{"eu": {"us": 90}}`. It is 0 within a place; all other pairs in
    use need a value, in either direction.
    """
