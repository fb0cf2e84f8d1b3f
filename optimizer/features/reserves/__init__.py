"""Reserves: headroom, spare replicas and availability."""
