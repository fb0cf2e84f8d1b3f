"""Studies: questions about plans, such as comparisons and sweeps; each is answered by a document."""
