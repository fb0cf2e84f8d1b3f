"""Document fields for routes: requests that a router sends to a small or a large model."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Name, RequestsPerMinute, Share, Tokens, is_none

MAX_REQUEST_KINDS = 12
"""Maximum number of request kinds of a route."""

Lengths = Annotated[Tokens, Field(gt=0)]


class RequestKind(Document):
    """One kind of requests in a route: its share and lengths, and the router's errors."""

    name: Name | None = Field(None, exclude_if=is_none)
    """Name of the kind in plans; absent: `kind 1` and so on."""
    share: Share
    """Share of the route's requests. The shares of all kinds add up to 1."""
    in_tokens: Tokens = Field(alias="inTokens")
    """Mean input length [tokens]."""
    out_tokens: Lengths = Field(alias="outTokens")
    """Mean output length [tokens]."""
    loss: Share = 0.0
    """Share of answers that are worse if the small model gives them, for example failures in an evaluation.
    """
    miss: Share = 0.0
    """Share of the kind's requests that the router sends to the large model although the plan assigns them to
    the small one.
    """
    wrong: Share = 0.0
    """Share of the kind's requests that the router sends to the small model although the plan assigns them to
    the large one; at most 1 − `miss`.
    """


class Route(Document):
    """A route: requests that a router divides between a server with a small and one with a large model."""

    name: Name
    """Unique name of the route."""
    small: Name
    """Name of the server with the small model."""
    large: Name
    """Name of the server with the large model."""
    arrival_rate_rpm: RequestsPerMinute = Field(0.0, alias="arrivalRate")
    """Arrival rate of all kinds of requests together [requests/min]."""
    max_loss: Share = Field(0.0, alias="maxLoss")
    """Maximum share of answers that are worse because the small model produced them."""
    rerun: bool = False
    """Whether requests that the router wrongly sends to the small model are then sent to the large one as
    well.
    """
    kinds: tuple[RequestKind, ...] = Field(strict=False, min_length=1, max_length=MAX_REQUEST_KINDS)
    """Kinds of requests, at most 12."""


class RoutesField(Document):
    """The routes of a system."""

    routes: tuple[Route, ...] = Field((), strict=False, fail_fast=True, exclude_if=not_)
    """Routes, each with a small and a large server."""
