"""Document fields for places: locations of accelerators and requests, and network latencies."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Milliseconds, Name, is_none

NetworkTimes = Annotated[dict[Name, dict[Name, Milliseconds]], Field(strict=False)]


class PlaceField(Document):
    """Place of an accelerator."""

    place: Name | None = Field(None, exclude_if=is_none)
    """Region or site. All accelerators of a type have the same place. Absent: no network latency to any
    server.
    """


class ServedPlaceFields(Document):
    """Place of a server's requests, and allowed places of its replicas."""

    place: Name | None = Field(None, exclude_if=is_none)
    """Region or site from which requests come. Absent: no network latency to any accelerator."""
    may_serve_from: tuple[Name, ...] | None = Field(
        None, alias="mayServeFrom", strict=False, fail_fast=True, exclude_if=is_none
    )
    """Places whose accelerators can serve the server, for example because of data residency. Absent: all
    places.
    """


class NetworkField(Document):
    """Optimizer option for network latencies between places."""

    network_ms: NetworkTimes = Field(default_factory=dict, alias="networkMs", exclude_if=not_)
    """Network latency by place of the server and place of the accelerator [ms]: `{"eu": {"us": 90}}`. It is
    added to the time to first token, or to the latency of a batch server. It is 0 within a place; every other
    pair in use needs a value, in either direction.
    """
