"""A profile without a measurement: α, β and γ of the iteration law, KV capacity and batch, from facts alone.

Takes names of the catalogue (or facts) and a deployment; gives an `Estimate`: values with intervals, and
what they rest on. Equation numbers are those of docs/estimate.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.profiles.catalogue import load_catalogue, slice_of
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.facts import AcceleratorFacts, ModelFacts
from optimizer.profiles.formats import reached_tflops
from optimizer.profiles.intervals import Estimated, Spread, spread_of_times, tokens_in_memory
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.memory import GIB, Memory
from optimizer.profiles.model_config import read_model_config
from optimizer.quantities import counted

NODE = 8
"""Devices of the usual node: links between nodes are slower."""
_LARGEST_TP = 64
_ALL_BUT_NONE = 1 - 2**-20
"""Stands for all experts, of which the law must leave something."""


class DoesNotFitError(SpecError):
    """Raised when a model does not fit; the text has the least tensor parallelism and memory that hold it."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        request = memory.request_bytes(memory.iterations.deployment.request_tokens)
        self.memory = memory
        """What does not fit where."""
        self.needed_gib = (memory.total_bytes - memory.free_bytes[1] + request) / GIB
        """What a device must hold with one request [GiB]."""
        self.usable_gib = memory.total_bytes / GIB
        """What the engine may take of it [GiB]."""

    def __str__(self) -> str:
        """Say it; what would hold the model is searched for only here."""
        return _does_not_fit(self)


@dataclass(frozen=True)
class Estimate:
    """An estimated profile of a model on `tp` devices of an accelerator."""

    iterations: Iterations
    at_batch: int
    """The batch at which α is given; it depends on the batch for mixtures of experts only."""

    @property
    def model(self) -> ModelFacts:
        """The model."""
        return self.iterations.model

    @property
    def accelerator(self) -> AcceleratorFacts:
        """The accelerator."""
        return self.iterations.accelerator

    @property
    def deployment(self) -> Deployment:
        """How it is run."""
        return self.iterations.deployment

    @cached_property
    def memory(self) -> Memory:
        """What fits into its memory."""
        return Memory(self.iterations)

    @cached_property
    def spread(self) -> Spread:
        """How far the times may be off."""
        return spread_of_times(self.iterations)

    @cached_property
    def alpha_ms(self) -> Estimated:
        """α at `at_batch` [ms]."""
        return self.alpha_at(self.at_batch)

    def alpha_at(self, batch: float) -> Estimated:
        """Return α at a batch [ms] (eq. E25): it grows with the experts that the batch chooses."""
        iterations = self.iterations
        own = iterations.touched(batch)
        with_prompt = min(1.0, batch / self.deployment.out_tokens)
        share = own + (1 - own) * with_prompt
        return self.spread.around(iterations.fixed_ms + iterations.weights_ms + iterations.experts_ms * share)

    @cached_property
    def alpha_alone_ms(self) -> Estimated:
        """α without the experts [ms]; of a dense model all of it."""
        return self.spread.around(self.iterations.fixed_ms + self.iterations.weights_ms)

    @cached_property
    def expert_read_ms(self) -> Estimated:
        """Time to read all experts [ms] (eq. E9); 0 for a dense model."""
        return self.spread.around(self.iterations.experts_ms)

    @property
    def expert_share(self) -> float:
        """Share of the experts that a token chooses; 0 for a dense model."""
        experts = self.model.experts
        return 0.0 if experts is None else min(experts.per_token / experts.count, _ALL_BUT_NONE)

    @cached_property
    def beta_ms(self) -> Estimated:
        """β [ms per token computed], for the deployment's mix of prompts and answers (eq. E26)."""
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
        """Tokens of KV cache that the replica holds."""
        return tokens_in_memory(self.memory)

    @cached_property
    def max_batch(self) -> int:
        """Largest batch: requests of full length that memory holds, at most `max_requests`."""
        return _max_batch(self.memory)

    @cached_property
    def max_batch_low(self) -> int:
        """The same at the lower end of the memory's interval."""
        length = self.deployment.request_tokens
        return max(1, min(int(self.kv_tokens.low // length), self.deployment.max_requests))

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """Powers of two up to the largest batch, and that one."""
        powers = [2**i for i in range(self.max_batch.bit_length()) if 2**i < self.max_batch]
        return (*powers, self.max_batch)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What one should know before relying on it."""
        return tuple(_warnings(self))


def estimate_profile(
    model: str | Path | ModelFacts,
    accelerator: str | AcceleratorFacts,
    deployment: Deployment | None = None,
    *,
    at_batch: int | None = None,
    efficiency: Efficiency | None = None,
) -> Estimate:
    """Estimate the profile of a model on an accelerator.

    Args:
        model: a name of the catalogue, the path of a config.json, or facts.
        accelerator: a name of the catalogue, or facts.
        deployment: how it is run; None: one device and the defaults.
        at_batch: the batch to give α at; None: half the largest batch.
        efficiency: constants; None: those of this version.

    Raises:
        SpecError: a name is not known, a setting is out of range, or the model does not fit
        (`DoesNotFitError`); the message then has the smallest tensor parallelism and the smallest
        accelerator that hold it.
    """
    iterations = Iterations(
        find_model(model),
        find_accelerator(accelerator),
        deployment or Deployment(),
        efficiency or Efficiency(),
    )
    memory = Memory(iterations)
    if _max_batch(memory) < 1:
        raise DoesNotFitError(memory)
    if at_batch is not None and at_batch < 1:
        raise SpecError(f"at-batch: must be at least 1, not {at_batch}")
    return Estimate(iterations, at_batch or max(1, _max_batch(memory) // 2))


def find_model(model: str | Path | ModelFacts) -> ModelFacts:
    """Return the facts of a model by name or from its config.json.

    Raises:
        SpecError: the name is not known, or the file is not understood.
    """
    if isinstance(model, ModelFacts):
        return model
    path = Path(model)
    if isinstance(model, Path) or path.suffix == ".json" or (path / "config.json").is_file():
        return read_model_config(path)
    return load_catalogue().model(model)


def find_accelerator(accelerator: str | AcceleratorFacts) -> AcceleratorFacts:
    """Return the facts of an accelerator by name.

    Raises:
        SpecError: the name is not known.
    """
    if isinstance(accelerator, AcceleratorFacts):
        return accelerator
    return load_catalogue().accelerator(accelerator)


def find_slice(name: str, tp: int | None = None) -> tuple[AcceleratorFacts, int]:
    """Return the facts of the card that a name such as ``H100`` or ``4xH100`` means, and a replica's devices.

    Args:
        name: a name of the catalogue, perhaps of several cards.
        tp: devices of the replica; None: all of the cards.

    Raises:
        SpecError: the name is not known, or several cards have another number of devices than `tp`.
    """
    cards, single = slice_of(name)
    facts = find_accelerator(single)
    devices = cards * facts.devices
    if cards != 1 and tp not in {None, devices}:
        raise SpecError(f"tp: must be {devices}, the devices of {name}, not {tp}; give one of the two")
    return facts, devices if tp is None else tp


def _max_batch(memory: Memory) -> int:
    return min(memory.requests(memory.free_bytes[1]), memory.iterations.deployment.max_requests)


def _does_not_fit(error: DoesNotFitError) -> str:
    """Return what does not fit where, and the least that would do."""
    memory = error.memory
    iterations = memory.iterations
    deployment, model = iterations.deployment, iterations.model
    where = (
        f"{deployment.tp} x {iterations.accelerator.name}"
        if deployment.tp > 1
        else iterations.accelerator.name
    )
    text = (
        f"{model.name} in {iterations.format.name} does not fit {where}: it needs {error.needed_gib:.1f} GiB "
        f"a device with one request of {deployment.request_tokens:g} tokens, the engine may take "
        f"{error.usable_gib:.1f}"
    )
    larger = next(
        (
            tp
            for tp in range(deployment.tp + 1, _LARGEST_TP + 1)
            if model.heads % tp == 0 and _fits(memory, tp=tp)
        ),
        None,
    )
    text += f"; smallest that does: --tp {larger}" if larger else f"; no --tp up to {_LARGEST_TP} does"
    others = (other for other in load_catalogue().accelerators.values() if _fits(memory, accelerator=other))
    smallest = min(others, key=lambda other: other.device_memory_gib, default=None)
    if smallest is not None and deployment.memory_gib is None:
        text += f", or {smallest.name} ({smallest.device_memory_gib:g} GiB) with --tp {deployment.tp}"
    return text


def _fits(memory: Memory, tp: int | None = None, accelerator: AcceleratorFacts | None = None) -> bool:
    old = memory.iterations
    deployment = replace(old.deployment, tp=tp or old.deployment.tp)
    return (
        _max_batch(Memory(replace(old, deployment=deployment, accelerator=accelerator or old.accelerator)))
        >= 1
    )


def _warnings(estimate: Estimate) -> Iterator[str]:
    """Yield what makes an estimate less sure than its interval says, or may surprise."""
    accelerator, model, deployment = estimate.accelerator, estimate.model, estimate.deployment
    tp, form = deployment.tp, estimate.iterations.format
    if accelerator.over_pcie and tp > 2:
        yield "more than two devices over PCIe: without direct access to each other far slower than estimated"
    if tp > NODE and not accelerator.name.startswith("GB"):
        yield f"tp {tp} is more than a node of {NODE}; slower links between nodes are not counted"
    if model.heads % tp:
        heads = counted(model.heads, "attention head")
        yield f"{heads} cannot be divided by tp {tp}; most engines refuse that"
    if form.name != "bf16" and _rate(estimate, form.routed) <= _rate(estimate, "bf16"):
        yield f"{accelerator.name} gains nothing from computing in {form.name}; counted at the 16-bit rate"
    if deployment.request_tokens > model.context:
        yield f"requests of {deployment.request_tokens:g} tokens exceed the context of {model.context:,}"
    if model.window:
        yield "window layers hold less: what an engine reports as KV cache tokens may count them in full"
    for facts in (model, accelerator):
        if facts.note:
            yield f"{facts.name}: {facts.note}"


def _rate(estimate: Estimate, form: str) -> float:
    facts = estimate.accelerator
    return reached_tflops(facts.dense_tflops, form, estimate.iterations.efficiency.shares(facts.generation))
