"""Feature: accelerators that servers prefer regardless of cost."""
