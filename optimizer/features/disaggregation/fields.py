"""Document fields for prefill and decode pools."""

from operator import not_
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from optimizer.documents import Document, GigabytesPerSecond, Milliseconds, Name, Quantity, is_none
from optimizer.features.places.fields import NetworkField

Disaggregation = Literal["never", "allowed", "required"]
FirstToken = Literal["prefill", "decode"]
Role = Literal["prefill", "decode"]


def _none_if_never(value: Disaggregation | None) -> Disaggregation | None:
    return None if value == "never" else value


class DisaggregationFields(Document):
    """Whether a server can have prefill and decode pools."""

    disaggregation: Annotated[Disaggregation | None, AfterValidator(_none_if_never)] = Field(
        None, exclude_if=is_none
    )
    """Whether the plan can (`allowed`) or must (`required`) serve the server with a pool of prefill replicas
    and a pool of decode replicas instead of replicas that do both. Default: `never`.
    """
    first_token: FirstToken | None = Field(None, alias="firstToken", exclude_if=is_none)
    """With prefill and decode pools: whether the `decode` replica sends the first token, after it has
    computed the last prompt token again, or the `prefill` replica, at the end of the handover. Default:
    `decode`.
    """


class PoolRoleField(Document):
    """The role of a current pool."""

    serving_role: Role | None = Field(None, alias="role", exclude_if=is_none)
    """Whether the replicas are those of the `prefill` or of the `decode` pool, if the server has
    `disaggregation`. Absent: they do both.
    """


class LinkTable(dict[str, float]):
    """Bandwidths by accelerator type [GB/s], which can be part of a key, as accelerators are."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Hash the items, on which equality depends."""
        return hash(frozenset(self.items()))


class LinkFields(Document):
    """Links of an accelerator over which KV caches are handed over."""

    link_gbps: GigabytesPerSecond | None = Field(None, alias="linkBandwidth", exclude_if=is_none)
    """Bandwidth at which a replica on the accelerator sends KV caches to decode replicas [GB/s]; 0 for none.
    Default: that of the usual network of its type (docs/math.md); required for other types.
    """
    links: Annotated[dict[Name, GigabytesPerSecond], AfterValidator(LinkTable)] = Field(
        default_factory=LinkTable, exclude_if=not_
    )
    """Bandwidths to decode replicas on certain accelerator types, by type [GB/s]; 0 for no link."""


class KvBytesField(Document):
    """Size of the KV cache of a token."""

    kv_bytes_per_token: Quantity | None = Field(None, alias="kvBytesPerToken", exclude_if=is_none)
    """Size of the KV cache of a token, over all cards of a replica [bytes]; required for servers with
    `disaggregation`, unless token times are estimated.
    """


class HandoverOptions(Document):
    """Handover of KV caches from prefill to decode replicas."""

    fixed_ms: Milliseconds = Field(0.0, alias="fixedMs")
    """Time of each handover in addition to the transfer [ms]; to be measured, because it can exceed the
    transfer: about 200 ms with vLLM and NIXL in 2026.
    """
    layerwise: bool = False
    """Whether layers are sent one by one during the prefill, so that only the last is left at its end."""


class HandoverField(NetworkField):
    """Optimizer options for the handover between pools, and for network latencies."""

    handover: HandoverOptions | None = Field(None, exclude_if=is_none)
    """Handover of KV caches from prefill to decode pools; default: no fixed time, all layers at once."""
