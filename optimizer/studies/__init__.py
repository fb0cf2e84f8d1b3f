"""Studies: questions about plans, each answered by a document."""
