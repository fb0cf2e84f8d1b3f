"""Decoding requests, listed by the iteration in which each completes.

Every decode iteration makes one token for every output, so the last iteration of an output is known at its
start. No counters are updated, and the cost of an iteration does not depend on the batch size.
"""

from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.machine.compiling import compiled
from optimizer.simulation.machine.state import BLOCK, NO_ITERATION, NO_REQUEST, EngineState


@compiled
def held_tokens(machine: EngineState, row: int) -> int:
    """Return the number of tokens of a request in the KV cache."""
    left = machine.rows[row].end - machine.state[0].iteration
    return machine.rows[row].in_tokens + machine.rows[row].out_tokens - 1 - left


@compiled
def begin_answer(machine: EngineState, row: int, left: int) -> None:
    """Add a decoding request that needs `left` further iterations, at least one, to its list."""
    state = machine.state[0]
    end = state.iteration + left
    machine.rows[row].end = end
    slot = end & (len(machine.ends) - 1)
    machine.rows[row].link = machine.ends[slot]
    machine.ends[slot] = row
    machine.end_counts[slot // BLOCK] += 1
    state.next_end = min(state.next_end, end)
    state.decodes += 1
    state.decode_tokens += held_tokens(machine, row)


@compiled
def end_answer(machine: EngineState) -> int:
    """Remove and return a request that completes in this iteration; NO_REQUEST if there is none."""
    state = machine.state[0]
    slot = state.iteration & (len(machine.ends) - 1)
    row = machine.ends[slot]
    if row != NO_REQUEST:
        machine.ends[slot] = machine.rows[row].link
        _forget(machine, row, slot)
    return row


@compiled
def evict_sequence(machine: EngineState, row: int) -> None:
    """Remove a decoding request before its end, and record the number of tokens it has made."""
    state = machine.state[0]
    slot = machine.rows[row].end & (len(machine.ends) - 1)
    if machine.ends[slot] == row:
        machine.ends[slot] = machine.rows[row].link
    else:
        before = machine.ends[slot]
        while machine.rows[before].link != row:
            before = machine.rows[before].link
        machine.rows[before].link = machine.rows[row].link
    machine.rows[row].made = machine.rows[row].out_tokens - (machine.rows[row].end - state.iteration)
    _forget(machine, row, slot)
    machine.rows[row].end = NO_ITERATION
    find_next_end(machine)


@compiled
def _forget(machine: EngineState, row: int, slot: int) -> None:
    state = machine.state[0]
    machine.end_counts[slot // BLOCK] -= 1
    state.decodes -= 1
    state.decode_tokens -= held_tokens(machine, row)


@compiled
def find_next_end(machine: EngineState) -> None:
    """Find the iteration in which the next request completes, and store it in the state."""
    state = machine.state[0]
    if state.decodes == 0:
        state.next_end = UNLIMITED
        return
    mask = len(machine.ends) - 1
    iteration = state.iteration + 1
    slot = iteration & mask
    while machine.ends[slot] == NO_REQUEST:
        step = BLOCK if slot % BLOCK == 0 and machine.end_counts[slot // BLOCK] == 0 else 1
        iteration += step
        slot = iteration & mask
    state.next_end = iteration
