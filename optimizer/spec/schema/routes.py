"""Documents of routes: requests that a router sends to a small or a large model."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Name, RequestsPerMinute, Share, Tokens, is_none

MAX_REQUEST_KINDS = 12
"""Maximum number of kinds of requests of a route."""

Lengths = Annotated[Tokens, Field(gt=0)]


class RequestKind(Document):
    """Requests of a route that are alike: what the router can do with them, and what that costs."""

    name: Name | None = Field(None, exclude_if=is_none)
    """Name in plans; absent: its position among the kinds."""
    share: Share
    """Share of the route's requests. The shares of all kinds add up to 1."""
    in_tokens: Tokens = Field(alias="inTokens")
    """Mean input length [tokens]."""
    out_tokens: Lengths = Field(alias="outTokens")
    """Mean output length [tokens]."""
    loss: Share = 0.0
    """Share of answers that are worse from the small model, such as failures of an evaluation."""
    miss: Share = 0.0
    """Share that the router sends to the large model although the plan wants it on the small one."""
    wrong: Share = 0.0
    """Share that the router sends to the small model although the plan wants it on the large one."""


class Route(Document):
    """Requests that a router divides between two servers; they are the load of both."""

    name: Name
    """Unique name."""
    small: Name
    """Server of the small model."""
    large: Name
    """Server of the large model."""
    arrival_rate_rpm: RequestsPerMinute = Field(0.0, alias="arrivalRate")
    """Arrival rate of all kinds together [requests/min]."""
    max_loss: Share = Field(0.0, alias="maxLoss")
    """Largest share of answers that may be worse because the small model gave them."""
    rerun: bool = False
    """Whether a request that the router sent wrongly to the small model is then sent to the large one too."""
    kinds: tuple[RequestKind, ...] = Field(strict=False, min_length=1, max_length=MAX_REQUEST_KINDS)
    """Kinds of requests."""


class RoutesField(Document):
    """Routes of a system."""

    routes: tuple[Route, ...] = Field((), strict=False, fail_fast=True, exclude_if=not_)
    """Routes, each with a small and a large server; absent: none."""
