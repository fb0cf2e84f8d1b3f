"""The checks that a plan must pass, one module for each kind of thing that it says."""
