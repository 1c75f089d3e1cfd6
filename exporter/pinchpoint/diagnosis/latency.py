"""Where the latency of a latency-bound phase comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pinchpoint.model import Snapshots

__all__ = ["Latency", "latency"]


@dataclass(frozen=True, slots=True)
class Latency:
    """What a request's time consists of."""

    sentences: tuple[str, ...] = ()


def latency(before: Snapshots, after: Snapshots, *, benchmark: str, run: str, waits: Mapping[str, float]) -> Latency:
    """Return the breakdown."""
    return Latency()
