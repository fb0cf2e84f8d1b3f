"""Memory of models on accelerators: requests that fit at the same time."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from optimizer.documents import Document
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.units import GIGABYTES, SHARE, TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    from optimizer.profiles import AcceleratorFacts, ModelFacts
    from optimizer.profiles.capacity import CacheCapacity, CacheSettings
    from optimizer.profiles.deployment import Deployment

Tokens = Annotated[float | None, Flag("TOKENS", TOKENS)]
Gigabytes = Annotated[float | None, Flag("GB", GIGABYTES)]


class MemoryQuestion(Request):
    """A model, accelerators, and the lengths of requests. Sizes are in GB of 10⁹ bytes."""

    model: str
    """Name of the model in the catalogue."""
    accelerators: tuple[str, ...] = Field(min_length=1, max_length=100)
    """Accelerators of the catalogue, each with an optional number of cards: H100, 4xH100."""
    tp: int | None = Field(None, ge=1, le=1024)
    """Devices of a replica, tensor parallelism; default: all devices of the cards."""
    weights: str | None = None
    """Format of the weights: bf16, fp8, int8, int4, fp4 or mxfp4; default: as published."""
    cache: str | None = None
    """Format of the KV cache: bf16 or fp8; default: bf16."""
    memory_utilization: Annotated[float | None, Flag("SHARE", SHARE)] = Field(None, ge=0.01, le=1)
    """Share of the device memory that the engine may use; default: 0.9."""
    in_tokens: Tokens = Field(None, ge=1, le=1e8)
    """Mean input length [tokens]; default: 1024."""
    out_tokens: Tokens = Field(None, ge=1, le=1e8)
    """Mean output length [tokens]; default: 256."""
    max_requests: int | None = Field(None, ge=1, le=10**6)
    """Most requests in the batch, which determines the workspace; default: 256."""
    max_num_tokens: int | None = Field(None, ge=1, le=10**9)
    """Token budget of an iteration, which determines the workspace; default: 8192."""
    block_tokens: Annotated[int, Flag("TOKENS")] = Field(16, ge=1, le=10**6)
    """With --memory: tokens of a block of the cache (16)."""
    max_length: Tokens = Field(None, ge=1, le=1e8)
    """With --memory: longest request, for which an engine without pages reserves memory (the context)."""
    prefix_tokens: Annotated[float, Flag("TOKENS", TOKENS)] = Field(0.0, ge=0, le=1e8)
    """With --memory: tokens at the start of the input that requests share (0)."""
    prefix_requests: Annotated[int | None, Flag("N")] = Field(None, ge=1, le=10**9)
    """With --memory: requests that share a prefix (all)."""
    prefix_hit_rate: Annotated[float, Flag("SHARE", SHARE)] = Field(0.0, ge=0, le=1)
    """With --memory: share of requests whose prefix is in the cache already, so that it is not computed."""
    weight_size: Gigabytes = Field(None, ge=0, le=1e9)
    """With --memory: known size of all weights [GB] (estimated)."""
    workspace: Gigabytes = Field(None, ge=0, le=1e6)
    """With --memory: memory of a device that is neither weights nor cache [GB] (estimated)."""
    device_memory: Gigabytes = Field(None, ge=0.01, le=1e6)
    """With --memory: memory of a device [GB] (from the catalogue)."""


_OF_DEPLOYMENT = (
    "tp", "weights", "cache", "memory_utilization", "in_tokens", "out_tokens", "max_requests",
    "max_num_tokens",
)  # fmt: skip
SHARED_FIELDS = ("model", "accelerators", *_OF_DEPLOYMENT)
"""Fields that an estimate of token times has as well."""


class Places(Document):
    """Requests that fit at the same time, by the way in which the engine assigns memory."""

    reserved: int
    """If each request reserves the maximum length, without pages."""
    paged: int
    """In whole blocks, if each request is admitted only if its entire output fits."""
    average: int
    """In whole blocks, as many as fit on average; requests are preempted at times."""


class DeviceMemory(Document):
    """A model on the cards of an accelerator; sizes are for one device."""

    accelerator: str
    """Name of the accelerator."""
    cards: int
    """Cards of a replica."""
    tp: int
    """Devices of a replica."""
    problem: str | None = None
    """The reason why no request fits; null if one fits."""
    usable_gb: float = Field(alias="usable")
    """Memory of a device that the engine may use [GB]."""
    weights_gb: float = Field(alias="weights")
    """Weights on a device [GB]."""
    workspace_gb: float = Field(alias="workspace")
    """Activations, logits and runtime on a device [GB]."""
    free_gb: float = Field(alias="free")
    """Memory of a device for the cache [GB]; negative if the weights do not fit."""
    free_low_gb: float = Field(alias="freeLow")
    """Lower end of its interval [GB]."""
    free_high_gb: float = Field(alias="freeHigh")
    """Upper end of its interval [GB]."""
    token_bytes: float = Field(alias="tokenBytes")
    """Cache of a token on a device [bytes], averaged over a request."""
    kv_copies: float = Field(alias="kvCopies")
    """Copies of each head of keys and values; more than 1 if there are fewer heads than devices."""
    kv_tokens: int = Field(alias="kvTokens")
    """Tokens that the cache holds."""
    requests: Places
    """Requests at the same time."""
    requests_low: Places = Field(alias="requestsLow")
    """Requests at the lower end of the free memory."""
    least_cards: int | None = Field(None, alias="leastCards")
    """Least number of cards on which a request fits; null: more than 64 devices."""
    least_requests: Places | None = Field(None, alias="leastRequests")
    """Requests at the same time on these."""


class MemoryAnswer(Document):
    """Memory of a model and its requests, and the requests that fit on each accelerator."""

    model: str
    """Name of the model."""
    attention: str
    """MHA, GQA, MQA or MLA."""
    weights: str
    """Format of the weights."""
    cache: str
    """Format of the cache."""
    weights_gb: float = Field(alias="weightsGB")
    """All weights [GB]."""
    token_bytes: float = Field(alias="tokenBytes")
    """Cache of a token with all heads [bytes], averaged over a request."""
    in_tokens: float = Field(alias="inTokens")
    """Mean input length [tokens]."""
    out_tokens: float = Field(alias="outTokens")
    """Mean output length [tokens]."""
    block_tokens: int = Field(alias="blockTokens")
    """Tokens of a block."""
    max_length: float = Field(alias="maxLength")
    """Longest request [tokens]."""
    reserved_gb: float = Field(alias="reserved")
    """Cache that a request reserves without pages [GB]."""
    paged_gb: float = Field(alias="paged")
    """Cache of a request in whole blocks at the end of its output [GB]."""
    average_gb: float = Field(alias="average")
    """Cache of a request in whole blocks, on average [GB]."""
    paged_gain: float = Field(alias="pagedGain")
    """Factor by which pages increase the number of requests if each is admitted with its entire output."""
    average_gain: float = Field(alias="averageGain")
    """Factor by which pages increase it on average."""
    shared_tokens: float = Field(alias="sharedTokens")
    """Tokens of the prefix that are shared, in whole blocks."""
    sharing_gain: float = Field(alias="sharingGain")
    """Factor by which the shared prefix increases the number of requests on average."""
    prefill_tokens: float = Field(alias="prefillTokens")
    """Input tokens that are computed per request; the others are found in the cache [tokens]."""
    devices: tuple[DeviceMemory, ...]
    """The model on each accelerator, in the order of the question."""


def memory_of(question: MemoryQuestion, model: "str | Path | ModelFacts | None" = None) -> MemoryAnswer:
    """Return the requests that fit in the memory of each accelerator at the same time.

    Args:
        question: the model, the accelerators and the lengths of requests.
        model: the model if it is not one of the catalogue: the path of a config.json, or facts.

    Raises:
        SpecError: a name is unknown, or lengths contradict each other.
    """
    from optimizer.profiles.capacity import CacheSettings
    from optimizer.profiles.catalogue import load_catalogue
    from optimizer.profiles.estimate import find_model, find_slice

    facts = load_catalogue().model(question.model) if model is None else find_model(model)
    settings = CacheSettings(
        question.block_tokens, question.max_length, question.prefix_tokens, question.prefix_requests
    )
    deployment = _deployment(question)
    found = []
    for name in question.accelerators:
        accelerator, tp = find_slice(name, question.tp)
        capacity = _capacity(facts, accelerator, replace(deployment, tp=tp), settings)
        found.append((accelerator, capacity))
    whole = _capacity(facts, found[0][0], replace(deployment, tp=1), settings)
    return _answer(question, whole, tuple(_on_device(*pair) for pair in found))


def _deployment(question: MemoryQuestion) -> "Deployment":
    from optimizer.profiles.deployment import Deployment
    from optimizer.profiles.memory import GB, GIB

    given = {name: value for name in _OF_DEPLOYMENT if (value := getattr(question, name)) is not None}
    memory = question.device_memory
    return Deployment(
        **given,
        memory_gib=None if memory is None else memory * GB / GIB,
        weights_gb=question.weight_size,
        workspace_gb=question.workspace,
    )


def _capacity(
    model: "ModelFacts", accelerator: "AcceleratorFacts", deployment: "Deployment", settings: "CacheSettings"
) -> "CacheCapacity":
    from optimizer.profiles.capacity import CacheCapacity
    from optimizer.profiles.iterations import Iterations
    from optimizer.profiles.memory import Memory

    return CacheCapacity(Memory(Iterations(model, accelerator, deployment)), settings)


def _answer(
    question: MemoryQuestion, whole: "CacheCapacity", devices: tuple[DeviceMemory, ...]
) -> MemoryAnswer:
    """Return the answer; `whole` is the model undivided, on one device."""
    memory, iterations = whole.memory, whole.memory.iterations
    deployment = iterations.deployment
    paged, average = whole.paged_tokens, whole.average_tokens
    reserved_bytes = memory.request_bytes(whole.reserved_tokens)
    return MemoryAnswer(
        model=iterations.model.name,
        attention=attention_of(iterations.model),
        weights=iterations.format.name,
        cache=deployment.cache,
        weights_gb=memory.weight_bytes / 1e9,
        token_bytes=_token_bytes(whole),
        in_tokens=deployment.in_tokens,
        out_tokens=deployment.out_tokens,
        block_tokens=whole.settings.block_tokens,
        max_length=whole.reserved_tokens,
        reserved_gb=reserved_bytes / 1e9,
        paged_gb=memory.request_bytes(paged) / 1e9,
        average_gb=memory.request_bytes(average) / 1e9,
        paged_gain=reserved_bytes / memory.request_bytes(paged),
        average_gain=reserved_bytes / memory.request_bytes(average),
        shared_tokens=whole.shared_tokens,
        sharing_gain=whole.sharing_gain,
        prefill_tokens=deployment.in_tokens - question.prefix_hit_rate * whole.shared_tokens,
        devices=devices,
    )


def _on_device(accelerator: "AcceleratorFacts", capacity: "CacheCapacity") -> DeviceMemory:
    memory, iterations = capacity.memory, capacity.memory.iterations
    tp = iterations.deployment.tp
    low, free, high = memory.free_bytes
    least = capacity.least_tp(accelerator.devices)
    return DeviceMemory(
        accelerator=accelerator.name,
        cards=-(-tp // accelerator.devices),
        tp=tp,
        problem=capacity.problem,
        usable_gb=memory.total_bytes / 1e9,
        weights_gb=memory.weight_bytes / 1e9,
        workspace_gb=(memory.total_bytes - memory.weight_bytes - free) / 1e9,
        free_gb=free / 1e9,
        free_low_gb=low / 1e9,
        free_high_gb=high / 1e9,
        token_bytes=_token_bytes(capacity),
        kv_copies=float(tp) if iterations.model.latent else max(1.0, tp / iterations.model.kv_heads),
        kv_tokens=0 if capacity.problem else int(memory.tokens(free)),
        requests=_places(capacity, free),
        requests_low=_places(capacity, low),
        least_cards=None if least is None else least.memory.iterations.deployment.tp // accelerator.devices,
        least_requests=None if least is None else _places(least, least.memory.free_bytes[1]),
    )


def _places(capacity: "CacheCapacity", free_bytes: float) -> Places:
    if capacity.problem is not None:
        return Places(reserved=0, paged=0, average=0)
    return Places(
        reserved=capacity.requests(free_bytes, capacity.reserved_tokens, paged=False),
        paged=capacity.requests(free_bytes, capacity.paged_tokens),
        average=capacity.requests(free_bytes, capacity.average_tokens),
    )


def _token_bytes(capacity: "CacheCapacity") -> float:
    tokens = capacity.memory.iterations.deployment.request_tokens
    return capacity.memory.request_bytes(tokens) / tokens


def attention_of(model: "ModelFacts") -> str:
    """Return the kind of attention by its heads of keys and values."""
    if model.latent:
        return "MLA"
    if model.kv_heads == model.heads:
        return "MHA"
    return "MQA" if model.kv_heads == 1 else "GQA"
