"""Live replicas: the state machines of `simulation.machine`, advanced step by step by their callers."""
