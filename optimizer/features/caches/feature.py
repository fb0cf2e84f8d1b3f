"""What the feature says of itself."""

from optimizer.spec.feature import Feature

CACHES = Feature("caches", fields=("cache_hit_rate",))
