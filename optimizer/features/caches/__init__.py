"""Result caches."""
