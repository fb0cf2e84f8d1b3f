"""Plans held against a simulation of their pools: what was predicted beside what happens."""
