"""Documents of model profiles: one model on one accelerator."""

from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import FOLDER, BatchLimit, Count, Document, Name, PositiveCount, Share, is_none
from optimizer.features.fields import ProfileFeatureFields
from optimizer.kinds.fields import ReplicaProfile
from optimizer.kinds.laws import laws_given, laws_known
from optimizer.kinds.queue_models import REFERENCE, QueueModelName, default_model, without_default
from optimizer.kinds.table import LawFields
from optimizer.schema.provenance import Provenance
from optimizer.timing import PerfParms


class EstimateSettings(Document):
    """Settings of an estimate of token times."""

    model: Name | None = None
    """Name of the model in the catalogue; default: the model's name in the profile."""
    config: Name | None = None
    """Path of the model's config.json, relative to the document, instead of a catalogue name; command line
    only.
    """
    ignore_keys: tuple[Name, ...] = Field((), alias="ignoreKeys", strict=False)
    """Keys of the config.json to ignore because they have no effect on memory and times."""
    accelerator: Name | None = None
    """Name of the accelerator in the catalogue; default: the accelerator's type, else its name."""
    tp: PositiveCount | None = None
    """Tensor-parallel degree, the number of devices per replica; default: all cards of the replica."""
    weights: Name | None = None
    """Weight format; default: the published format."""
    cache: Name | None = None
    """Format of the KV cache: `bf16`, `fp8` or `fp8_ds_mla`; default: the checkpoint's format, else `bf16`.
    """
    eager: bool = False
    """Whether the engine launches each kernel from the host instead of running captured graphs."""
    engine: Name | None = None
    """Serving engine and its version, such as `vllm:0.11`; default: the one that estimates assume."""
    memory_utilization: Share | None = Field(None, alias="memoryUtilization")
    """Fraction of device memory that the engine can use; default: the engine's, 0.9 for most."""
    max_requests: BatchLimit | None = Field(None, alias="maxRequests")
    """Maximum number of requests in the batch; default: the engine's on the accelerator."""

    @field_validator("config")
    @classmethod
    def _in_its_folder(cls, config: str, info: ValidationInfo) -> str:
        """Resolve the path of a config.json relative to the document.

        Only documents in files can name files.
        """
        folder = (info.context or {}).get(FOLDER)
        if folder is None:
            raise PydanticCustomError(
                "config", "only documents in files can name a config.json; name a model of the catalogue"
            )
        return str(folder / config)


class ProfileParms(PerfParms):
    """Iteration law (latency model) of a profile: its coefficients, or settings to estimate them.

    An iteration takes `alpha` + `beta` × tokens computed + `gamma` × KV tokens read, plus further terms
    (math.md, eq. 63).
    """

    estimate: EstimateSettings | None = Field(None, exclude_if=is_none)
    """Settings to estimate the coefficients from the model's architecture and the accelerator's data sheet.
    """

    @model_validator(mode="before")
    @classmethod
    def _by_the_word(cls, data: object) -> object:
        """Read ``perfParms: estimate`` as an estimate with default settings."""
        return {"estimate": {}} if isinstance(data, str) and data.lower() == "estimate" else data

    @model_validator(mode="after")
    def _one_source(self) -> "ProfileParms":
        given = [name for name in PerfParms.model_fields if getattr(self, name)]
        if self.estimate is not None and given:
            raise PydanticCustomError(
                "two_sources", "both coefficients and an estimate are given; keep one of the two"
            )
        return self


def _or_the_word_estimate(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"type": "string", "enum": ["estimate"]})


class ModelProfile(ProfileFeatureFields, LawFields, ReplicaProfile):
    """A model on an accelerator: accelerators per replica, batch limit and latency model."""

    iteration: ProfileParms | None = Field(
        None,
        alias="perfParms",
        json_schema_extra=_or_the_word_estimate,
    )
    """Iteration law (latency model), or `estimate` instead of its coefficients; excludes the linear law."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """KV cache of one replica [tokens]. It limits the batch to this number divided by the tokens of a
    request; default: unlimited.
    """
    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel", json_schema_extra=without_default)
    """Queue model: `reference` is a birth-death queue that computes means; `continuous` models continuous
    batching, with percentiles, variability and both schedulers (math.md, section 17). Static
    batches and batch servers have their own models, `static` and `bulk`. Default: `continuous` with
    `perfParms`, else `reference`.
    """
    provenance: Provenance | None = Field(None, exclude_if=is_none)
    """Provenance of token times fitted to benchmarks, as written by `inferplan fit`; absent if not stated."""

    @model_validator(mode="after")
    def _one_law(self) -> "ModelProfile":
        known = laws_known(self)
        if "queue_model" not in self.model_fields_set:  # without marking it as given
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
        """Whether the token times are estimated from architecture and data sheet."""
        return self.iteration is not None and self.iteration.estimate is not None
