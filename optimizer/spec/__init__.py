"""The documents: their schema, the files that hold them, and the system that they describe."""
