"""Colours that mean the same on all dashboards."""

from __future__ import annotations

from pinchpoint.report.palette import WAITS
from pinchpoint.threads.roles import load_roles

__all__ = ["FULL_COLOUR", "ROLES", "TEXT_COLOUR", "WAIT_COLOURS", "class_colour", "class_colours"]


FULL_COLOUR = "#C2410C"
ROLES = load_roles()
WAIT_COLOURS = WAITS
TEXT_COLOUR = "text"


def class_colour(resource: str) -> str:
    """Return the colour of a resource on all dashboards: the colour of the first wait class that it serves."""
    serves = ROLES.serves.get(resource) or ("other",)
    return WAIT_COLOURS[serves[0]]


def class_colours() -> dict[str, str]:
    """Return the colours of all resources, for series whose name begins with one."""
    classes: dict[str, list[str]] = {}
    for resource in sorted(ROLES.serves):
        classes.setdefault(class_colour(resource), []).append(resource)
    return {f"/^({'|'.join(resources)})( |$)/": colour for colour, resources in classes.items()}
