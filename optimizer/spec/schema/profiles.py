"""Documents of model profiles: one model on one accelerator."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import FOLDER, BatchLimit, Count, Document, Name, PositiveCount, Share
from optimizer.kinds.fields import ReplicaProfile
from optimizer.kinds.laws import laws_given, laws_known
from optimizer.kinds.queue_models import REFERENCE, QueueModelName, default_model, without_default
from optimizer.kinds.table import LawFields
from optimizer.spec.provenance import Provenance
from optimizer.timing import PerfParms

EstimateEnd = Literal["upper", "middle", "lower"]
"""Which end of an estimate's interval is used: slow times and little memory, the middle, or the opposite."""


class EstimateSettings(Document):
    """What an estimate of the token times is for, as far as the names of the entry do not say it."""

    model: Name | None = None
    """The model's name in the catalogue; none: that of the entry."""
    config: Name | None = None
    """The model's config.json in place of a name, relative to the document; on the command line only."""
    accelerator: Name | None = None
    """The accelerator's name in the catalogue; none: that of the accelerator's type, else its own."""
    tp: PositiveCount | None = None
    """Devices of a replica (tensor parallelism); none: all of its cards."""
    weights: Name | None = None
    """Format of the weights; none: as published."""
    cache: Name = "bf16"
    """Format of the KV cache, `bf16` or `fp8`."""
    eager: bool = False
    """Whether the engine starts every kernel from the host, without captured graphs."""
    memory_utilization: Share = Field(0.9, alias="memoryUtilization")
    """Share of the device's memory that the engine takes."""
    max_requests: BatchLimit = Field(256, alias="maxRequests")
    """Most requests in the batch."""

    @field_validator("config")
    @classmethod
    def _in_its_folder(cls, config: str | None, info: ValidationInfo) -> str | None:
        """Find the file beside the document; a document from elsewhere names no files of this machine."""
        if config is None:
            return None
        folder = (info.context or {}).get(FOLDER)
        if folder is None:
            raise PydanticCustomError(
                "config", "files are read for documents in files only; name a model of the catalogue"
            )
        return str(folder / config)


class ProfileParms(PerfParms):
    """Iteration law of a profile: its coefficients, or that they are to be estimated."""

    estimate: EstimateSettings | None = Field(None, exclude_if=lambda settings: settings is None)
    """Estimate them from the architecture and the data sheet; the coefficients are then left out."""

    @model_validator(mode="before")
    @classmethod
    def _by_the_word(cls, data: object) -> object:
        """Read ``perfParms: estimate`` as an estimate whose names are those of the entry."""
        return {"estimate": {}} if isinstance(data, str) and data.lower() == "estimate" else data

    @model_validator(mode="after")
    def _one_source(self) -> "ProfileParms":
        given = [name for name in PerfParms.model_fields if getattr(self, name)]
        if self.estimate is not None and given:
            raise PydanticCustomError(
                "two_sources", "both coefficients and estimate are given; keep one of the two"
            )
        return self


def _or_the_word_estimate(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"const": "estimate"})


class ModelProfile(LawFields, ReplicaProfile):
    """One model on one accelerator: how many slices a replica takes, its batch limit and token times."""

    iteration: ProfileParms | None = Field(
        None,
        alias="perfParms",
        json_schema_extra=_or_the_word_estimate,
    )
    """Iteration law, or `estimate` in place of its coefficients; excludes the linear one."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """Tokens of KV cache of one replica; caps the batch at this over the tokens of a request."""
    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel", json_schema_extra=without_default)
    """Performance model of the candidates; absent: `continuous` with `perfParms`, else `reference`."""
    provenance: Provenance | None = Field(None, exclude_if=lambda provenance: provenance is None)
    """Where token times that were fitted to benchmarks come from; absent: not stated."""

    @model_validator(mode="after")
    def _one_law(self) -> "ModelProfile":
        known = laws_known(self)
        if "queue_model" not in self.model_fields_set:  # it stays one that is not given
            object.__setattr__(self, "queue_model", default_model(known or laws_given(self)))
        if len(known) > 1:
            keys = " and ".join(law.keys(type(self)) for law in known)
            raise PydanticCustomError(
                "two_laws", "both {keys} are given; keep one of the two latency models", {"keys": keys}
            )
        if known and self.is_estimated:
            raise PydanticCustomError(
                "two_laws",
                "both {keys} and an estimate are given; keep one of the two",
                {"keys": known[0].keys(type(self))},
            )
        return self

    @property
    def is_estimated(self) -> bool:
        """Whether the token times are to be estimated."""
        return self.iteration is not None and self.iteration.estimate is not None
