"""The state machine of one replica, compiled; `optimizer.simulation.engine` imports it when it first runs."""
