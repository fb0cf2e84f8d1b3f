"""Queue model of continuous batching in closed form: iterations, prompts, batch slots, and latencies."""
