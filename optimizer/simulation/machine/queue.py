"""Queue of requests for a batch slot, by priority, then in order of arrival.

Preempted requests come first.
"""

from optimizer.simulation.machine.compiling import compiled
from optimizer.simulation.machine.state import NO_REQUEST, EngineState


@compiled
def join_queue(machine: EngineState, row: int) -> None:
    """Add a request after all waiting requests of the same or higher priorities."""
    level = machine.rows[row].level
    _insert_after(machine, row, _last_up_to(machine, level))
    machine.last_waiting[level] = row


@compiled
def return_to_queue(machine: EngineState, row: int) -> None:
    """Add a preempted request before all waiting requests of the same or lower priorities."""
    level = machine.rows[row].level
    _insert_after(machine, row, _last_up_to(machine, level - 1))
    if machine.last_waiting[level] == NO_REQUEST:
        machine.last_waiting[level] = row


@compiled
def leave_queue(machine: EngineState) -> int:
    """Move the first waiting request into the batch, and return it."""
    state = machine.state[0]
    row = state.first_waiting
    state.first_waiting = machine.rows[row].link
    level = machine.rows[row].level
    if machine.last_waiting[level] == row:
        machine.last_waiting[level] = NO_REQUEST
    state.waiting -= 1
    state.running += 1
    return row


@compiled
def drop_waiting(machine: EngineState, row: int) -> bool:
    """Remove a request from the queue; return False if it is not waiting."""
    state = machine.state[0]
    before, other = NO_REQUEST, state.first_waiting
    for _ in range(state.waiting):
        if other == row:
            after, level = machine.rows[row].link, machine.rows[row].level
            if before == NO_REQUEST:
                state.first_waiting = after
            else:
                machine.rows[before].link = after
            if machine.last_waiting[level] == row:
                same = before != NO_REQUEST and machine.rows[before].level == level
                machine.last_waiting[level] = before if same else NO_REQUEST
            state.waiting -= 1
            return True
        before, other = other, machine.rows[other].link
    return False


@compiled
def _last_up_to(machine: EngineState, level: int) -> int:
    """Return the last waiting request of priority rank `level` or higher; `NO_REQUEST` if none waits."""
    while level >= 0 and machine.last_waiting[level] == NO_REQUEST:
        level -= 1
    return NO_REQUEST if level < 0 else machine.last_waiting[level]


@compiled
def _insert_after(machine: EngineState, row: int, before: int) -> None:
    """Insert a request after request `before`, or at the front of the queue if that is `NO_REQUEST`."""
    state = machine.state[0]
    if before == NO_REQUEST:
        machine.rows[row].link = NO_REQUEST if state.waiting == 0 else state.first_waiting
        state.first_waiting = row
    else:
        machine.rows[row].link = machine.rows[before].link
        machine.rows[before].link = row
    state.waiting += 1
