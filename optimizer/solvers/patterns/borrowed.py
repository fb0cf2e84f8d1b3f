"""What the answer to a problem that differs in one thing says of the levels of the problem at hand."""

import numpy as np

from optimizer.arrays import BoolArray
from optimizer.solvers.known import Known, differing
from optimizer.solvers.levels import VALUE
from optimizer.solvers.patterns.beside import Elsewhere
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.parts import Parts
from optimizer.solvers.patterns.steps import Step
from optimizer.solvers.problem import Problem


class Borrowed:
    """What is known of the levels, as long as those settled so far are as the known answer has them."""

    def __init__(self, problem: Problem, parts: Parts, known: Known | None) -> None:
        self.problem, self.parts, self.known = problem, parts, known
        self.columnless = ~np.isin(np.arange(len(problem.priority)), parts.server)
        if known is not None and known.with_less is not None:
            self._changed = differing(problem, known.with_less)
            self._carried = known.carried_before(problem)
        self.reset()

    def reset(self) -> None:
        """Begin with the first level again."""
        self.follows = self.known is not None
        """Whether the levels so far are as the known answer has them."""

    def note(self, step: Step, value: float) -> None:
        """Note what a level of service came to, without the servers that can have nothing."""
        self.follows &= self.known is not None and value == self.left(step, self.known)

    def floor(self, step: Step) -> float:
        """Return what is unserved at least at a level, as it is where there is more to choose from."""
        known = self.known
        if known is None or not self.follows or not known.restricts:
            return 0.0
        return self._least(step, known)

    def _least(self, step: Step, known: Known) -> float:
        """Return what the answers of the known problem leave unserved at least; 0 if that is not proved."""
        names = {level.name for level in (step.rate, step.count) if level is not None}
        if not all(level.is_proved(0.0) for level in known.levels if level.name in names):
            return 0.0
        return max(self.left(step, known), 0.0)

    def left(self, step: Step, known: Known) -> float:
        """Return what is left unserved as in the known answer; below 0: more than that has no candidate."""
        weight = step.measure.on_nothing
        return known.left_of(weight) - float(weight[self.columnless].sum())

    def fails(self, mine: BoolArray) -> bool:
        """Return whether some of the servers, shape (S,), are left out though a relaxation serves all."""
        known = self.known
        return known is not None and bool((mine & known.left_out & ~self.columnless).any())

    def elsewhere(self, step: Step) -> Elsewhere | None:
        """Return what is known of a level from a problem with less to choose from; none: nothing."""
        known = self.known
        if known is None or known.with_less is None or not self.follows:
            return None
        if step.measure.name == VALUE:
            floor = known.least_value - float(self.problem.none_value[self.columnless].sum())
        elif step.is_service:
            floor = self._least(step, known)
        else:
            return None
        return Elsewhere(floor, self._changed, self._is_new)

    def _is_new(self, options: Options) -> BoolArray:
        """Return which options the known problem does not have, shape (P,)."""
        used, row = options.part >= 0, self.parts.row[np.maximum(options.part, 0)]
        carried = (options.count * np.where(used, self._carried[row], 0.0)).sum(axis=1)
        mine = options.served & self._changed[options.server]
        return np.asarray(mine & (carried < self.problem.load_rps[options.server]), np.bool_)
