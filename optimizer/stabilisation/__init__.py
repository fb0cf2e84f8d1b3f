"""Stabilisation: derives desired replica counts from successive plans without frequent changes."""
