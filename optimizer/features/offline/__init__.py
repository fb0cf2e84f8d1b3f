"""Feature: offline work, which must be completed by a deadline."""
