"""Job that computes how many requests fit in the memory of accelerators at the same time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.units import GIGABYTES, SHARE, TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    from optimizer.profiles.deployment import Deployment
    from optimizer.profiles.facts import AcceleratorFacts
    from optimizer.profiles.layers import ModelFacts
    from optimizer.profiles.memory_document import MemoryAnswer

Tokens = Annotated[float | None, Flag("TOKENS", TOKENS)]
Gigabytes = Annotated[float | None, Flag("GB", GIGABYTES)]


class MemoryQuestion(Request):
    """A model, accelerators and request lengths, to compute how many requests fit in memory; 1 GB = 10⁹ B."""

    model: str
    """Name of the model in the catalogue."""
    accelerators: tuple[str, ...] = Field(min_length=1, max_length=100)
    """Accelerators in the catalogue, each with an optional number of cards: H100, 4xH100."""
    tp: Annotated[int | None, Flag("N")] = Field(None, ge=1, le=1024)
    """Tensor parallel size: number of devices of a replica; default: all devices of the cards."""
    weights: Annotated[str | None, Flag("FORMAT")] = None
    """Number format of the weights: bf16, fp8, int8, int4, fp4 or mxfp4; default: as published."""
    cache: Annotated[str | None, Flag("FORMAT")] = None
    """Number format of the KV cache: bf16, fp8 or fp8_ds_mla; default: as the checkpoint states, else bf16.
    """
    engine: Annotated[str | None, Flag("NAME:VERSION")] = None
    """Serving engine and its version, such as vllm:0.11 or sglang:0.5; default: vllm:0.29 (2026-11), midway
    between its two model runners.
    """
    memory_utilization: Annotated[float | None, Flag("SHARE", SHARE)] = Field(None, ge=0.01, le=1)
    """Share of the device memory that the engine can use; default: the engine's, 0.9 for most."""
    eager: bool = False
    """The engine runs without CUDA graphs: the host launches every kernel."""
    in_tokens: Tokens = Field(None, ge=1, le=1e8)
    """Mean input length [tokens]; default: 1024."""
    out_tokens: Tokens = Field(None, ge=1, le=1e8)
    """Mean output length [tokens]; default: 256."""
    max_requests: Annotated[int | None, Flag("N")] = Field(None, ge=1, le=10**6)
    """Maximum requests in the batch, which determines the workspace; default: the engine's, for vLLM 1024 on
    devices of 70 GiB and more (but A100), else 256.
    """
    max_num_tokens: Annotated[int | None, Flag("TOKENS")] = Field(None, ge=1, le=10**9)
    """Maximum tokens in an iteration, which determines the workspace; default: 8192."""
    block_tokens: Annotated[int, Flag("TOKENS")] = Field(16, ge=1, le=10**6)
    """With --memory: number of tokens in a block of the KV cache (16)."""
    max_length: Tokens = Field(None, ge=1, le=1e8)
    """With --memory: maximum request length, for which an engine without paging reserves memory (the
    context).
    """
    prefix_tokens: Annotated[float, Flag("TOKENS", TOKENS)] = Field(0.0, ge=0, le=1e8)
    """With --memory: length of the prefix that requests share at the start of their input (0)."""
    prefix_requests: Annotated[int | None, Flag("N")] = Field(None, ge=1, le=10**9)
    """With --memory: number of requests that share a prefix (all)."""
    prefix_hit_rate: Annotated[float, Flag("SHARE", SHARE)] = Field(0.0, ge=0, le=1)
    """With --memory: share of requests whose prefix is already in the cache and is not computed."""
    weight_size: Gigabytes = Field(None, ge=0, le=1e9)
    """With --memory: known size of all weights [GB] (estimated)."""
    cache_per_token: Annotated[float | None, Flag("BYTES")] = Field(None, gt=0, le=1e12)
    """With --memory: known KV cache size of a token on one device [bytes] (computed from the layers)."""
    workspace: Gigabytes = Field(None, ge=0, le=1e6)
    """With --memory: memory of a device for anything but weights and KV cache [GB] (estimated)."""
    device_memory: Gigabytes = Field(None, ge=0.01, le=1e6)
    """With --memory: memory of a device [GB] (from the catalogue)."""


DEPLOYMENT = ("tp", "weights", "cache", "engine", "eager", "memory_utilization")
"""Fields of `MemoryQuestion` that describe the deployment of a model."""
SETTINGS = (*DEPLOYMENT, "in_tokens", "out_tokens", "max_requests", "max_num_tokens")
"""Fields of `MemoryQuestion` that requests for estimates of token times also have."""


def memory_of(
    question: MemoryQuestion, model: "str | Path | ModelFacts | None" = None, ignored: Sequence[str] = ()
) -> "MemoryAnswer":
    """Return the number of requests that fit in the memory of each accelerator at the same time.

    Args:
        question: the model, the accelerators and the lengths of requests.
        model: the model if it is not in the catalogue: the path of a config.json, or its facts.
        ignored: keys of the config.json that have no effect, to be listed in the answer.

    Raises:
        SpecError: a name is unknown, or lengths contradict each other.
    """
    from optimizer.profiles.capacity import CacheCapacity, CacheSettings
    from optimizer.profiles.catalogue import load_catalogue
    from optimizer.profiles.estimate import find_model, find_slice
    from optimizer.profiles.iterations import Iterations
    from optimizer.profiles.memory import Memory
    from optimizer.profiles.memory_document import memory_answer

    known = question.weight_size is not None and question.cache_per_token is not None
    facts = (
        load_catalogue().model(question.model)
        if model is None
        else find_model(model, ignored, sizes_known=known)
    )
    settings = CacheSettings(
        question.block_tokens, question.max_length, question.prefix_tokens, question.prefix_requests
    )
    deployment = _deployment(question)

    def capacity(accelerator: "AcceleratorFacts", tp: int) -> CacheCapacity:
        return CacheCapacity(Memory(Iterations(facts, accelerator, replace(deployment, tp=tp))), settings)

    capacities = [capacity(*find_slice(name, question.tp)) for name in question.accelerators]
    whole = capacity(capacities[0].memory.iterations.accelerator, 1)
    return memory_answer(whole, capacities, question.prefix_hit_rate)


def _deployment(question: MemoryQuestion) -> "Deployment":
    from optimizer.profiles.deployment import Deployment
    from optimizer.profiles.memory import GB, GIB

    given = {name: value for name in SETTINGS if (value := getattr(question, name)) is not None}
    memory = question.device_memory
    return Deployment(
        **given,
        memory_gib=None if memory is None else memory * GB / GIB,
        weights_gb=question.weight_size,
        workspace_gb=question.workspace,
        cache_per_token=question.cache_per_token,
    )
