"""Number of GPUs for 20,000 prompts per second in batches: fluid model, random arrivals, batching windows.

Explained in docs/scenarios/batching-platform.md.
"""

from math import ceil

from optimizer.kinds.batch_servers.rows import BatchAnswer, BatchRow

PROMPTS_RPS = 20_000
FULL_BATCH = {"batchParms": {"base": 100}, "maxBatchSize": 100}  # 100 ms for one prompt or a hundred
WITHIN = {"latency": [{"percentile": 99, "ms": 500}]}

for size, how in ((1, "one at a time"), (100, "in batches of 100")):
    server = {**FULL_BATCH, "maxBatchSize": size}
    fluid_rps = float(BatchRow.model_validate(server).queues().full_rate_rps[0])
    found = BatchRow.model_validate({**server, **WITHIN}).size()
    print(
        f"{how:<18}{PROMPTS_RPS / fluid_rps:>8,.0f} GPUs in a fluid model"
        f"{ceil(PROMPTS_RPS / found.offered_rps):>8,} GPUs for p99 within 500 ms"
    )

print()
print("GPUs  window    mean     p99  batch  busy")
for gpus in (21, 40, 80):
    for window_ms in (0, 400):
        row = {**FULL_BATCH, "window": window_ms, "RPS": PROMPTS_RPS / gpus}
        answer = BatchRow.model_validate(row).analyze()
        assert isinstance(answer, BatchAnswer)  # it has a steady state
        print(
            f"{gpus:>4}{window_ms:>5} ms{answer.mean_ms:>5.0f} ms{answer.p99_ms:>5.0f} ms"
            f"{answer.mean_batch:>7.1f}{answer.busy:>6.0%}"
        )
