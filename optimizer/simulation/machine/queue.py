"""Requests waiting for a batch slot, first come, first served; preempted ones come first."""

from optimizer.simulation.machine.compiling import compiled
from optimizer.simulation.machine.state import NO_REQUEST, EngineState


@compiled
def join_queue(machine: EngineState, row: int) -> None:
    """Add a request at the end of the queue."""
    state = machine.state[0]
    machine.rows[row].link = NO_REQUEST
    if state.waiting == 0:
        state.first_waiting = row
    else:
        machine.rows[state.last_waiting].link = row
    state.last_waiting = row
    state.waiting += 1


@compiled
def return_to_queue(machine: EngineState, row: int) -> None:
    """Add a preempted request at the front of the queue."""
    state = machine.state[0]
    machine.rows[row].link = NO_REQUEST if state.waiting == 0 else state.first_waiting
    if state.waiting == 0:
        state.last_waiting = row
    state.first_waiting = row
    state.waiting += 1


@compiled
def leave_queue(machine: EngineState) -> int:
    """Move the first waiting request into the batch, and return it."""
    state = machine.state[0]
    row = state.first_waiting
    state.first_waiting = machine.rows[row].link
    state.waiting -= 1
    state.running += 1
    return row
