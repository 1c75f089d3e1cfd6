"""The series of a snapshot, without impossible values.

A snapshot may come from an untrusted HTTP server: a value that no series of Pinchpoint can have (negative, infinite,
not a number) is treated as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from pinchpoint.model import Labels, Metric, Snapshot

__all__ = ["MAX_VALUE", "finite", "forget_series", "gained", "label", "picked", "series"]

Key = TypeVar("Key")
MAX_VALUE = 2.0**63
"""No series has a value as large as this: bytes, hertz and seconds of any machine stay far below."""


def finite(value: float | None) -> float | None:
    """Return the value, or None for one that no series of Pinchpoint can have."""
    return value if value is not None and 0 <= value < MAX_VALUE else None


def gained(before: Mapping[Key, float], after: Mapping[Key, float]) -> dict[Key, float]:
    """Return what each counter gained; one that fell began anew, so all of it is from the interval."""
    return {key: value - (then if value >= (then := before.get(key, 0.0)) else 0.0) for key, value in after.items()}


def label(labels: Labels, name: str) -> str:
    """Return the value of one label, empty if the series does not have it."""
    for found, value in labels:  # a generator would take three times as long, and this is the most frequent call
        if found == name:
            return value
    return ""


@lru_cache(1 << 15)
def picked(labels: Labels, *names: str) -> tuple[str, ...]:
    """Return the values of some labels, as `label` does; the same series come with every snapshot."""
    return tuple(label(labels, name) for name in names)


def forget_series() -> None:
    """Forget the labels of series that came before: those of processes that have ended do not come again."""
    picked.cache_clear()


def series(snapshot: Snapshot, metric: Metric | str) -> Iterator[tuple[Labels, float]]:
    """Yield labels and value of every series of one metric, given by name if it is not ours."""
    name = metric if isinstance(metric, str) else metric.name
    for labels, value in snapshot.values.get(name, {}).items():
        if 0 <= value < MAX_VALUE:  # as `finite`, whose call would take as long as all else here
            yield labels, value
