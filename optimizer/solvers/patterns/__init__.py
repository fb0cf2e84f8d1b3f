"""The choice as one pattern of replicas per server, by price (math.md section 18)."""
