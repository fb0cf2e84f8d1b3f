"""Queue models of disaggregated serving: prefill and decode replicas, and the handover between them."""
