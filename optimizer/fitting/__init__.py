"""Token times from benchmarks: runs as they were, the law that fits them best, and what it predicts."""
