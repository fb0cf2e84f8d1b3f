"""System documents: their schema, their files, and the system that they describe."""
