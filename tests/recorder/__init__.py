"""Captures: benchmarks recorded with all that Pinchpoint would see of them, and told again."""
