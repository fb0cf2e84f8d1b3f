"""How near the bound of a level has to come to its value."""

from dataclasses import dataclass

STEP_SLACK = 1e-4
"""Part of a step by which a bound of an integer level must be above the step below."""
CUTOFF_ROUNDING = 1e-6
"""Part of a distance that is rounding."""


@dataclass(frozen=True, slots=True)
class Target:
    """How near a bound has to come."""

    gap: float
    """Relative."""
    step: float
    """By how much two answers differ at least; 0 for any."""
    multiple: float = 0.0
    """Weight of one step of the rate, where the number of servers is minimised with it; else 0."""

    def distance(self, value: float) -> float:
        """Return the distance of value and bound at which a level is proved.

        Two levels that are minimised together are both proved within the gap: it is relative to the second.
        """
        if self.multiple:
            return max(self.gap * (value % self.multiple), self.step * (1 - STEP_SLACK))
        return max(self.gap * abs(value), self.step * (1 - STEP_SLACK), 1e-9 * max(1.0, abs(value)))

    def cutoff(self, value: float) -> float:
        """Return what an answer has to be below that is better than a value by enough."""
        return value - self.distance(value) * (1 - CUTOFF_ROUNDING)
