"""What a replica does: one object for each kind of workload, in a table. Everything else asks the object."""
