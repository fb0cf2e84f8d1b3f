"""Mirrored servers: every replica has a twin in another place, which takes over if the place is lost."""
