"""Branch and price: the choice as one pattern of replicas per server (math.md section 18)."""
