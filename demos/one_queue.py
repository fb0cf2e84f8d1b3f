"""Analyse one replica at growing rates, then find the maximum rate that meets its targets."""

from optimizer import LatencyTargets, Replica, analyze_replicas, size_replicas
from optimizer.timing import PerfParms

replica = Replica(
    max_batch=48,
    max_queue=128,
    in_tokens=128,
    out_tokens=512,
    iteration=PerfParms(base_ms=12, compute_per_token_ms=0.05, kv_read_per_token_ms=0.0005),
)
rates_rps = [0.5, 1.0, 2.0, 3.0, 3.5, 5.0]
print("rate req/s   TTFT ms    ITL ms   wait ms  utilisation   lost")
for found in analyze_replicas([replica] * len(rates_rps), rates_rps):
    print(
        f"{found.offered_rps:10.1f}{found.ttft_ms:10.1f}{found.itl_ms:10.2f}{found.wait_ms:10.1f}"
        f"{found.utilization:13.1%}{found.loss:7.1%}"
    )
for ttft_ms, itl_ms in ((60, 20), (60, 0), (0, 20), (200, 12)):
    sizing = size_replicas([replica], [LatencyTargets(ttft_ms=ttft_ms, itl_ms=itl_ms)])[0]
    targets = f"TTFT {ttft_ms or 'any'} ms, ITL {itl_ms or 'any'} ms"
    print(
        f"{targets}: {sizing}"
        if isinstance(sizing, Exception)
        else f"{targets}: {sizing.max_rate_rps:.4f} req/s"
    )
