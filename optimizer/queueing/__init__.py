"""Queue models of one replica: stationary distribution, latencies and maximum rate within the targets."""
