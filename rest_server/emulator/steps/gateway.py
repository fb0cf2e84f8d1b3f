"""Gateway in front of the replicas: metrics of requests, tokens and queues by model, under llm-d's names."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from rest_server.emulator.backend import Backend
from rest_server.emulator.metrics import TOKENS, Histogram, family, labels
from rest_server.emulator.replica import COMPLETIONS, USAGE
from rest_server.emulator.steps.forwarded import ForwardedRequest, Onward, Refusal, RouterStep
from rest_server.emulator.steps.queues import SharedQueues

PREFIX = "llm_d_epp"
"""Prefix of the metrics of llm-d's endpoint picker."""


class Gateway(RouterStep):
    """Step that counts requests to the replicas of each model, before their queues and behind all caches."""

    def __init__(self, backends: Sequence[Backend], queues: SharedQueues) -> None:
        self._backends = backends
        self._queues = queues
        self._requests: Counter[str] = Counter()
        self._tokens: dict[str, tuple[Histogram, Histogram]] = defaultdict(_input_and_output)

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Count a request, and the tokens of its response when that is complete."""
        name = call.server or call.body.get("model")
        known = (one.model for one in self._backends if name in (one.model, one.owner, *one.servers))
        model = next(known, None) if call.path in COMPLETIONS else None
        if model is None:
            return await onward(call)
        self._requests[model] += 1
        refusal = await onward(call)
        for histogram, count in zip(self._tokens[model], call.scope.pop(USAGE, ()), strict=False):
            histogram.observe(count)
        return refusal

    def metrics(self) -> list[str]:
        """Return the metrics of each model as lines of Prometheus' text format."""
        models = dict.fromkeys(one.model for one in self._backends if not set(COMPLETIONS) - {*one.app.posts})
        known = {
            model: labels(model_name=model, target_model_name=model) for model in [*models, *self._requests]
        }
        counts = {label: self._requests[model] for model, label in known.items()}
        waiting = {label: self._queues.waiting(model) for model, label in known.items()}
        lines = family(f"{PREFIX}_request_total", "counter", "Requests to replicas of a model.", counts)
        text = "Requests that wait for a slot of shared replicas."
        lines += family(f"{PREFIX}_flow_control_queue_size", "gauge", text, waiting)
        for place, (direction, part) in enumerate((("input", "prompts"), ("output", "answers"))):
            text = f"Tokens of the {part} of complete requests."
            families = [self._tokens[model][place].family(f"{PREFIX}_request_{direction}_tokens", text, label)
                     for model, label in known.items()]  # fmt: skip
            # The description of a metric must come once, before all its samples.
            lines += families[0][:2] + [line for one in families for line in one[2:]] if families else []
        return lines


def _input_and_output() -> tuple[Histogram, Histogram]:
    return Histogram(TOKENS), Histogram(TOKENS)
