"""Request shapes in documents: groups of requests with their own lengths and shared prefixes.

A load, or a replica to analyse, states either one mean input and output length, or several shapes. The means
and coefficients of variation over all shapes are derived for everything that needs only these.
"""

import math
from collections.abc import Sequence
from operator import not_
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import (
    AnswerTokens,
    Coefficient,
    Document,
    Name,
    RequestsPerMinute,
    Share,
    Tokens,
    is_none,
)
from optimizer.queueing.shapes import ShapeRow, ShapeRows, shape_number

MAX_SHAPES = 8
SHARE_TOLERANCE = 1e-6
"""Deviation of the sum of all shares from 1 that is tolerated."""

LENGTHS = ("in_tokens", "out_tokens", "in_tokens_cv", "out_tokens_cv")
"""Fields that are derived if a document states shapes."""


class PrefixFields(Document):
    """Fields about a prefix that the prompts of a shape share."""

    prefix_tokens: Tokens = Field(0.0, alias="prefixTokens", exclude_if=not_)
    """Length of the prefix that prompts share [tokens], less than the mean input length, which includes it.
    The coefficient of variation of the input length then applies to the rest of the prompt.
    """
    prefix_hit_rate: Share = Field(0.0, alias="prefixHitRate", exclude_if=not_)
    """Fraction of the requests that find the prefix in the prefix cache."""
    prefix_stored: Literal["each", "once"] = Field(
        "each", alias="prefixStored", exclude_if=lambda stored: stored == "each"
    )
    """Whether every request that finds the prefix holds it in the KV cache for itself (`each`), or all share
    one copy (`once`).
    """

    def _prefix_problem(self, in_tokens: float) -> tuple[str, str] | None:
        """Return the key and the error of a contradiction in these fields, or None."""
        if self.prefix_tokens and self.prefix_tokens > in_tokens - 1:
            return "prefixTokens", (
                f"{self.prefix_tokens:g} must be at most the mean input length minus 1, which is "
                f"{in_tokens - 1:g}; give the length of the shared part only"
            )
        stated = self.model_fields_set & {"prefix_hit_rate", "prefix_stored"}
        if stated and not self.prefix_tokens:
            key = "prefixHitRate" if "prefix_hit_rate" in stated else "prefixStored"
            return key, "needs prefixTokens; give the length of the shared prefix"
        return None


class RequestShape(PrefixFields):
    """A group of requests with its own lengths."""

    name: Name
    """Unique name of the shape."""
    share: Share | None = Field(None, exclude_if=is_none)
    """Fraction of the requests that have this shape; the shares of all shapes sum to 1."""
    arrival_rate_rpm: RequestsPerMinute | None = Field(None, alias="arrivalRate", exclude_if=is_none)
    """Arrival rate of the shape [requests/min], for all shapes instead of the shares and the load's rate."""
    in_tokens: Tokens = Field(alias="avgInTokens")
    """Mean input length [tokens], including a shared prefix."""
    out_tokens: AnswerTokens = Field(alias="avgOutTokens")
    """Mean output length [tokens]."""
    in_tokens_cv: Coefficient = Field(0.0, alias="inTokensCV")
    """Coefficient of variation of the input length within the shape, without the prefix."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length within the shape."""

    @model_validator(mode="after")
    def _consistent(self) -> "RequestShape":
        if problem := self._prefix_problem(self.in_tokens):
            key, text = problem
            raise PydanticCustomError("prefix", "{key}: {text}", {"key": key, "text": text})
        return self

    def scaled(self, in_factor: float, out_factor: float) -> "RequestShape":
        """Return the shape with lengths multiplied by factors; outputs have at least one token."""
        values = {
            "in_tokens": self.in_tokens * in_factor,
            "out_tokens": max(self.out_tokens * out_factor, 1.0),
        }
        if self.prefix_tokens:
            values["prefix_tokens"] = self.prefix_tokens * in_factor
        return self.model_copy(update=values)


class RowShape(RequestShape):
    """A group of requests with its own lengths, in a row that describes one replica."""

    name: Name = ""
    """Name of the shape; not used."""
    in_tokens: Tokens = Field(alias="avgInputTokens")
    """Mean input length [tokens], including a shared prefix."""
    out_tokens: AnswerTokens = Field(alias="avgOutputTokens")
    """Mean output length [tokens]."""


def shape_rows(shape: Any, weight: float) -> list[ShapeRow]:
    """Return the rows of a shape: requests that find its prefix in the cache, and those that do not.

    Args:
        shape: the shape, or a load with the same fields.
        weight: share of the requests that have this shape.
    """
    prefix, hits = shape.prefix_tokens, shape.prefix_hit_rate
    number = shape_number(shape.name) if isinstance(shape, RequestShape) else 0
    prompt, own = max(shape.in_tokens, 1.0), max(shape.in_tokens - prefix, 1.0)
    answer, stored = (shape.out_tokens, shape.out_tokens_cv), prefix if shape.prefix_stored == "each" else 0.0
    missed = ShapeRow(
        weight * (1 - hits), prompt, 0.0, 0.0, answer[0], shape.in_tokens_cv * own / prompt, answer[1], number
    )
    shape_row = ShapeRow(weight * hits, own, prefix, stored, answer[0], shape.in_tokens_cv, answer[1], number)
    return [row for row in (missed, shape_row) if row.weight > 0]


def heads_tokens(shapes: Sequence[Any]) -> float:
    """Return the KV cache tokens of the prefixes that are stored once."""
    return math.fsum(
        shape.prefix_tokens for shape in shapes if shape.prefix_stored == "once" and shape.prefix_hit_rate
    )


class ShapedRequests(PrefixFields):
    """Fields of a document that states requests by one mean and one coefficient, or by several shapes."""

    shapes: tuple[RequestShape, ...] = Field((), strict=False, exclude_if=not_)
    """Request shapes, at most 8, instead of the lengths: each with its share of the requests."""

    @model_validator(mode="after")
    def _shapes_consistent(self) -> "ShapedRequests":
        if not self.shapes:
            if problem := self._prefix_problem(getattr(self, "in_tokens", 0.0)):
                raise _error(*problem)
            return self
        self._check_shapes()
        for name, value in mixed_lengths(self.shapes).items():
            object.__setattr__(self, name, value)
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]  # noqa: ANN202
        """Write only fields that can be read again: no lengths beside shapes.

        Without an annotated result, the schema remains that of the fields.
        """
        values = write(self)
        for name in LENGTHS if self.shapes else ():
            values.pop(name, None)
            values.pop(type(self).model_fields[name].alias, None)
        return values

    def _check_shapes(self) -> None:
        """Check the shapes, and replace their arrival rates by shares.

        Raises:
            PydanticCustomError: the shapes are inconsistent.
        """
        fields = type(self).model_fields
        refused = (*LENGTHS, *PrefixFields.model_fields)
        for name in refused:
            if name in self.model_fields_set:
                key = fields[name].alias or name
                raise _error(key, "follows from shapes; remove it, or state it in each shape")
        if len(self.shapes) > MAX_SHAPES:
            raise _error(
                "shapes", f"{len(self.shapes)} shapes, at most {MAX_SHAPES} are supported; join some"
            )
        names = [shape.name for shape in self.shapes if shape.name]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _error("shapes", f"the name {twice!r} occurs twice; give each shape its own name")
        rates = [shape.arrival_rate_rpm for shape in self.shapes]
        if all(rate is not None for rate in rates) and not any(shape.share for shape in self.shapes):
            self._set_rates([rate or 0.0 for rate in rates])
        elif any(rate is not None for rate in rates) or any(shape.share is None for shape in self.shapes):
            raise _error("shapes", "give every shape either its share or its arrivalRate")
        total = sum(shape.share or 0.0 for shape in self.shapes)
        if abs(total - 1) > SHARE_TOLERANCE:
            raise _error("shapes", f"the shares sum to {total:.9g}, which must be 1")

    def _set_rates(self, rates: Sequence[float]) -> None:
        total = sum(rates)
        if "arrival_rate_rpm" in self.model_fields_set:
            raise _error("arrivalRate", "is the sum of the rates of the shapes; remove it, or give shares")
        shares = [rate / total if total else 1 / len(rates) for rate in rates]
        shapes = tuple(
            shape.model_copy(update={"share": share, "arrival_rate_rpm": None})
            for shape, share in zip(self.shapes, shares, strict=True)
        )
        object.__setattr__(self, "shapes", shapes)
        if "arrival_rate_rpm" in type(self).model_fields:
            object.__setattr__(self, "arrival_rate_rpm", total)
            self.__pydantic_fields_set__.add("arrival_rate_rpm")

    @property
    def has_shapes(self) -> bool:
        """Whether the requests have several shapes, or a prefix that some of them find in the cache."""
        return bool(self.shapes or (self.prefix_tokens and self.prefix_hit_rate))

    @property
    def stated_shapes(self) -> tuple[Any, ...]:
        """The shapes, or the document itself as the only one."""
        return self.shapes or (self,)

    def rows(self) -> list[ShapeRow]:
        """Return the rows of the requests, whose weights sum to 1."""
        shares = [shape.share or 0.0 for shape in self.shapes] or [1.0]
        total = sum(shares)
        items = zip(self.stated_shapes, shares, strict=True)
        return [row for shape, share in items for row in shape_rows(shape, share / total)]

    def heads_tokens(self) -> float:
        """Return the KV cache tokens of the prefixes that are stored once."""
        return heads_tokens(self.stated_shapes)

    def request_tokens(self) -> float:
        """Return the mean number of KV cache tokens that a request needs for itself at its end."""
        if not self.has_shapes:
            return self._mean_tokens
        return math.fsum(row.weight * _held_tokens(row) for row in self.rows())

    def longest_tokens(self) -> float:
        """Return the same number of tokens for requests of the longest shape."""
        return max(map(_held_tokens, self.rows())) if self.has_shapes else self._mean_tokens

    @property
    def _mean_tokens(self) -> float:
        """Mean input plus mean output length [tokens]."""
        return math.fsum(getattr(self, name) for name in ("in_tokens", "out_tokens"))


def _held_tokens(row: ShapeRow) -> float:
    return row.computed + row.stored + row.answer


def mixed_lengths(shapes: Sequence[RequestShape]) -> dict[str, float]:
    """Return means and coefficients of variation of the lengths over all requests (eq. 174, 175)."""
    total = sum(shape.share or 0.0 for shape in shapes) or 1.0
    weights = [(shape.share or 0.0) / total for shape in shapes]
    values: dict[str, float] = {}
    for name in ("in_tokens", "out_tokens"):
        prefixes = [shape.prefix_tokens if name == "in_tokens" else 0.0 for shape in shapes]
        means = [getattr(shape, name) for shape in shapes]
        mean = sum(w * x for w, x in zip(weights, means, strict=True))
        spread = sum(
            w * ((x - mean) ** 2 + ((x - prefix) * getattr(shape, f"{name}_cv")) ** 2)
            for w, x, prefix, shape in zip(weights, means, prefixes, shapes, strict=True)
        )
        values |= {name: mean, f"{name}_cv": spread**0.5 / mean if mean else 0.0}
    return values


def _error(key: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("shapes", "{key}: {text}", {"key": key, "text": text})


def check_lengths_given(document: ShapedRequests) -> None:
    """Check that a document states its mean lengths, or shapes.

    Raises:
        PydanticCustomError: a length is missing.
    """
    for name in () if document.shapes else ("in_tokens", "out_tokens"):
        if name not in document.model_fields_set:
            key = type(document).model_fields[name].alias or name
            raise _error(key, "missing; this key is required, unless shapes are given")


def shapes_of(documents: Sequence[ShapedRequests]) -> ShapeRows | None:
    """Return the rows of R documents; None if each states only means and coefficients of variation."""
    if not any(document.has_shapes for document in documents):
        return None
    return ShapeRows.of(
        [document.rows() for document in documents], [document.heads_tokens() for document in documents]
    )
