"""Routes: a router divides requests between a small and a large model."""
