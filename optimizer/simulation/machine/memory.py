"""KV cache: admission of requests, and preemption when the cache is full.

A request takes memory token by token as its prompt is computed and its output grows. If the next tokens do
not fit, the request admitted last is preempted; its prompt and its output so far are recomputed later.
"""

from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.machine.compiling import compiled
from optimizer.simulation.machine.decodes import evict_sequence
from optimizer.simulation.machine.queue import return_to_queue
from optimizer.simulation.machine.state import NO_REQUEST, EngineState


@compiled
def never_fits(machine: EngineState, limits: Limits, row: int) -> bool:
    """Return whether a request needs more than the entire KV cache."""
    record = machine.rows[row]
    return record.in_tokens - record.shared + record.out_tokens - 1 > limits.kv_tokens


@compiled
def fits(machine: EngineState, limits: Limits, tokens: int) -> bool:
    """Return whether `tokens` more tokens fit in the KV cache, beyond the next token of every output."""
    state = machine.state[0]
    return held_by_all(machine) + state.decodes + tokens <= limits.kv_tokens


@compiled
def held_by_all(machine: EngineState) -> int:
    """Return the number of KV cache tokens of running requests, without what is stored once for all."""
    state = machine.state[0]
    return state.decode_tokens + state.partial_tokens - state.shared_tokens


@compiled
def iterations_that_fit(machine: EngineState, limits: Limits) -> int:
    """Return the number of decode iterations that fit into the KV cache."""
    state = machine.state[0]
    if limits.kv_tokens >= UNLIMITED:
        return UNLIMITED
    return (limits.kv_tokens - held_by_all(machine)) // state.decodes


@compiled
def remember_admission(machine: EngineState, limits: Limits, row: int) -> None:
    """Record a request as the most recently admitted one."""
    if limits.kv_tokens >= UNLIMITED:
        return
    state = machine.state[0]
    machine.rows[row].older = state.youngest
    machine.rows[row].younger = NO_REQUEST
    if state.youngest != NO_REQUEST:
        machine.rows[state.youngest].younger = row
    state.youngest = row


@compiled
def leave_batch(machine: EngineState, limits: Limits, row: int) -> None:
    """Free the batch slot of a request."""
    state = machine.state[0]
    state.running -= 1
    state.shared_tokens -= machine.rows[row].shared
    if limits.kv_tokens >= UNLIMITED:
        return
    older, younger = machine.rows[row].older, machine.rows[row].younger
    if older != NO_REQUEST:
        machine.rows[older].younger = younger
    if younger != NO_REQUEST:
        machine.rows[younger].older = older
    else:
        state.youngest = older


@compiled
def evict(machine: EngineState, limits: Limits, row: int) -> None:
    """Remove a request from the batch before its end, and free its KV cache."""
    state = machine.state[0]
    if row == state.partial:
        state.partial, state.partial_tokens = NO_REQUEST, 0
    else:
        evict_sequence(machine, row)
    leave_batch(machine, limits, row)


@compiled
def preempt_until_fits(machine: EngineState, limits: Limits) -> bool:
    """Preempt the most recently admitted requests until the next token of every output fits.

    Returns:
        Whether any request was preempted.
    """
    state = machine.state[0]
    preempted = False
    while not fits(machine, limits, 0):
        row = state.youngest
        evict(machine, limits, row)
        return_to_queue(machine, row)
        machine.rows[row].preempted += 1
        state.preemptions += 1
        preempted = True
    return preempted
