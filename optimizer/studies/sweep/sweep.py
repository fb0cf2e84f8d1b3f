"""Plans over a grid of parameter values, and exact breakpoints along a range of integers.

Points do not depend on their neighbours, so the result does not depend on how the work is divided.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product

from optimizer.errors import SpecError
from optimizer.parallel import Progress, ignore_progress
from optimizer.spec.system import System
from optimizer.studies.sweep.checkpoint import Checkpoint, answered
from optimizer.studies.sweep.parameters import MAX_POINTS, Variation
from optimizer.studies.sweep.points import Values, solve_points
from optimizer.studies.sweep.sweep_document import Axis, Sweep, SweepPoint
from optimizer.tolerances import ROUNDING


def sweep(
    system: System,
    variations: tuple[Variation, ...],
    done: Checkpoint,
    tell: Progress = ignore_progress,
) -> Sweep:
    """Return the plans at all combinations of parameter values.

    Args:
        system: the system to plan.
        variations: the parameters.
        done: finished points; new ones are added.
        tell: called with the progress.

    Raises:
        SpecError: a value is out of range.
        SolverError: the solver failed.
    """
    if any(item.every for item in variations) and system.options.gap is None:
        system = system.with_options(gap=0.0)  # ranges are exact only if plans are optimal
    solver = _Solver(system, variations, done, tell)
    if any(item.every for item in variations):
        points = solver.ranges()
    else:
        points = solver.at([*product(*(item.values for item in variations))])
    return Sweep(
        axes=tuple(Axis.taken_from(item, parameter=item.name) for item in variations),
        points=tuple(points),
        exact=all(point.status == "optimal" for point in points),
        currency=system.currency,
    )


@dataclass(slots=True)
class _Solver:
    """Solves the points of a sweep that are not finished yet."""

    system: System
    variations: tuple[Variation, ...]
    done: Checkpoint
    tell: Progress

    def at(self, values: Sequence[Values]) -> list[SweepPoint]:
        """Return the points at some combinations of values, in order."""
        work = partial(solve_points, self.system, self.variations)
        return answered(work, {self._key(each): each for each in values}, SweepPoint, self.done, self.tell)

    def _key(self, values: Values) -> str:
        pairs = zip(self.variations, values, strict=True)
        return " ".join(
            [f"gap={self.system.options.gap}", *(f"{item.name}={value!r}" for item, value in pairs)]
        )

    def ranges(self) -> list[SweepPoint]:
        """Return one point for each range of integers in which service and value stay the same.

        More cards never make a plan worse. So all integers between two with the same levels also have these
        levels. Intervals between different levels are bisected in parallel.
        """
        (first, last) = self.variations[0].values
        known = dict(zip((first, last), self.at([(first,), (last,)]), strict=True))
        while middles := [*self._middles(known)]:
            points = self.at([(value,) for value in middles])
            known.update(zip(middles, points, strict=True))
            if len(known) > MAX_POINTS:
                raise SpecError(
                    f"vary: more than {MAX_POINTS:,} plans differ; give a smaller range, or a list"
                )
        kept: list[SweepPoint] = []
        for value in sorted(known):
            if kept and _same(kept[-1], known[value]):
                kept[-1] = kept[-1].model_copy(update={"until": value})
            else:
                kept.append(known[value].model_copy(update={"until": value}))
        return kept

    def _middles(self, known: dict[float, SweepPoint]) -> Iterator[float]:
        for low, high in pairwise(sorted(known)):
            if high - low > 1 and not (_same(known[low], known[high]) and self._is_monotone(known[low])):
                yield float((low + high) // 2)

    def _is_monotone(self, point: SweepPoint) -> bool:
        """Return whether more cards that leave the levels unchanged also change nothing else.

        This applies to exact plans, unless a policy serves servers in part.
        """
        options = self.system.options
        return options.milp_solver and (options.saturation_policy == "None" or not point.unserved)


def _same(first: SweepPoint, second: SweepPoint) -> bool:
    """Return whether two plans reach the same levels, serve the same shares, and lack the same reserves."""
    pairs = zip(first.levels, second.levels, strict=True)
    same_service = (first.served, first.lacks_reserve) == (second.served, second.lacks_reserve)
    return same_service and all(abs(a - b) <= ROUNDING * max(1.0, abs(a), abs(b)) for a, b in pairs)
