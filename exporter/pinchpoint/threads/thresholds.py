"""The thresholds in force, exported so that no rule and no panel repeats them."""

from __future__ import annotations

from collections.abc import Iterator

from pinchpoint.model import Metric, Point
from pinchpoint.threads.roles import Roles

__all__ = ["METRICS", "points"]

RESOURCE = Metric(
    "pinchpoint_resource_threshold_ratio", "Busy share from which the resource counts as full.", labels=("resource",)
)
ALERT = Metric(
    "pinchpoint_alert_threshold",
    "Threshold of an alert that does not compare a busy share: a ratio, or in the unit that the roles file names.",
    labels=("alert",),
)
METRICS = (RESOURCE, ALERT)


def points(roles: Roles) -> Iterator[Point]:
    """Yield the thresholds of the roles file."""
    for name, value in sorted(roles.thresholds.items()):
        yield RESOURCE.point(value, name)
    for name, value in sorted(roles.alerts.items()):
        yield ALERT.point(value, name)
