"""Plans that the clock stopped are compared by their levels: how much worse a later program may be."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recorder.comparing import is_stopped

MAX_SERVICE_LOSS = 0.01
"""Share of a priority's load by which its unserved rate may be larger."""
MAX_VALUE_LOSS = 1e-3
"""Relative difference by which the value may be larger, on average over the plans of the same service."""
SAME_SERVICE = 1e-9
_UNSERVED = "unserved rate"


@dataclass(slots=True)
class Judgement:
    """What became of the levels of stopped plans."""

    plans: int = 0
    service: dict[str, float] = field(default_factory=dict)
    """By level: the share of the priority's load that is served less; negative where more is."""
    values: dict[str, float] = field(default_factory=dict)
    """By plan of the same service: the relative change of the value."""

    def add(self, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Take up a document that both recordings have."""
        for question, answer in before["answers"].items():
            other = after["answers"].get(question)
            if is_stopped(answer) and is_stopped(other):
                loads = _loads(before["document"])  # other documents need not be systems
                self._add_plan(f"{name} {question}", answer["stopped"], other["stopped"], loads)

    def _add_plan(
        self, plan: str, one: Mapping[str, float], other: Mapping[str, float], loads: Mapping[int, float]
    ) -> None:
        self.plans += 1
        changes = []
        for level in (level for level in one if level.endswith(_UNSERVED)):
            priority = int(level.partition(":")[0].removeprefix("priority "))
            changes.append((other[level] - one[level]) / max(loads[priority], 1e-9))
            self.service[f"{plan}, {level}"] = changes[-1]
        if all(abs(change) <= SAME_SERVICE for change in changes):
            self.values[plan] = (other["value"] - one["value"]) / max(abs(one["value"]), 1e-9)

    @property
    def mean_value(self) -> float:
        """The mean relative change of the value, over the plans of the same service."""
        return sum(self.values.values()) / max(len(self.values), 1)

    @property
    def failed(self) -> bool:
        """Whether the later program is worse than it may be."""
        return max(self.service.values(), default=0.0) > MAX_SERVICE_LOSS or self.mean_value > MAX_VALUE_LOSS

    def lines(self) -> Iterator[str]:
        """Yield what became of them, and each level that is worse than it may be."""
        if not self.plans:
            return
        worst = max(self.service.values(), default=0.0)
        yield (
            f"{self.plans} stopped plans: service worse by at most {worst:.2%} of a priority's load "
            f"(limit {MAX_SERVICE_LOSS:.0%}); value of {len(self.values)} of the same service worse by "
            f"{self.mean_value:.1e} on average (limit {MAX_VALUE_LOSS:g})"
        )
        for level, change in self.service.items():
            if change > MAX_SERVICE_LOSS:
                yield f"    {level}: {change:.2%} less is served"
        if self.mean_value > MAX_VALUE_LOSS:
            yield from (f"    {plan}: {change:.1e}" for plan, change in self.values.items())


def _loads(document: Mapping[str, Any]) -> dict[int, float]:
    """Return the load of every priority [requests/min]."""
    priorities = {item["name"]: item["priority"] for item in document["serviceClasses"]}
    loads: dict[int, float] = defaultdict(float)
    for server in document["servers"]:
        loads[priorities[server["class"]]] += server["currentAlloc"]["load"]["arrivalRate"]
    return loads
