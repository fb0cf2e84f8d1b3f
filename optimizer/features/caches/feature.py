"""What the feature says of itself."""

from optimizer.spec.feature import Feature

CACHES = Feature("caches", field="cache_hit_rate", of_server=lambda server: server.cache_hit_rate)
