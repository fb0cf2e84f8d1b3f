"""Prefill replicas: prompts without decodes, in iterations up to a token budget, first come, first served."""

import math

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.machine.compiling import compiled, entry
from optimizer.simulation.machine.heaps import push, remove_first
from optimizer.simulation.machine.times import iteration_ms


@entry
def run_prefills(
    times: IterationCoefficients,
    budget: int,
    kv_tokens: int,
    requests: tuple[FloatArray, IntArray, IntArray, FloatArray],
    held: tuple[FloatArray, FloatArray],
    end_ms: FloatArray,
) -> bool:
    """Compute the prompts of one replica in order of arrival; return whether every iteration took time.

    A prompt starts when its KV cache fits beside that of all prompts that are computed or held. The first of
    the line is never passed by a shorter one. A prompt alone always starts.

    Args:
        times: iteration law.
        budget: token budget of an iteration.
        kv_tokens: capacity of the KV cache [tokens].
        requests: arrival times [ms], prompt tokens to compute, prompt tokens in the prefix cache, and times
            at which the KV cache may be freed [ms], shapes (R,).
        held: space for the times and sizes of held KV caches, shapes (R + 1,).
        end_ms: receives the end of each prefill [ms], shape (R,).
    """
    arrival_ms, computed, cached, free_ms = requests
    size, used, now_ms = 0, 0, 0.0
    first, admitted, started = 0, 0, 0
    while first < len(arrival_ms):
        if first == admitted:
            now_ms = max(now_ms, arrival_ms[first])
        while size > 0 and held[0][0] <= now_ms:
            used -= int(held[1][0])
            size -= 1
            remove_first(held[0], held[1], size)
        line = first, admitted, started
        tokens, prompts, attention, done, part, used, admitted = _gathered(
            requests, now_ms, budget, kv_tokens, used, line
        )
        if prompts == 0:  # the next prompt waits until a KV cache is freed
            now_ms = held[0][0]
            continue
        spent_ms = iteration_ms(times, 0, 0, prompts, tokens, attention)
        if not spent_ms > 0:
            return False
        now_ms += spent_ms
        for i in range(first, done):
            end_ms[i] = now_ms
            push(held[0], held[1], size, max(free_ms[i], now_ms), float(computed[i] + cached[i]))
            size += 1
        first, started = done, part
    return True


@compiled
def _gathered(
    requests: tuple[FloatArray, IntArray, IntArray, FloatArray],
    now_ms: float,
    budget: int,
    kv_tokens: int,
    used: int,
    line: tuple[int, int, int],
) -> tuple[int, int, float, int, int, int, int]:
    """Return the contents of the next iteration.

    Args:
        requests: as in `run_prefills`.
        now_ms: time at which it starts.
        budget: its token budget.
        kv_tokens: capacity of the KV cache [tokens].
        used: used tokens of it.
        line: first prompt that is not complete, first prompt that has not started, and computed tokens of the
            former.

    Returns:
        Numbers of tokens, of prompts and of pairs of tokens. After it: the first prompt that is not
        complete, its computed tokens, the used KV cache, and the first prompt that has not started.
    """
    arrival_ms, computed, cached, _ = requests
    done, admitted, part = line
    tokens, prompts, attention = 0, 0, 0.0
    while tokens < budget and done < len(arrival_ms) and arrival_ms[done] <= now_ms:
        if done == admitted:
            context = computed[done] + cached[done]
            if used + context > kv_tokens and used > 0:
                break
            used, admitted = used + context, admitted + 1
        chunk = min(computed[done] - part, budget - tokens)
        attention += chunk * (cached[done] + part + chunk / 2)
        tokens, prompts, part = tokens + chunk, prompts + 1, part + chunk
        if part < computed[done]:
            break
        done, part = done + 1, 0
    return tokens, prompts, attention, done, part, used, admitted


@entry
def run_link(ready_ms: FloatArray, spent_ms: FloatArray, end_ms: FloatArray) -> None:
    """Send transfers one by one in the order in which they are ready, with their durations [ms]."""
    free_ms = -math.inf
    for i in range(len(ready_ms)):
        free_ms = max(free_ms, ready_ms[i]) + spent_ms[i]
        end_ms[i] = free_ms


@entry
def prefill_ms(times: IterationCoefficients, prompts: int, tokens: int, attention: float) -> float:
    """Return the time of an iteration of prompts alone [ms]; arguments as in `iteration_ms`."""
    return iteration_ms(times, 0, 0, prompts, tokens, attention)
