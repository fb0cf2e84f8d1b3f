"""Reads and writes the formats of llm-inferno (the reference; see docs/glossary.md)."""
