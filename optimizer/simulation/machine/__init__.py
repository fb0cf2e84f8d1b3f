"""Compiled state machine of one replica; `optimizer.simulation.engine` imports it on first use."""
