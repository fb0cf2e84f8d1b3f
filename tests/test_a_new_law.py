"""A latency model that only this file knows: planned, verified and explained without another file touched."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pytest
from builders import accelerator, document, service_class
from pydantic import Field

from optimizer import explain, load_system, solve, verify
from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.documents import Document, Quantity
from optimizer.errors import AnalysisError, SpecError
from optimizer.jobs.simulating import SimulateOptions, simulate_plan
from optimizer.kinds import table
from optimizer.kinds.token_batching import TokenBatching
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.reference import ReplicaQueues
from optimizer.schema import ModelProfile
from optimizer.schema.assumptions import check_profile
from optimizer.spec.system import System
from optimizer.timing.law import RequestShapes, ServiceLaw, TokenTimes

TOKEN_MS = 5.0
"""Of the toy: every token, of prompt or answer, takes this long, whatever the batch."""


class ToyParms(Document):
    token_ms: Quantity = 0.0


class ToyProfile(ModelProfile):
    toy: ToyParms | None = Field(None, alias="toyParms")


@dataclass(frozen=True, slots=True)
class ToyLaw(ServiceLaw):
    """So the queue is M/M/N/K, whose answers are known."""

    name: ClassVar[str] = "toy"
    parts: ClassVar[tuple[str, ...]] = ("toy",)
    token_ms: FloatArray
    in_tokens: FloatArray
    out_tokens: FloatArray

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        assert isinstance(document, ToyProfile)
        return ((document.toy or ToyParms()).token_ms,)

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        return cls(parameters[0], shapes.in_tokens, shapes.out_tokens)

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        return self.token_ms * (self.in_tokens + self.out_tokens) + 0 * occupancy

    def token_times(
        self,
        mean_service_ms: FloatArray,  # noqa: ARG002  nothing depends on the batch
        mean_in_service: FloatArray,  # noqa: ARG002
        max_batch: IntArray,  # noqa: ARG002
    ) -> TokenTimes:
        prefill = self.token_ms * self.in_tokens
        return TokenTimes(prefill, self.token_ms, prefill + self.token_ms)

    def is_non_monotone(self, max_batch: IntArray) -> BoolArray:
        return np.zeros(len(max_batch), np.bool_)

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        return TokenTimes(self.token_ms, self.token_ms, 2 * self.token_ms), 2 * self.token_ms * max_batch


def erlang_wait_ms(rate_per_ms: float, service_ms: float, servers: int, room: int) -> float:
    """Return the mean wait in M/M/N/N+Q from its product form, summed state by state."""
    weights = [1.0]
    for state in range(1, servers + room + 1):
        weights.append(weights[-1] * rate_per_ms * service_ms / min(state, servers))
    accepted = sum(weights[:-1]) / sum(weights)
    waiting = sum(w * max(state - servers, 0) for state, w in enumerate(weights)) / sum(weights)
    return waiting / (rate_per_ms * accepted)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    for models in (table.QUEUE_MODELS_OF, TokenBatching.queue_models):
        monkeypatch.setitem(models, ToyLaw, (ReplicaQueues,))  # type: ignore[misc]
    load = {"arrivalRate": 600, "avgInTokens": 100, "avgOutTokens": 20}
    server = {"name": "s", "class": "c", "model": "m", "currentAlloc": {"load": load}}
    times = {"maxBatchSize": 8, "decodeParms": {"alpha": 7, "beta": 0.1}}
    known = load_system(
        document(
            [server],
            [accelerator("A"), accelerator("B", cost=11)],
            {"A": 20, "B": 20},
            classes=[service_class("c", ttft=700)],
            models=[{"name": "m", "acc": acc, **times} for acc in "AB"],
        )
    )
    toy = ToyProfile.model_validate(
        {"name": "m", "acc": "A", "maxBatchSize": 8, "toyParms": {"token_ms": TOKEN_MS}}
    )
    unlimited = known.with_options(unlimited=True)
    (_, other) = unlimited.spec.models
    return unlimited.with_spec(unlimited.spec.model_copy(update={"models": (toy, other)}))


def test_a_custom_latency_model_is_planned_with_its_queue(system: System) -> None:
    plan = solve(system)
    (pool,) = plan.allocations["s"] if plan.allocations["s"][0].accelerator == "A" else ()
    rate = pool.arrival_rate_rpm / 60e3 / pool.num_replicas
    assert pool.wait_ms == pytest.approx(erlang_wait_ms(rate, TOKEN_MS * 120, 8, 80), rel=1e-9)
    assert pool.itl_ms == TOKEN_MS
    assert verify(plan, system) == []


def test_a_plan_with_a_law_of_ones_own_is_explained(system: System) -> None:
    explained = explain(system)
    (server,) = explained.servers
    assert {option.accelerator for option in server.options} == {"A", "B"}
    assert server.next_best is not None
    assert server.pools[0].binding[0].limit in {"ttft", "stability"}


def test_a_law_that_the_simulator_lacks_is_refused_in_one_line(system: System) -> None:
    with pytest.raises(
        AnalysisError,
        match=r"^toyParms: requests cannot be simulated under this latency model; "
        r"give perfParms or decodeParms/prefillParms to simulate$",
    ):
        simulate_plan(system, SimulateOptions(), solve(system))


@pytest.mark.usefixtures("system")
def test_two_laws_in_one_profile_are_refused_whichever_they_are() -> None:
    both = {"name": "m", "acc": "A", "toyParms": {"token_ms": 1}, "decodeParms": {"alpha": 1}}
    with pytest.raises(ValueError, match="both decodeParms/prefillParms and toyParms are given"):
        ToyProfile.model_validate(both)


def test_an_unsupported_latency_model_is_refused_in_one_line(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table.QUEUE_MODELS_OF, ToyLaw, (ContinuousQueues,))  # type: ignore[misc]
    check_profile(system.profiles["m", "B"], "models[1]")
    with pytest.raises(
        SpecError, match=r"models\[0\]: the queue model 'reference' does not .* the toy latency model"
    ):
        check_profile(system.profiles["m", "A"], "models[0]")
