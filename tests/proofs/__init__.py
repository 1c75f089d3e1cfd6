"""Faults with a known truth: real loads, and what the verdict makes of them."""
