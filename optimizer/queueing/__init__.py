"""Queue models of a replica: stationary distribution, latencies, and maximum rate within targets."""
