"""Mixed-integer linear programs as arrays, and solvers for them, independent of capacity planning."""
