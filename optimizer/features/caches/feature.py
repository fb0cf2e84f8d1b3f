"""Declares result caches as a feature, with the document field that selects it."""

from optimizer.spec.feature import Feature

CACHES = Feature("caches", fields=("cache_hit_rate",))
