"""Live replicas: the state machines of `simulation.machine`, run by the clock of their caller."""
