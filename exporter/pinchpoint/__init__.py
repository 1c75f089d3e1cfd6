"""Pinchpoint shows, live, what limits a storage benchmark run and what to do about it."""

__version__ = "0.1.0"
