"""Document fields for reserves and conservative token times."""

from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from optimizer.documents import Count, Document, In, is_none
from optimizer.units import SHARE

Headroom = Annotated[float, In(SHARE, le=10)]
"""Headroom: additional load as a share of the load; 1 allows twice the load."""
AvailabilityTarget = Annotated[float, In(SHARE, gt=0, lt=1)]


class AvailabilityField(Document):
    """Availability of an accelerator."""

    availability: Annotated[float, In(SHARE, gt=0, le=1)] = Field(1.0, exclude_if=lambda share: share == 1)
    """Probability that one accelerator is available, used by servers with an `availabilityTarget`. A replica
    on several accelerators needs all of them. Define spot cards as a separate accelerator.
    """


class HeadroomField(Document):
    """Headroom for growth of the load."""

    headroom_share: Headroom | None = Field(None, alias="headroomShare", exclude_if=is_none)
    """Share by which the load can grow while all targets are met; 1 allows twice the load. Absent: that of
    the service class, or else of the options.
    """


class ReserveFields(HeadroomField):
    """Reserve that a server requires."""

    spare_replicas: Count = Field(0, alias="spareReplicas", exclude_if=not_)
    """Number of replicas that can fail while all targets are met; in a mixed plan, one pool has all of them.
    """
    availability_target: AvailabilityTarget | None = Field(
        None, alias="availabilityTarget", exclude_if=is_none
    )
    """Minimum probability that enough replicas are available; in a mixed plan, one pool alone meets it."""


class ReserveOptions(Document):
    """Optimizer options about reserves, for all servers."""

    headroom_share: Headroom = Field(0.0, alias="headroomShare", exclude_if=not_)
    """Share by which every load can grow while all targets are met; service classes and servers can override
    it.
    """
    safety: Literal["none", "profile"] = Field("none", exclude_if=lambda safety: safety == "none")
    """Safety margin on token times: `profile` lengthens those of measured profiles by the larger of their
    relative errors `ttft` and `itl`; `none` changes nothing.
    """
