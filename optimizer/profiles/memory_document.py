"""The document on the memory of a model and its requests on accelerators."""

from collections.abc import Iterable, Iterator

from pydantic import Field

from optimizer.documents import Document
from optimizer.profiles.capacity import CacheCapacity
from optimizer.profiles.formats import format_of
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.layers import Cache, Layer, ModelFacts
from optimizer.profiles.memory import GIB, Memory


class ConcurrentRequests(Document):
    """Number of requests that fit at the same time, by the engine's method of memory allocation."""

    reserved: int
    """Number without paging, if each request reserves memory for the maximum length."""
    paged: int
    """Number with paging, if a request is admitted only if its entire output fits."""
    average: int
    """Number with paging that fits on average; requests are sometimes preempted."""


class MemoryParts(Document):
    """Memory of one device that the engine uses [GiB], by part."""

    weights: float
    """Weights, with the padding of the engine."""
    sampler: float = 0.0
    """Buffers of the sampler for the largest batch."""
    activations: float = 0.0
    """Activations of the largest iteration beyond the buffers of the sampler."""
    graphs: float = 0.0
    """CUDA graphs, if the engine counts them."""
    runtime: float = 0.0
    """Libraries, communication and further memory of the engine."""
    workspace: float = 0.0
    """Stated memory for anything but weights and cache, instead of the four parts above."""
    cache: float
    """Cache; negative if the weights do not fit."""


class DeviceMemory(Document):
    """Memory of a model on the cards of an accelerator; sizes are for one device."""

    accelerator: str
    """Name of the accelerator."""
    cards: int
    """Number of cards per replica."""
    tp: int
    """Number of devices per replica."""
    problem: str | None = None
    """Reason why no request fits; null if at least one fits."""
    usable_gb: float = Field(alias="usable")
    """Memory of a device that the engine can use [GB]."""
    weights_gb: float = Field(alias="weights")
    """Size of the weights on a device [GB]."""
    workspace_gb: float = Field(alias="workspace")
    """Size of activations, logits and runtime on a device [GB]."""
    free_gb: float = Field(alias="free")
    """Memory of a device for the cache [GB]; negative if the weights do not fit."""
    free_low_gb: float = Field(alias="freeLow")
    """Lower end of the interval of the free memory [GB]."""
    free_high_gb: float = Field(alias="freeHigh")
    """Upper end of the interval of the free memory [GB]."""
    parts: MemoryParts
    """The memory that the engine can use, by part, in GiB."""
    token_bytes: float = Field(alias="tokenBytes")
    """Cache size of a token on a device [bytes], averaged over a request."""
    kv_copies: float = Field(alias="kvCopies")
    """Number of copies of each KV head; more than 1 if there are fewer heads than devices."""
    kv_tokens: int = Field(alias="kvTokens")
    """Number of tokens that fit in the cache."""
    requests: ConcurrentRequests
    """Number of requests that fit at the same time."""
    requests_low: ConcurrentRequests = Field(alias="requestsLow")
    """Number of requests that fit at the lower end of the free memory."""
    least_cards: int | None = Field(None, alias="leastCards")
    """Minimum number of cards on which a request fits; null if more than 64 devices are needed."""
    least_requests: ConcurrentRequests | None = Field(None, alias="leastRequests")
    """Number of requests that fit on `leastCards` cards; null if more than 64 devices are needed."""


class LayerMemory(Document):
    """A group of equal layers, as interpreted; sizes are for one layer with all heads."""

    count: int
    """Number of layers."""
    attention: str
    """Attention: type, and query heads / KV heads x width."""
    cache: str
    """Data kept for a request: rows of all tokens, rows of the last tokens, a state of fixed size, or
    nothing.
    """
    token_bytes: float = Field(alias="tokenBytes")
    """Cache size of a token while all tokens are kept [bytes]."""
    state_bytes: float = Field(alias="stateBytes")
    """Size of the state of a request of any length [bytes]."""
    feed_forward: str = Field(alias="feedForward")
    """Feed-forward part: widths of dense, routed and shared experts."""
    weights: str
    """Number formats of the weights."""
    weights_gb: float = Field(alias="weightsGB")
    """Size of the weights of all layers of the group [GB]."""


class MemoryAnswer(Document):
    """Memory of a model and its requests, and the requests that fit on each accelerator."""

    model: str
    """Name of the model."""
    attention: str
    """Type of attention: MHA, GQA, MQA or MLA."""
    weights: str
    """Number format of the weights."""
    cache: str
    """Number format of the KV cache."""
    engine: str
    """Serving engine and version whose rules apply."""
    weights_gb: float = Field(alias="weightsGB")
    """Size of all weights [GB]."""
    parameters_b: float = Field(alias="parametersB")
    """Number of parameters of the decoder [10⁹]."""
    assumed: bool = False
    """Whether the model type is unknown, so that the layers are an assumption."""
    layers: tuple[LayerMemory, ...] = Field(strict=False)
    """Groups of equal layers of the model."""
    notes: tuple[str, ...] = Field((), strict=False)
    """Sentences on the interpretation of the model, and on omitted parts."""
    token_bytes: float = Field(alias="tokenBytes")
    """Cache size of a token with all heads [bytes], averaged over a request."""
    in_tokens: float = Field(alias="inTokens")
    """Mean input length [tokens]."""
    out_tokens: float = Field(alias="outTokens")
    """Mean output length [tokens]."""
    block_tokens: int = Field(alias="blockTokens")
    """Number of tokens in a block of the cache."""
    max_length: float = Field(alias="maxLength")
    """Maximum request length [tokens]."""
    reserved_gb: float = Field(alias="reserved")
    """Cache reserved for each request without paging [GB]."""
    paged_gb: float = Field(alias="paged")
    """Cache size of a request in full blocks at the end of its output [GB]."""
    average_gb: float = Field(alias="average")
    """Cache size of a request in full blocks, averaged over its output [GB]."""
    paged_gain: float = Field(alias="pagedGain")
    """Factor by which paging increases the number of requests, if a request is admitted only if its entire
    output fits.
    """
    average_gain: float = Field(alias="averageGain")
    """Factor by which paging increases the number of requests on average."""
    shared_tokens: float = Field(alias="sharedTokens")
    """Number of shared tokens in full blocks of the prefix."""
    sharing_gain: float = Field(alias="sharingGain")
    """Factor by which sharing the prefix increases the number of requests on average."""
    prefill_tokens: float = Field(alias="prefillTokens")
    """Mean number of input tokens that are computed per request; the others are in the cache."""
    devices: tuple[DeviceMemory, ...] = Field(strict=False)
    """Memory of the model on each accelerator, in the order of the request."""


def memory_answer(
    whole: CacheCapacity, cache_capacities: Iterable[CacheCapacity], prefix_hit_rate: float
) -> MemoryAnswer:
    """Build the document on the memory of a model and its requests.

    Args:
        whole: capacity of the model on one device, without parallelism.
        cache_capacities: capacity of the model on each accelerator.
        prefix_hit_rate: share of requests whose prefix is already cached.
    """
    memory, iterations = whole.memory, whole.memory.iterations
    deployment = iterations.deployment
    paged, average = whole.paged_tokens, whole.average_tokens
    reserved_bytes = memory.request_bytes(whole.reserved_tokens)
    paged_bytes, average_bytes = whole.held_bytes(paged), whole.held_bytes(average)
    return MemoryAnswer(
        model=iterations.model.name,
        attention=attention_kinds(iterations.model),
        weights="not understood" if iterations.weights_unknown else iterations.format.name,
        cache=iterations.cache,
        engine=str(deployment.serving),
        weights_gb=memory.weight_bytes / 1e9,
        parameters_b=iterations.model.parameters / 1e9,
        assumed=iterations.model.assumed,
        layers=tuple(_layer(layer, iterations) for layer in iterations.model.layers),
        notes=tuple(_notes(memory)),
        token_bytes=_token_bytes(whole),
        in_tokens=deployment.in_tokens,
        out_tokens=deployment.out_tokens,
        block_tokens=whole.settings.block_tokens,
        max_length=whole.reserved_tokens,
        reserved_gb=reserved_bytes / 1e9,
        paged_gb=paged_bytes / 1e9,
        average_gb=average_bytes / 1e9,
        paged_gain=reserved_bytes / paged_bytes,
        average_gain=reserved_bytes / average_bytes,
        shared_tokens=whole.shared_tokens,
        sharing_gain=whole.sharing_gain,
        prefill_tokens=deployment.in_tokens - prefix_hit_rate * whole.shared_tokens,
        devices=tuple(map(_on_device, cache_capacities)),
    )


def _on_device(capacity: CacheCapacity) -> DeviceMemory:
    memory, iterations = capacity.memory, capacity.memory.iterations
    accelerator = iterations.accelerator
    tp = iterations.deployment.tp
    low, free, high = memory.free_bytes
    least = capacity.least_tp(accelerator.devices)
    return DeviceMemory(
        accelerator=accelerator.name,
        cards=-(-tp // accelerator.devices),
        tp=tp,
        problem=capacity.problem,
        usable_gb=memory.total_bytes / 1e9,
        weights_gb=memory.parts["weights"] / 1e9,
        workspace_gb=(memory.total_bytes - memory.parts["weights"] - free) / 1e9,
        free_gb=free / 1e9,
        free_low_gb=low / 1e9,
        free_high_gb=high / 1e9,
        parts=MemoryParts(**{part: size / GIB for part, size in memory.parts.items()}, cache=free / GIB),
        token_bytes=_token_bytes(capacity),
        kv_copies=_copies(iterations.model, tp),
        kv_tokens=0 if capacity.problem else int(memory.tokens(free)),
        requests=_concurrent_requests(capacity, free),
        requests_low=_concurrent_requests(capacity, low),
        least_cards=None if least is None else least.memory.iterations.deployment.tp // accelerator.devices,
        least_requests=None if least is None else _concurrent_requests(least, least.memory.free_bytes[1]),
    )


def _concurrent_requests(capacity: CacheCapacity, free_bytes: float) -> ConcurrentRequests:
    if capacity.problem is not None:
        return ConcurrentRequests(reserved=0, paged=0, average=0)
    return ConcurrentRequests(
        reserved=capacity.requests(free_bytes, capacity.reserved_tokens, paged=False),
        paged=capacity.requests(free_bytes, capacity.paged_tokens),
        average=capacity.requests(free_bytes, capacity.average_tokens),
    )


def _token_bytes(capacity: CacheCapacity) -> float:
    tokens = capacity.memory.iterations.deployment.request_tokens
    return capacity.memory.request_bytes(tokens) / tokens


def _copies(model: ModelFacts, tp: int) -> float:
    """Return how many devices of a replica hold a copy of the same part of the cache."""
    if model.cache_types() & {"latent", "compressed"}:
        return float(tp)
    return max([1.0, *(tp / layer.kv_heads for layer in model.layers if layer.kv_heads)])


def _layer(layer: Layer, iterations: Iterations) -> LayerMemory:
    known = not iterations.weights_unknown and not iterations.format.published
    asked = iterations.format.name if known else None
    forms = [(format_of(matrix, iterations.model, asked), matrix.parameters) for matrix in layer.matrices]
    rows = sum(iterations.row_bytes(cache) / cache.every for cache in layer.caches if cache.type != "state")
    return LayerMemory(
        count=layer.count,
        attention=layer.attention or "none",
        cache=" + ".join(map(_in_words, layer.caches)) or "none",
        token_bytes=rows,
        state_bytes=sum(cache.fixed_bytes(1) for cache in layer.caches),
        feed_forward=layer.feed_forward or "none",
        weights=", ".join(dict.fromkeys(form for (form, _), _ in forms)),
        weights_gb=layer.count * sum(size * parameters for (_, size), parameters in forms) / 1e9,
    )


def _in_words(cache: Cache) -> str:
    if cache.type == "state":
        return f"state {cache.fixed_bytes(1) / 1e6:.3g} MB"
    return f"{cache.type} {cache.limit:,}" if cache.limit else cache.type


def _notes(memory: Memory) -> Iterator[str]:
    """Yield sentences on the interpretation of the model, and on differences between engines."""
    model, types = memory.iterations.model, memory.iterations.model.cache_types()
    yield from (*model.notes, *filter(None, [memory.size_note]))
    for use, text in (
        ("tower", "the weights include {:.3g} GB of vision and audio"),
        ("mtp", "layers for speculative decoding, {:.3g} GB, are not loaded without it, and not counted"),
    ):
        size = sum(matrix.parameters * matrix.size for matrix in model.others if matrix.use == use)
        if size:
            yield text.format(size / 1e9)
    serving = memory.iterations.deployment.serving
    least, sampler, most = serving.sampler_bytes
    if least < sampler < most:
        yield (
            f"{serving.name} has two model runners: their samplers take {least:g} and {most:g} B per request "
            "and vocabulary entry, the estimate takes the mean; --engine states one"
        )
    if "chunk" in types:
        yield "vLLM keeps chunked layers in full unless its hybrid cache manager is on: then more is held"
    if "state" in types:
        yield "a prefix cache keeps two states of a request, as with --prefix-tokens"


def attention_kinds(model: ModelFacts) -> str:
    """Return the types of a model's attention (MHA, GQA, MQA, MLA), which follow from the KV heads."""
    return (
        " + ".join(dict.fromkeys(layer.attention.split(" ")[0] for layer in model.layers if layer.caches))
        or "none"
    )
