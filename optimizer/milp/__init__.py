"""Mixed-integer models as arrays, and solvers for them, independent of capacity planning."""
