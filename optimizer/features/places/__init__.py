"""Feature: places of accelerators and servers, and network latencies between them."""
