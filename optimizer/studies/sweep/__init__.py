"""Plans over ranges of loads, capacities, prices and options, and over sampled days."""
