"""Source of the engine's requests: arrivals, requests held back by the client, and rejections."""

import numpy as np

from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.compiling import compiled
from optimizer.simulation.machine.heaps import push, remove_first
from optimizer.simulation.machine.memory import never_fits
from optimizer.simulation.machine.queue import join_queue
from optimizer.simulation.machine.state import EngineState

ON_TIME, HELD_BACK = False, True
"""Values of `held_back`: a request is sent when it arrives, or was held back by the client."""


@compiled
def next_arrival_ms(machine: EngineState) -> float:
    """Return the time of the next arrival at the client [ms]; inf if there is none."""
    state = machine.state[0]
    if state.next_row >= len(machine.rows):
        return np.inf
    if len(machine.wakes_ms) == 0:
        return machine.rows[state.next_row].arrival_ms
    return machine.wakes_ms[0] if state.asleep > 0 else np.inf


@compiled
def has_place(machine: EngineState, limits: Limits) -> bool:
    """Return whether the client has a free slot to send another request."""
    state = machine.state[0]
    return state.running + state.waiting < limits.max_in_flight


@compiled
def take_arrivals(machine: EngineState, limits: Limits, held_back: bool) -> None:  # noqa: FBT001
    """Send the requests that have arrived.

    Requests that the client held back count as sent now, not at their arrival.
    """
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
        if not admit(machine, limits, row):
            think(machine, row, machine.rows[row].sent_ms)


@compiled
def admit(machine: EngineState, limits: Limits, row: int) -> bool:
    """Add a request to the queue; return False if it is rejected."""
    state = machine.state[0]
    inside = state.running + state.waiting
    if inside - limits.max_batch >= limits.max_queue or never_fits(machine, limits, row):
        state.rejected += 1
        return False
    join_queue(machine, row)
    return True


@compiled
def think(machine: EngineState, row: int, since_ms: float) -> None:
    """Schedule the next request of a user, whose previous request completed at `since_ms`."""
    if len(machine.wakes_ms) > 0:
        state = machine.state[0]
        wakes_ms = since_ms + machine.rows[row].think_ms
        push(machine.wakes_ms, machine.wakes_ms, state.asleep, wakes_ms, wakes_ms)
        state.asleep += 1
