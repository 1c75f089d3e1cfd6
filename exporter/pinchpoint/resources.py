"""Resources: what can be full, and the integrals of how busy it was.

A resource's *busy* time is the time in which it could take no more work. Probes add to it at the sampling rate, so
that a scrape every 15 s still sees a thread that is full for 300 ms in every 3 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Literal

import msgspec

from pinchpoint.metrics import (
    RESOURCE_BLOCKED_SECONDS,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_RUNQUEUE_SECONDS,
    RESOURCE_SATURATED_SECONDS,
)
from pinchpoint.model import Point
from pinchpoint.shipped import shipped

__all__ = ["ELSEWHERE", "METRICS", "Resource", "ResourceEntry", "all_resources", "entry_of", "points"]

ELSEWHERE = "/"
"""In an owner, separates a link in another network namespace from its owner.

No name of an interface has it (dev_valid_name, net/core/dev.c).
"""
METRICS = (RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS, RESOURCE_RUNQUEUE_SECONDS, RESOURCE_BLOCKED_SECONDS)


class ResourceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about a resource by its name: an entry of ``resources.toml``, which describes each field."""

    what: str = ""
    do: str = ""
    runbook: str = ""
    threshold: float | None = None
    serves: tuple[str, ...] = ()
    probe: str = ""
    gives: Literal["", "cpu", "io"] = ""
    unless: str = ""
    holds_all: bool = False
    inside: str = ""
    concerns: Literal["", "files", "owner"] = ""
    harmless: str = ""


UNKNOWN = ResourceEntry()


@cache
def all_resources() -> Mapping[str, ResourceEntry]:
    """Return the entries of ``resources.toml`` by name."""
    raw = shipped("resources.toml").read_bytes()
    return msgspec.toml.decode(raw, type=dict[str, ResourceEntry])


@lru_cache(1024)
def entry_of(resource: str) -> ResourceEntry:
    """Return the entry of a resource; an empty one for a role from the user's own file."""
    return all_resources().get(resource, UNKNOWN)


class Resource:
    """The integrals of one resource, in seconds.

    `parts` names the parts of busy that the source of this resource can tell apart ("runqueue", "blocked"): a part that
    is not measured is not exported, since a constant 0 would read as "measured, and none".
    """

    __slots__ = ("blocked", "busy", "name", "owner", "parts", "runqueue", "saturated", "serves", "threshold")

    def __init__(
        self, name: str, owner: str, serves: Iterable[str], threshold: float, parts: Iterable[str] = ()
    ) -> None:
        self.name = name
        self.owner = owner
        self.serves = ",".join(serves)
        self.threshold = threshold
        self.parts = frozenset(parts)
        self.busy = 0.0
        self.saturated = 0.0
        self.runqueue = 0.0
        self.blocked = 0.0

    def add(
        self, elapsed: float, busy: float, *, runqueue: float = 0.0, blocked: float = 0.0, full: bool = True
    ) -> None:
        """Add one sample: `busy` seconds of the last `elapsed` seconds, with the parts `runqueue` and `blocked`.

        A source with a second condition for fullness (a disk's queue) passes it as `full`.
        """
        self.busy += busy
        self.runqueue += runqueue
        self.blocked += blocked
        if full and elapsed > 0 and busy >= self.threshold * elapsed:
            self.saturated += elapsed


def points(resources: Iterable[Resource]) -> Iterator[Point]:
    """Yield the points of `resources`."""
    for resource in resources:
        name, owner, serves = resource.name, resource.owner, resource.serves
        yield Point(RESOURCE_BUSY_SECONDS, (name, owner, serves), resource.busy)
        yield Point(RESOURCE_SATURATED_SECONDS, (name, owner, serves), resource.saturated)
        if "runqueue" in resource.parts:
            yield Point(RESOURCE_RUNQUEUE_SECONDS, (name, owner), resource.runqueue)
        if "blocked" in resource.parts:
            yield Point(RESOURCE_BLOCKED_SECONDS, (name, owner), resource.blocked)
