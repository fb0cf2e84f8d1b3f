"""Documents of reserves and conservative token times."""

from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from optimizer.documents import Count, Document, In, is_none
from optimizer.units import SHARE

Headroom = Annotated[float, In(SHARE, le=10)]
"""Additional load as a share of the load; 1 for twice the load."""
AvailabilityTarget = Annotated[float, In(SHARE, gt=0, lt=1)]


class AvailabilityField(Document):
    """Availability of an accelerator."""

    availability: Annotated[float, In(SHARE, gt=0, le=1)] = Field(1.0, exclude_if=lambda share: share == 1)
    """Probability that one accelerator is available, for servers with an `availabilityTarget`. A replica on
    several accelerators needs all of them. Define spot cards as a separate accelerator.
    """


class HeadroomField(Document):
    """Headroom for more load than there is now."""

    headroom_share: Headroom | None = Field(None, alias="headroomShare", exclude_if=is_none)
    """Share by which the load can grow while all targets are met: 1 for twice the load; absent: that of the
    class, or else of the options.
    """


class ReserveFields(HeadroomField):
    """Reserve of a server."""

    spare_replicas: Count = Field(0, alias="spareReplicas", exclude_if=not_)
    """Number of replicas that can fail while all targets are met; in a mixed plan one pool has them."""
    availability_target: AvailabilityTarget | None = Field(
        None, alias="availabilityTarget", exclude_if=is_none
    )
    """Minimum probability that enough replicas are available; in a mixed plan one pool meets it."""


class ReserveOptions(Document):
    """Defaults for all servers."""

    headroom_share: Headroom = Field(0.0, alias="headroomShare", exclude_if=not_)
    """Share by which every load can grow while all targets are met; classes and servers can state another."""
    safety: Literal["none", "profile"] = Field("none", exclude_if=lambda safety: safety == "none")
    """`profile`: token times of measured profiles are lengthened by the larger of their errors `ttft` and
    `itl`.
    """
