"""Faults with a known truth: real loads, and the verdicts on them."""
