"""The memory of a model and its requests on accelerators, as a document."""

from collections.abc import Iterable, Iterator

from pydantic import Field

from optimizer.documents import Document
from optimizer.profiles.capacity import CacheCapacity
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.layers import Cache, Layer, ModelFacts
from optimizer.profiles.memory import Memory


class ConcurrentRequests(Document):
    """Requests that fit at the same time, by the way in which the engine assigns memory."""

    reserved: int
    """Number if each request reserves the maximum length, without pages."""
    paged: int
    """Number with full blocks, if each request is admitted only if its entire output fits."""
    average: int
    """Number with full blocks that fits on average; requests are sometimes preempted."""


class DeviceMemory(Document):
    """A model on the cards of an accelerator; sizes are for one device."""

    accelerator: str
    """Name of the accelerator."""
    cards: int
    """Number of cards per replica."""
    tp: int
    """Number of devices per replica."""
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
    """Lower end of the interval of the free memory [GB]."""
    free_high_gb: float = Field(alias="freeHigh")
    """Upper end of the interval of the free memory [GB]."""
    token_bytes: float = Field(alias="tokenBytes")
    """Cache of a token on a device [bytes], averaged over a request."""
    kv_copies: float = Field(alias="kvCopies")
    """Copies of each head of keys and values; more than 1 if there are fewer heads than devices."""
    kv_tokens: int = Field(alias="kvTokens")
    """Number of tokens that fit in the cache."""
    requests: ConcurrentRequests
    """Requests that fit at the same time."""
    requests_low: ConcurrentRequests = Field(alias="requestsLow")
    """Requests that fit at the lower end of the free memory."""
    least_cards: int | None = Field(None, alias="leastCards")
    """Minimum number of cards on which a request fits; null if more than 64 devices are needed."""
    least_requests: ConcurrentRequests | None = Field(None, alias="leastRequests")
    """Requests that fit on this minimum number of cards."""


class LayerMemory(Document):
    """Equal layers: how they were understood. Bytes are of one layer with all heads."""

    count: int
    """Number of layers."""
    attention: str
    """Attention: type, query heads / KV heads x width."""
    cache: str
    """Data kept of a request: rows of all tokens, of the last ones, a state of fixed size, or nothing."""
    token_bytes: float = Field(alias="tokenBytes")
    """Cache of a token, while all are kept [bytes]."""
    state_bytes: float = Field(alias="stateBytes")
    """State of a request of any length [bytes]."""
    feed_forward: str = Field(alias="feedForward")
    """Feed-forward part: widths of dense, routed and shared experts."""
    weights: str
    """Formats of the weights."""
    weights_gb: float = Field(alias="weightsGB")
    """Weights of all these layers [GB]."""


class MemoryAnswer(Document):
    """Memory of a model and its requests, and the requests that fit on each accelerator."""

    model: str
    """Name of the model."""
    attention: str
    """Type of attention: MHA, GQA, MQA or MLA."""
    weights: str
    """Format of the weights."""
    cache: str
    """Format of the cache."""
    weights_gb: float = Field(alias="weightsGB")
    """Size of all weights [GB]."""
    parameters_b: float = Field(alias="parametersB")
    """Parameters of the decoder [10⁹]."""
    assumed: bool = False
    """Whether the model type is unknown, so that the layers are an assumption."""
    layers: tuple[LayerMemory, ...] = Field(strict=False)
    """Groups of equal layers."""
    notes: tuple[str, ...] = Field((), strict=False)
    """Interpretation of the model, and omitted parts."""
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
    """Cache reserved per request without pages [GB]."""
    paged_gb: float = Field(alias="paged")
    """Cache of a request in full blocks at the end of its output [GB]."""
    average_gb: float = Field(alias="average")
    """Cache of a request in full blocks, on average [GB]."""
    paged_gain: float = Field(alias="pagedGain")
    """Factor by which pages increase the number of requests if each is admitted only if its entire output
    fits.
    """
    average_gain: float = Field(alias="averageGain")
    """Factor by which pages increase the number of requests on average."""
    shared_tokens: float = Field(alias="sharedTokens")
    """Tokens of the prefix that are shared, in full blocks."""
    sharing_gain: float = Field(alias="sharingGain")
    """Factor by which the shared prefix increases the number of requests on average."""
    prefill_tokens: float = Field(alias="prefillTokens")
    """Input tokens computed per request [tokens]; the others are found in the cache."""
    devices: tuple[DeviceMemory, ...] = Field(strict=False)
    """The model on each accelerator, in the order of the question."""


def memory_answer(
    whole: CacheCapacity, found: Iterable[CacheCapacity], prefix_hit_rate: float
) -> MemoryAnswer:
    """Return the memory of a model and its requests.

    Args:
        whole: the model on one device, without parallelism.
        found: the model on each accelerator.
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
        devices=tuple(map(_on_device, found)),
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
        weights_gb=memory.weight_bytes / 1e9,
        workspace_gb=(memory.total_bytes - memory.weight_bytes - free) / 1e9,
        free_gb=free / 1e9,
        free_low_gb=low / 1e9,
        free_high_gb=high / 1e9,
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
    """Return the number of copies of a row on the devices of a replica: full rows, or copied heads."""
    if model.cache_types() & {"latent", "compressed"}:
        return float(tp)
    return max([1.0, *(tp / layer.kv_heads for layer in model.layers if layer.kv_heads)])


def _layer(layer: Layer, iterations: Iterations) -> LayerMemory:
    forms = dict.fromkeys(matrix.form for matrix in layer.matrices)
    rows = sum(iterations.row_bytes(cache) / cache.every for cache in layer.caches if cache.type != "state")
    return LayerMemory(
        count=layer.count,
        attention=layer.attention or "none",
        cache=" + ".join(map(_in_words, layer.caches)) or "none",
        token_bytes=rows,
        state_bytes=sum(cache.fixed_bytes(1) for cache in layer.caches),
        feed_forward=layer.feed_forward or "none",
        weights=iterations.deployment.weights or ", ".join(forms),
        weights_gb=layer.count * sum(matrix.parameters * matrix.size for matrix in layer.matrices) / 1e9,
    )


def _in_words(cache: Cache) -> str:
    if cache.type == "state":
        return f"state {cache.fixed_bytes(1) / 1e6:.3g} MB"
    return f"{cache.type} {cache.limit:,}" if cache.limit else cache.type


def _notes(memory: Memory) -> Iterator[str]:
    """Yield the interpretation of the model, and the differences between engines."""
    model, types = memory.iterations.model, memory.iterations.model.cache_types()
    yield from (*model.notes, *filter(None, [memory.size_note]))
    for use, text in (
        ("tower", "the weights include {:.3g} GB of vision and audio"),
        ("mtp", "layers for speculative decoding, {:.3g} GB, are not loaded without it, and not counted"),
    ):
        size = sum(matrix.parameters * matrix.size for matrix in model.others if matrix.use == use)
        if size:
            yield text.format(size / 1e9)
    if "chunk" in types:
        yield "vLLM keeps chunked layers in full unless its hybrid cache manager is on: then more is held"
    if "state" in types:
        yield "a prefix cache keeps two states of a request, as with --prefix-tokens"


def attention_kinds(model: ModelFacts) -> str:
    """Return the types of attention, by their heads of keys and values."""
    return (
        " + ".join(dict.fromkeys(layer.attention.split(" ")[0] for layer in model.layers if layer.caches))
        or "none"
    )
