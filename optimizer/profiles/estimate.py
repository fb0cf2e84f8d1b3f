"""Estimates profiles without measurements: α, β and γ of the iteration law, KV capacity and batch.

The input is names in the catalogue (or facts) and a deployment. The output is a `ProfileEstimate`: values
with intervals. Equation numbers are those of docs/estimate.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError
from optimizer.printed import Printed
from optimizer.profiles.capacity import MAX_TP, split_problem
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.facts import AcceleratorFacts
from optimizer.profiles.intervals import (
    Estimated,
    UncertaintyFactors,
    first_weeks_note,
    tokens_in_memory,
    uncertainty_of_times,
)
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.layers import ModelFacts
from optimizer.profiles.memory import GIB, Memory
from optimizer.profiles.model_config import read_model_config
from optimizer.text import slice_of

_FEW_REQUESTS = 256
"""Limit of requests that is suggested if the buffers of the sampler leave no memory."""
NODE = 8
"""Number of devices per node; links between nodes are slower."""
_ALL_BUT_NONE = 1 - 2**-20
"""Largest share of experts that the latency model accepts; it must be below 1."""


class DoesNotFitError(SpecError):
    """Raised if a model does not fit; the message states the least tensor parallel size that would."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        request = memory.request_bytes(memory.iterations.deployment.request_tokens)
        self.memory = memory
        self.needed_gib = (memory.total_bytes - memory.free_bytes[1] + request) / GIB
        """Memory per device that the model and one request need [GiB]."""
        self.usable_gib = memory.total_bytes / GIB
        """Memory per device that the engine can use [GiB]."""

    def __str__(self) -> str:
        """Return the message with the smallest alternatives; only this method searches for them."""
        memory, iterations = self.memory, self.memory.iterations
        deployment, model = iterations.deployment, iterations.model
        where = (
            f"{deployment.tp} x {iterations.accelerator.name}"
            if deployment.tp > 1
            else iterations.accelerator.name
        )
        text = (
            f"{model.name} in {iterations.format.name} does not fit {where}: it needs "
            f"{self.needed_gib:.1f} GiB per device with one request of {deployment.request_tokens:g} tokens, "
            f"but the engine may use {self.usable_gib:.1f}"
        )
        sizes = (tp for tp in range(deployment.tp + 1, MAX_TP + 1) if split_problem(model, tp) is None)
        larger = next((tp for tp in sizes if _fits(memory, tp=tp)), None)
        text += f"; it fits with --tp {larger}" if larger else f"; no --tp up to {MAX_TP} is enough"
        if memory.max_requests > _FEW_REQUESTS and _fits(memory, max_requests=_FEW_REQUESTS):
            text += f", or with --max-requests {_FEW_REQUESTS}"
        others = (
            other for other in load_catalogue().accelerators.values() if _fits(memory, accelerator=other)
        )
        smallest = min(others, key=lambda other: other.device_memory_gib, default=None)
        if smallest is not None and deployment.memory_gib is None:
            text += f", or on {smallest.name} ({smallest.device_memory_gib:g} GiB) with --tp {deployment.tp}"
        return text


@dataclass(frozen=True)
class ProfileEstimate(Printed):
    """An estimated profile of a model on `tp` devices of an accelerator."""

    iterations: Iterations
    at_batch: int
    """Batch at which α is stated [requests]; α depends on the batch only for mixtures of experts."""

    @property
    def model(self) -> ModelFacts:
        """Architecture of the model."""
        return self.iterations.model

    @property
    def accelerator(self) -> AcceleratorFacts:
        """Data sheet of the accelerator."""
        return self.iterations.accelerator

    @property
    def deployment(self) -> Deployment:
        """Settings of the deployment."""
        return self.iterations.deployment

    @cached_property
    def memory(self) -> Memory:
        """Memory of one device."""
        return Memory(self.iterations)

    @cached_property
    def spread(self) -> UncertaintyFactors:
        """Uncertainty factors of all times."""
        return uncertainty_of_times(self.iterations)

    @cached_property
    def alpha_ms(self) -> Estimated:
        """α at `at_batch` [ms]."""
        return self.alpha_at(self.at_batch)

    def alpha_at(self, batch: float) -> Estimated:
        """Return α at a batch [ms] (eq. E25); for mixtures it grows with the distinct experts used."""
        iterations = self.iterations
        own = iterations.touched(batch)
        with_prompt = min(1.0, batch / self.deployment.out_tokens)
        share = own + (1 - own) * with_prompt
        return self.spread.around(iterations.fixed_ms + iterations.weights_ms + iterations.experts_ms * share)

    @cached_property
    def alpha_alone_ms(self) -> Estimated:
        """α without the time to read experts [ms]; equal to α for a dense model."""
        return self.spread.around(self.iterations.fixed_ms + self.iterations.weights_ms)

    @cached_property
    def expert_read_ms(self) -> Estimated:
        """Time to read all experts [ms] (eq. E9); 0 for a dense model."""
        return self.spread.around(self.iterations.experts_ms)

    @property
    def expert_share(self) -> float:
        """Fraction of the routed experts that a token uses; 0 for a dense model."""
        return min(self.iterations.expert_share, _ALL_BUT_NONE)

    @cached_property
    def beta_ms(self) -> Estimated:
        """β [ms per token computed] for the deployment's mix of input and output tokens (eq. E26)."""
        iterations, deployment = self.iterations, self.deployment
        answers = deployment.out_tokens / deployment.request_tokens
        answer = iterations.answer_ms + iterations.window_ms(self._mean_context)
        prompt = iterations.prompt_attention_ms(deployment.in_tokens / 2)
        return self.spread.around(iterations.token_ms + answers * answer + (1 - answers) * prompt)

    @cached_property
    def gamma_ms(self) -> Estimated:
        """γ [ms per token of cache read] (eq. E27)."""
        return self.spread.around(self.iterations.cache_ms(self._mean_context))

    @property
    def _mean_context(self) -> float:
        return self.deployment.in_tokens + self.deployment.out_tokens / 2

    @cached_property
    def kv_tokens(self) -> Estimated:
        """KV cache capacity of the replica [tokens]."""
        return tokens_in_memory(self.memory)

    @cached_property
    def max_batch(self) -> int:
        """Maximum batch: number of full-length requests that fit in memory, at most `max_requests`."""
        return self.memory.max_batch

    @cached_property
    def max_batch_low(self) -> int:
        """Maximum batch at the lower end of the memory interval."""
        length = self.deployment.request_tokens
        return max(1, min(int(self.kv_tokens.low // length), self.memory.max_requests))

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """Batches at which tables show α: powers of two below the maximum batch, and the maximum."""
        powers = [2**i for i in range(self.max_batch.bit_length()) if 2**i < self.max_batch]
        return (*powers, self.max_batch)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the estimate's reliability."""
        return tuple(_warnings(self))


def estimate_profile(
    model: str | Path | ModelFacts,
    accelerator: str | AcceleratorFacts,
    deployment: Deployment | None = None,
    *,
    at_batch: int | None = None,
) -> ProfileEstimate:
    """Estimate the profile of a model on an accelerator.

    Args:
        model: a name in the catalogue, the path of a config.json, or facts.
        accelerator: a name in the catalogue, or facts.
        deployment: the settings; None selects one device and the defaults.
        at_batch: batch at which to state α; None selects half the maximum batch.

    Raises:
        SpecError: a name is unknown, a setting is out of range, or the model does not fit
            (`DoesNotFitError`).
    """
    iterations = Iterations(find_model(model), find_accelerator(accelerator), deployment or Deployment())
    memory = Memory(iterations)
    if memory.max_batch < 1:
        raise DoesNotFitError(memory)
    if at_batch is not None and at_batch < 1:
        raise SpecError(f"at-batch: must be at least 1, not {at_batch}")
    return ProfileEstimate(iterations, at_batch or max(1, memory.max_batch // 2))


def find_model(
    model: str | Path | ModelFacts, ignored: Sequence[str] = (), *, sizes_known: bool = False
) -> ModelFacts:
    """Return the facts of a model by name or from its config.json.

    Args:
        model: a name in the catalogue, the path of a config.json or its folder, or facts.
        ignored: keys of the config.json that have no effect.
        sizes_known: whether the sizes of weights and cache are stated, so that unknown keys do not matter.

    Raises:
        SpecError: the name is unknown, or the file cannot be interpreted.
    """
    if isinstance(model, ModelFacts):
        return model
    path = Path(model)
    if isinstance(model, Path) or path.suffix == ".json" or (path / "config.json").is_file():
        return read_model_config(path, ignored, sizes_known=sizes_known)
    if ignored:
        raise SpecError(
            f"--ignore-key {ignored[0]}: {model} is not the path of a config.json; remove the flag"
        )
    return load_catalogue().model(model)


def find_accelerator(accelerator: str | AcceleratorFacts) -> AcceleratorFacts:
    """Return the facts of an accelerator by name.

    Raises:
        SpecError: the name is unknown.
    """
    if isinstance(accelerator, AcceleratorFacts):
        return accelerator
    return load_catalogue().accelerator(accelerator)


def find_slice(name: str, tp: int | None = None) -> tuple[AcceleratorFacts, int]:
    """Return the card named by ``H100`` or ``4xH100``, and the number of devices of a replica.

    Args:
        name: a name in the catalogue, with an optional number of cards.
        tp: number of devices of the replica; None selects all devices of the cards.

    Raises:
        SpecError: the name is unknown, or `tp` differs from the number of devices of several cards.
    """
    cards, single = slice_of(name)
    facts = find_accelerator(single)
    devices = cards * facts.devices
    if cards != 1 and tp not in {None, devices}:
        raise SpecError(f"tp: must be {devices}, the devices of {name}, not {tp}; give one of the two")
    return facts, devices if tp is None else tp


def _fits(memory: Memory, accelerator: AcceleratorFacts | None = None, **changes: Any) -> bool:
    """Return whether a model fits with changes of the deployment, or on another accelerator."""
    old = memory.iterations
    deployment = replace(old.deployment, **changes)
    other = Memory(replace(old, deployment=deployment, accelerator=accelerator or old.accelerator))
    return other.max_batch >= 1


def _warnings(estimate: ProfileEstimate) -> Iterator[str]:
    """Yield reasons why an estimate can be less accurate than its interval states."""
    accelerator, model, deployment = estimate.accelerator, estimate.model, estimate.deployment
    tp, form, flop_per_ms = deployment.tp, estimate.iterations.format, estimate.iterations.flop_per_ms
    if accelerator.over_pcie and tp > 2:
        yield "more than two devices over PCIe: without peer-to-peer access, much slower than estimated"
    if tp > NODE and not accelerator.name.startswith("GB"):
        yield f"tp {tp} exceeds one node of {NODE}; slower links between nodes are not modelled"
    split = split_problem(model, tp)
    if split is not None:
        yield f"{split}; most engines reject that"
    main = form.form("routed") or form.form("dense")
    if main not in {"bf16", "fp32"} and flop_per_ms(main) <= flop_per_ms("bf16"):
        yield f"{accelerator.name} computes no faster in {form.name}; the 16-bit rate is used"
    if model.context is not None and deployment.request_tokens > model.context:
        yield f"requests of {deployment.request_tokens:g} tokens exceed the context of {model.context:,}"
    if model.cache_types() & {"window", "chunk"}:
        yield "sliding-window layers cache fewer tokens than an engine's reported KV cache size might suggest"
    yield from model.notes
    yield from filter(None, [estimate.memory.size_note, first_weeks_note(estimate.iterations)])
    for facts in (model, accelerator):
        if facts.note:
            yield f"{facts.name}: {facts.note}"
