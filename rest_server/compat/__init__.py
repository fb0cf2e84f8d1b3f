"""The reference's wire: its routes, statuses, bodies and messages."""
