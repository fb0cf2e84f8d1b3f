"""Result caches as a feature: the field that selects it."""

from optimizer.spec.feature import Feature

CACHES = Feature("caches", fields=("cache_hit_rate",))
