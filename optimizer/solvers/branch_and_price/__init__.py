"""Branch and price: each server gets one pattern, which is a combination of replicas (math.md section 18)."""
