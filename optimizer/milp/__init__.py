"""Mixed-integer models as arrays, and the solvers that minimise them: nothing here knows what is planned."""
