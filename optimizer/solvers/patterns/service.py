"""The levels of service of a solve: what of each priority is unserved, minimised (math.md section 18).

Where the relaxation says that all servers of a priority can be served, that is believed until no answer turns
up.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.branching import Branch
from optimizer.solvers.patterns.guide import guide_of
from optimizer.solvers.patterns.narrowing import Narrowing
from optimizer.solvers.patterns.program import Pin
from optimizer.solvers.patterns.run import ROUNDING, WHOLE_TOLERANCE, Run
from optimizer.solvers.patterns.steps import Step

FEWEST_SHARE = 0.2
"""Part of the time left for the number of servers of a priority whose rate is not proved."""
GUIDE_SHARE = 0.2
"""Part of the time left for what tells which units are scarce."""


def serve(run: Run, step: Step, deadline: Deadline, *, believing: bool) -> bool:
    """Minimise what is unserved of one priority."""
    weight = run.weight_of(step)
    left, floor = run.unserved(weight), run.borrowed.floor(step)
    if left <= floor and (run.holds or not floor):
        settle(run, step, floor, deadline)
        return True
    return _serve_by_price(run, step, weight > 0, deadline, believing=believing)


def settle(run: Run, step: Step, left: float, deadline: Deadline) -> None:
    """Settle a level at what is known to be left unserved at least, and to be enough.

    Args:
        run: the solve.
        step: the level.
        left: that, without the servers that have no candidate.
        deadline: when to stop.
    """
    run.note(step, left, left)
    weight = run.weight_of(step)
    if left == 0:
        run.serve(weight > 0)
        return
    program = run.program(step)
    relaxed = run.relaxed(program, deadline)
    run.settle(step, left, None if relaxed is None else Branch.whole(program, relaxed))


def _serve_by_price(run: Run, step: Step, mine: BoolArray, deadline: Deadline, *, believing: bool) -> bool:
    """Minimise what is unserved of one priority, of which the best answer leaves some servers out."""
    weight = run.weight_of(step)
    program = run.program(step)
    relaxed = run.relaxed(program, deadline)
    if relaxed is None:
        _give_up(run, step, 0.0, weight)
        return True
    least = max(relaxed.bound, run.borrowed.floor(step))
    hopeful = believing and not run.borrowed.fails(mine)
    if hopeful and least <= ROUNDING * weight.sum() and relaxed.finished:
        run.note(step, 0.0, 0.0)
        run.serve(mine)
        return True
    guide = None
    if relaxed.bound <= ROUNDING * weight.sum():
        share = run.deadline.share(GUIDE_SHARE)
        guide = guide_of(program, run.pool, run.start_options, mine, share)
    narrowing = run.narrowed(program, relaxed, step, deadline, guide)
    if not narrowing.feasible:
        return not believing
    bound = float(np.ceil(max(narrowing.bound, 0.0) - 1e-6))
    value = float(np.round(narrowing.value))
    run.note(step, value, min(bound, value))
    if value == 0:
        run.serve(mine)
    elif step.rate is not None and step.count is not None and bound < value and run.serve_by is None:
        return _serve_fewest(run, step, narrowing, value, believing=believing)
    else:
        run.proved &= narrowing.proved
        if bound >= value:
            run.settle(step, value, narrowing.root)
        else:
            run.pin(Pin(step.measure, value + WHOLE_TOLERANCE), narrowing.root)
    return True


def _serve_fewest(run: Run, step: Step, narrowing: Narrowing, value: float, *, believing: bool) -> bool:
    """Settle the rate of a priority where it is, and minimise the number of servers by itself."""
    n = step.most
    rate = value // (n + 1)
    least = np.ceil(max(narrowing.bound - n, 0.0) / (n + 1) - ROUNDING)
    run.proved &= bool(rate - least <= run.gap * rate)
    run.pin(
        Pin(step.rate_alone, rate + WHOLE_TOLERANCE),
        narrowing.root,
        rate * (n + 1) + n,
    )
    return serve(run, step.servers_alone(), run.deadline.share(FEWEST_SHARE), believing=believing)


def _give_up(run: Run, step: Step, bound: float, weight: FloatArray) -> None:
    value = run.unserved(weight)
    run.proved = False
    run.note(step, value, min(bound, value))
    run.hold(Pin(step.measure, value + WHOLE_TOLERANCE))
