"""The source of requests: who sends next, what the client holds back, and what the replica turns away."""

import numpy as np

from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.compiling import compiled
from optimizer.simulation.machine.heaps import push, remove_first
from optimizer.simulation.machine.memory import never_fits
from optimizer.simulation.machine.queue import join_queue
from optimizer.simulation.machine.state import EngineState

ON_TIME, HELD_BACK = False, True
"""Whether who is sent came just now, or waited for a place at the client."""


@compiled
def next_arrival_ms(machine: EngineState) -> float:
    """Return when the next request comes to the client; infinity where none does."""
    state = machine.state[0]
    if state.next_row >= len(machine.rows):
        return np.inf
    if len(machine.wakes_ms) == 0:
        return machine.rows[state.next_row].arrival_ms
    return machine.wakes_ms[0] if state.asleep > 0 else np.inf


@compiled
def has_place(machine: EngineState, limits: Limits) -> bool:
    """Say whether the client may send one more."""
    state = machine.state[0]
    return state.running + state.waiting < limits.max_in_flight


@compiled
def take_arrivals(machine: EngineState, limits: Limits, held_back: bool) -> None:  # noqa: FBT001
    """Send what has come by now; a request that was held back counts as sent now, not when it came."""
    state = machine.state[0]
    while has_place(machine, limits):
        arrival_ms = next_arrival_ms(machine)
        if arrival_ms > state.now_ms or arrival_ms == np.inf:
            return
        row = state.next_row
        state.next_row += 1
        if len(machine.wakes_ms) > 0:
            state.asleep -= 1
            remove_first(machine.wakes_ms, machine.wakes_ms, state.asleep)
            machine.rows[row].arrival_ms = arrival_ms
        machine.rows[row].sent_ms = state.now_ms if held_back else arrival_ms
        inside = state.running + state.waiting
        if inside - limits.max_batch >= limits.max_queue or never_fits(machine, limits, row):
            state.rejected += 1
            think(machine, row, machine.rows[row].sent_ms)
        else:
            join_queue(machine, row)


@compiled
def think(machine: EngineState, row: int, since_ms: float) -> None:
    """Let the user of a request that is over think, and then send the next."""
    if len(machine.wakes_ms) > 0:
        state = machine.state[0]
        wakes_ms = since_ms + machine.rows[row].think_ms
        push(machine.wakes_ms, machine.wakes_ms, state.asleep, wakes_ms, wakes_ms)
        state.asleep += 1
