"""Token times from benchmarks: measured runs, the latency model fitted to them, and its predictions."""
