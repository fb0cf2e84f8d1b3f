"""The kind of replicas that generate tokens for several requests at a time."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import Field

from optimizer.documents import Document, OutputDocument, is_none
from optimizer.errors import AnalysisError
from optimizer.kinds.fields import Load, PlacedServer, ReplicaProfile
from optimizer.kinds.kind import EngineContainer, EngineSettings, Fault, KindOf
from optimizer.kinds.shown import EVERYWHERE, LOSS, WAIT, Shown, TableName, Words
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.performance import OwnArrays, QueueModel
from optimizer.queueing.reference import ReplicaQueues
from optimizer.queueing.static import StaticQueues
from optimizer.simulation.law import IterationCoefficients, ProcessorSharingCoefficients, StaticCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.replicas import SimulatedReplica, StaticReplica, TokenReplica
from optimizer.timing.iteration import FullIterationLaw, IterationFields, IterationLaw
from optimizer.timing.law import Law
from optimizer.timing.linear import LinearFields, LinearLaw
from optimizer.timing.mixture import MixtureIterationLaw
from optimizer.timing.static import PADDED, StaticLaw, is_static

LENGTHS_NEEDED = (
    "missing; a static batch lasts as long as its longest output: give the CV of the output lengths"
)
"""Error message for static batching without the coefficient of variation of the output lengths."""

VLLM_IMAGE = "vllm/vllm-openai:latest"
VLLM_NODES = (
    "--nnodes=$(LWS_GROUP_SIZE)",
    "--node-rank=$(LWS_WORKER_INDEX)",
    "--master-addr=$(LWS_LEADER_ADDRESS)",
)
"""Arguments of vLLM on several nodes, with variables that a LeaderWorkerSet sets in its pods."""
VLLM_HANDOVER = ('--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}',)
"""Arguments of vLLM for prefill and decode replicas: KV caches go over NIXL in either direction."""


class TokenFields(IterationFields, LinearFields):
    """Document fields for a latency model of token generation."""


class TokenProfile(TokenFields, ReplicaProfile):
    """Profile of a token replica: the common fields, and a latency model."""

    kv_capacity_tokens: int | None


class TokenPoolFields(OutputDocument):
    """Fields of a pool that only token batching has."""

    batching: Literal["static", "padded"] | None = Field(None, exclude_if=is_none)
    """Type of static batching, `static` or `padded`; absent for continuous batching and other kinds."""


class TokenBatching(KindOf[TokenProfile, PlacedServer]):
    """Kind of replicas with continuous or static batching of tokens.

    docs/fidelity.md explains the default queue models.
    """

    name: ClassVar[str] = "token batching"
    gives: ClassVar[str] = "tokens"
    queue_models: ClassVar[Mapping[type[Law], tuple[type[QueueModel], ...]]] = {
        LinearLaw: (ReplicaQueues,),
        IterationLaw: (ContinuousQueues, ReplicaQueues),
        MixtureIterationLaw: (ContinuousQueues, ReplicaQueues),
        FullIterationLaw: (ContinuousQueues,),
        StaticLaw: (StaticQueues,),
    }
    metrics: ClassVar[tuple[Shown, ...]] = (
        Shown(
            "itl", "itl_ms", "ITL", EVERYWHERE, "ms", ",.1f", rank=2, target="itl_ms",
            spoken="token time",
        ),
        Shown(
            "ttft", "ttft_ms", "TTFT", EVERYWHERE, "ms", ",.0f", rank=1, target="ttft_ms",
            spoken="first token",
        ),
        Shown("e2e", "", "end-to-end", ("simulated",), "ms", ",.0f", spoken="last token"),
        WAIT,
        LOSS,
    )  # fmt: skip
    orders: ClassVar[Mapping[TableName, tuple[str, ...]]] = MappingProxyType(
        dict.fromkeys(("simulation", "simulated"), ("ttft", "itl"))
    )
    lengths: ClassVar[tuple[str, ...]] = ("in_tokens", "out_tokens")
    words: ClassVar[Words] = Words(utilisation_heading="batch in use")

    def check(
        self,
        server: PlacedServer,  # noqa: ARG002
        profiles: Sequence[TokenProfile],
        load: Load,
    ) -> Iterator[Fault]:
        """Yield an error if static batching lacks the coefficient of variation of output lengths."""
        if "out_tokens_cv" not in load.model_fields_set and any(map(is_static, profiles)):
            yield "currentAlloc.load.outTokensCV", LENGTHS_NEEDED

    def replica(
        self,
        server: PlacedServer,
        profile: TokenProfile,
        max_batch: int,
        pool: Document | None = None,  # noqa: ARG002  plans choose no other settings
    ) -> SimulatedReplica:
        """Return a replica for the simulator: continuous batching, processor sharing or static batches."""
        return simulated_replica(profile, profile.kv_capacity_tokens, max_batch, server.max_queue_size)

    def pool_fields(
        self,
        server: PlacedServer,  # noqa: ARG002
        profile: TokenProfile,
        max_batch: int,  # noqa: ARG002
        own: OwnArrays | None,  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Return the pool's type of static batching; empty for continuous batching."""
        return {"batching": profile.batching} if is_static(profile) else {}

    def engine_settings(self, pool: Document) -> EngineSettings:
        """Return the batch limit as an argument of vLLM; for static batching as an annotation."""
        if getattr(pool, "batching", None) is not None:
            return super().engine_settings(pool)
        return EngineSettings((f"--max-num-seqs={getattr(pool, 'max_batch', 0)}",))

    def container(self, profile: TokenProfile, cards: int, source: str) -> EngineContainer:
        """Return a vLLM container with tensor parallelism over all cards, and the settings of the profile.

        For static batching it is the user's own image.
        """
        if is_static(profile):
            return super().container(profile, cards, source)
        estimate = getattr(profile.iteration, "estimate", None)
        flags = [f"--tensor-parallel-size={(estimate and estimate.tp) or cards}"]
        if profile.iteration is not None:
            flags.append(f"--max-num-batched-tokens={profile.max_num_tokens}")
        if estimate is not None:
            flags.append(f"--gpu-memory-utilization={estimate.memory_utilization or 0.9:g}")
            flags += [f"--kv-cache-dtype={estimate.cache}"] if estimate.cache else []
            flags += ["--enforce-eager"] if estimate.eager else []
        return EngineContainer(
            VLLM_IMAGE,
            ("vllm", "serve", source, f"--served-model-name={profile.name}", *flags),
            port=8000,
            port_flag="--port",
            hub_variable="HF_TOKEN",
            leader_args=VLLM_NODES,
            worker_args=(*VLLM_NODES, "--headless"),
            handover_args=VLLM_HANDOVER,
            handover_host="VLLM_NIXL_SIDE_CHANNEL_HOST",
        )

    def demand_rps(self, load: Load, throughput_tps: float) -> float:
        """Return the arrival rate, or that of a throughput target [requests/s]; 0 without output tokens."""
        rate_rps = super().demand_rps(load, throughput_tps)
        if not rate_rps or not load.out_tokens:
            return 0.0
        return throughput_tps / max(load.out_tokens, 1.0) if throughput_tps else rate_rps


def simulated_replica(
    document: TokenFields, kv_capacity_tokens: int | None, max_batch: int, max_queue: int | None
) -> SimulatedReplica:
    """Return a token replica for the simulator.

    Args:
        document: document with the latency model.
        kv_capacity_tokens: KV cache capacity [tokens]; None for unlimited.
        max_batch: batch limit [requests].
        max_queue: queue capacity [requests]; None for unlimited.

    Raises:
        AnalysisError: the latency model cannot be simulated.
    """
    limits = Limits(
        max_batch=max_batch,
        max_num_tokens=document.max_num_tokens,
        kv_tokens=UNLIMITED if kv_capacity_tokens is None else kv_capacity_tokens,
        max_queue=UNLIMITED if max_queue is None else max_queue,
        prefill_first=document.scheduler == "prefill-first",
    )
    if document.iteration is not None:
        given = (getattr(document.iteration, name) for name in IterationCoefficients._fields)
        return TokenReplica(IterationCoefficients(*given), limits)
    if document.decode is None and document.prefill is None:
        raise AnalysisError(_not_simulated(document))
    alpha, beta, gamma, delta = LinearLaw.parameters(document)
    if is_static(document):
        return StaticReplica(
            StaticCoefficients(alpha, beta, gamma, delta, document.batching == PADDED), limits
        )
    return TokenReplica(ProcessorSharingCoefficients(alpha, beta, gamma, delta), limits)


def _not_simulated(document: Document) -> str:
    """Return the error message for a document whose latency model the simulator does not support."""
    document_type = type(document)
    given = [
        law.keys(document_type)
        for law in TokenBatching.queue_models
        if any(getattr(document, part, None) is not None for part in law.parts)
    ]
    able = f"{IterationLaw.keys(document_type)} or {LinearLaw.keys(document_type)}"
    return (
        f"{', '.join(given)}: requests cannot be simulated under this latency model; give {able} to simulate"
    )
