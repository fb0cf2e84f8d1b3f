"""Prices of what all servers use together, such as price tiers; their costs are no sums over replicas."""
