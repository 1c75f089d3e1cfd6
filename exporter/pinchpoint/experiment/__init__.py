"""Experiments: a knob, pairs of runs without and with it, a decision, and the certain way back."""
