"""Scheduling of prompts in the next iteration.

With the chunked scheduler, decodes come first, and prompts fill the rest of the token budget, the last one
partially. With the prefill-first scheduler, full prompts up to the budget, at least one, are computed while
decodes pause. Both take requests in order, and stop at the first one without a batch slot or memory.
"""

from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.compiling import compiled
from optimizer.simulation.machine.memory import fits, remember_admission
from optimizer.simulation.machine.queue import leave_queue
from optimizer.simulation.machine.state import NO_REQUEST, EngineState


@compiled
def gather_prompts(machine: EngineState, limits: Limits) -> None:
    """Select the prompt tokens that the next iteration computes."""
    state = machine.state[0]
    state.work_prompts = state.work_tokens = state.work_completed = state.work_held = 0
    state.work_attention = 0.0
    state.work_partial, state.work_partial_tokens = NO_REQUEST, 0
    budget = limits.max_num_tokens - (0 if limits.prefill_first else state.decodes)
    if state.partial != NO_REQUEST:
        tokens = min(tokens_to_compute(machine, state.partial) - state.partial_tokens, budget)
        if tokens <= 0 or not fits(machine, limits, tokens):
            return
        _add_chunk(machine, state.partial, state.partial_tokens, tokens)
    while state.waiting > 0 and state.running < limits.max_batch and state.work_tokens < budget:
        row = state.first_waiting
        cached, shared = machine.rows[row].cached, machine.rows[row].shared
        tokens = tokens_to_compute(machine, row) - cached
        left = budget - state.work_tokens
        if tokens > left:
            if not limits.prefill_first:
                tokens = left
            elif state.work_tokens > 0:
                return
        if not fits(machine, limits, state.work_held + tokens + cached - shared):
            return
        leave_queue(machine)
        remember_admission(machine, limits, row)
        state.shared_tokens += shared
        state.work_held += cached
        _add_chunk(machine, row, cached, tokens)


@compiled
def tokens_to_compute(machine: EngineState, row: int) -> int:
    """Return the number of tokens to compute before the next output token: the prompt, and evicted output."""
    return machine.rows[row].in_tokens + machine.rows[row].made


@compiled
def _add_chunk(machine: EngineState, row: int, start: int, tokens: int) -> None:
    """Schedule a chunk of a request's prompt: `tokens` tokens after the first `start`."""
    state = machine.state[0]
    state.work_prompts += 1
    state.work_tokens += tokens
    state.work_held += tokens
    state.work_attention += tokens * (start + tokens / 2)
    if start + tokens == tokens_to_compute(machine, row):
        machine.places[state.work_completed].prompt = row
        state.work_completed += 1
    else:
        state.work_partial, state.work_partial_tokens = row, start + tokens
