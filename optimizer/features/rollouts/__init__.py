"""Room for roll-outs."""
