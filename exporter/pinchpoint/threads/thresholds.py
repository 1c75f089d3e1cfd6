"""The thresholds in force, exported so that no rule and no panel repeats them."""

from __future__ import annotations

from collections.abc import Iterator

from pinchpoint.metrics import ALERT_THRESHOLD, RESOURCE_THRESHOLD_RATIO
from pinchpoint.model import Point
from pinchpoint.threads.roles import Roles

__all__ = ["points"]


def points(roles: Roles) -> Iterator[Point]:
    """Yield the thresholds of the roles file."""
    for name, value in sorted(roles.thresholds.items()):
        yield RESOURCE_THRESHOLD_RATIO.point(value, name)
    for name, value in sorted(roles.alerts.items()):
        yield ALERT_THRESHOLD.point(value, name)
