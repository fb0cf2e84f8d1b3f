"""Use cases by name: token lengths, variability and latency targets, each with a reason and a source."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from pydantic import Field

from optimizer.documents import AnswerTokens, Coefficient, Document, Milliseconds, Name, Tokens
from optimizer.schema.files import plain_value
from optimizer.schema.messages import known_name, validated

_FILE = "use_cases.yaml"


class UseCase(Document):
    """Request lengths and latency targets of a use case."""

    title: Name
    """Title of the use case."""
    in_tokens: Tokens = Field(alias="inTokens")
    """Mean input length [tokens]."""
    out_tokens: AnswerTokens = Field(alias="outTokens")
    """Mean output length [tokens]."""
    in_tokens_cv: Coefficient | None = Field(None, alias="inTokensCV")
    """Coefficient of variation of the input length; None if the source does not state it."""
    out_tokens_cv: Coefficient | None = Field(None, alias="outTokensCV")
    """Coefficient of variation of the output length; None if the source does not state it."""
    ttft_ms: Milliseconds = Field(alias="ttft")
    """Target of the mean time to first token [ms]."""
    itl_ms: Milliseconds = Field(alias="itl")
    """Target of the mean inter-token latency [ms]."""
    why: str
    """Reason for the targets."""
    source: str
    """Source of lengths and targets."""


@cache
def use_cases() -> Mapping[str, UseCase]:
    """Return the use cases of the package by name."""
    text = resources.files("optimizer.starters").joinpath(_FILE).read_text(encoding="utf-8")
    raw = plain_value(text, _FILE, json_only=False)
    assert isinstance(raw, Mapping)
    return MappingProxyType(
        {name: validated(UseCase, value, f"{_FILE}: {name}: ") for name, value in raw.items()}
    )


def use_case(name: str) -> UseCase:
    """Return the use case with a name.

    Raises:
        SpecError: the use case does not exist.
    """
    return use_cases()[known_name(name, use_cases(), "use case")]
