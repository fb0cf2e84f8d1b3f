"""From plans, one after the other, to numbers of replicas that do not flap."""
