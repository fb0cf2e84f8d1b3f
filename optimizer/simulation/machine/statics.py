"""Static batching: waiting requests start together up to the maximum batch, one batch after the other."""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.law import StaticCoefficients
from optimizer.simulation.machine.compiling import compiled, entry


@entry
def run_statics(
    times: StaticCoefficients, max_batch: int, max_queue: int, come_ms: FloatArray, in_tokens: IntArray,
    out_tokens: IntArray, first_ms: FloatArray, last_ms: FloatArray, queue: IntArray,
) -> tuple[float, float, int]:  # fmt: skip
    """Run all requests, given by ascending arrival; fill the times of their first and last tokens.

    Args:
        times: latency model.
        max_batch: maximum batch.
        max_queue: maximum requests waiting; further ones are rejected, with NaN.
        come_ms: arrivals, shape (R,).
        in_tokens: prompt lengths.
        out_tokens: output lengths, at least one token.
        first_ms: filled.
        last_ms: filled.
        queue: scratch, shape (R,).

    Returns:
        Busy time, ∫ batch dt, and number of batches.
    """
    first_ms[:] = np.nan
    last_ms[:] = np.nan
    head, tail, arrival, now_ms = 0, 0, 0, 0.0
    busy_ms, batch_ms, batches = 0.0, 0.0, 0
    while head < tail or arrival < len(come_ms):
        if head == tail:
            now_ms = max(now_ms, come_ms[arrival])
            queue[tail] = arrival
            tail, arrival = tail + 1, arrival + 1
        count = min(tail - head, max_batch)
        batch = queue[head : head + count]
        head += count
        prefill_ms = pass_prompts(times, batch, in_tokens, now_ms, first_ms)
        end_ms, held_ms = pass_answers(times, batch, out_tokens, now_ms + prefill_ms, last_ms)
        busy_ms += end_ms - now_ms
        batch_ms += count * prefill_ms + held_ms
        batches += 1
        now_ms = end_ms
        while arrival < len(come_ms) and come_ms[arrival] <= now_ms:
            if tail - head < max_queue:
                queue[tail] = arrival
                tail += 1
            arrival += 1
    return busy_ms, batch_ms, batches


@compiled
def pass_prompts(
    times: StaticCoefficients, batch: IntArray, in_tokens: IntArray, now_ms: float, first_ms: FloatArray
) -> float:
    """Compute the prompts of a batch; return the time."""
    prompts = 0
    for row in batch:
        prompts += in_tokens[row]
    prefill_ms = times.prefill_per_token_ms * prompts + (times.prefill_base_ms if prompts > 0 else 0.0)
    for row in batch:
        first_ms[row] = now_ms + prefill_ms
    return prefill_ms


@compiled
def pass_answers(
    times: StaticCoefficients, batch: IntArray, out_tokens: IntArray, now_ms: float, last_ms: FloatArray
) -> tuple[float, float]:
    """Decode a batch; return the time of its last token, and ∫ batch dt.

    The rows of the batch are sorted by length.
    """
    count, held_ms = len(batch), 0.0
    for i in range(1, count):
        row, place = batch[i], i
        while place > 0 and out_tokens[batch[place - 1]] > out_tokens[row]:
            batch[place] = batch[place - 1]
            place -= 1
        batch[place] = row
    done = 1
    for i in range(count):
        steps = out_tokens[batch[i]] - done
        here = count if times.padded else count - i
        spent_ms = steps * (times.decode_base_ms + times.decode_per_request_ms * here)
        now_ms, done = now_ms + spent_ms, done + steps
        held_ms += here * spent_ms
        last_ms[batch[i]] = now_ms
    return now_ms, held_ms
