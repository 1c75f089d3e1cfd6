"""The hosts that are queried for their series, each source in its own thread, so that none delays another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import Event

import msgspec

from pinchpoint.clock import STEADY
from pinchpoint.judge.pace import MAX_READING_INTERVAL_SECONDS, Pace
from pinchpoint.model import STALE_SECONDS, Snapshot
from pinchpoint.wire.poller import Poller, Problem
from pinchpoint.wire.sources import LOST_AFTER_SCRAPES, Source

__all__ = ["Hosts"]

MAX_ANSWER_OVERDUE_SECONDS = MAX_READING_INTERVAL_SECONDS / 3
"""Seconds beyond the interval that a query may take."""


class Hosts:
    """The hosts of all sources."""

    def __init__(self, pace: Pace) -> None:
        """Begin; each source is queried at this pace."""
        self._pace = pace
        self._pollers: dict[str, Poller] = {}
        self._slow: dict[str, Problem] = {}
        self._awaited: set[str] = set()
        """Sources that have not answered since `collect`, of those that answer in time."""
        self._complete = Event()
        """Whether none is left."""

    def set(self, sources: Mapping[str, Callable[[], Source]]) -> None:
        """Query only these sources from now on, each given by name; their order is that of what they answer."""
        for name in self._pollers.keys() - sources.keys():
            self._pollers.pop(name).close()
        for name in [name for name in sources if name not in self._pollers]:
            self._pollers[name] = Poller(
                sources[name](),
                self._pace.interval,
                slowest=MAX_READING_INTERVAL_SECONDS,
                ring=partial(self._answered, name),
            )

    def _answered(self, name: str) -> None:
        if self._pace.check():
            for poller in [*self._pollers.values()]:
                poller.interval = self._pace.interval
        if name in self._awaited:
            self._awaited.discard(name)
            if not self._awaited:
                self._complete.set()

    def wait(self, seconds: float) -> bool:
        """Wait until all sources have answered since `collect`, except slow and failing ones, or `wake` is called.

        Return False if that has not happened after so many seconds. The next call waits anew.
        """
        complete = self._complete.wait(seconds)
        self._complete.clear()
        return complete

    def wake(self) -> None:
        """End `wait`."""
        self._complete.set()

    def collect(self) -> dict[str, Snapshot]:
        """Return the hosts that have answered since the last time, with their newest series."""
        self._awaited = {
            name
            for name, poller in self._pollers.items()
            if poller.failure is None and poller.took < self._pace.interval
        }
        found: dict[str, Snapshot] = {}
        for poller in self._pollers.values():
            # No answer comes while one is under way.
            least = LOST_AFTER_SCRAPES * max(self._pace.interval, poller.took)
            for host, snapshot in poller.collect().items():
                # Several sources may know a host.
                if host not in found or snapshot.time > found[host].time:
                    found[host] = (
                        snapshot if snapshot.lasts >= least else msgspec.structs.replace(snapshot, lasts=least)
                    )
        return found

    def problems(self) -> dict[str, Problem]:
        """Return what is wrong with hosts or sources, by name: they are not seen, or slow."""
        patience = self._pace.interval + MAX_ANSWER_OVERDUE_SECONDS
        found = {name: why for poller in self._pollers.values() for name, why in poller.problems(patience).items()}
        slow = [name for name, poller in self._pollers.items() if poller.took > STALE_SECONDS and not poller.failure]
        why = f"its answers take more than {STALE_SECONDS:g} s, so that verdicts are late"
        self._slow = {name: self._slow.get(name) or Problem(why, STEADY.now(), unseen=False) for name in slow}
        return self._slow | found

    def stop(self) -> None:
        """End all threads without a query in progress, and release the sources."""
        for poller in self._pollers.values():
            poller.close()
