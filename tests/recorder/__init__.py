"""Captures: benchmarks recorded with everything that Pinchpoint would see of them, and replayed."""
