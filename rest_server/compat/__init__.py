"""The reference's wire format: its routes, statuses, bodies and messages."""
