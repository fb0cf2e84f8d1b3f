"""The queueing model of one replica: stationary distribution, latencies, and the rate that meets targets."""
