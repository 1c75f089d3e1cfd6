"""The hosts that are asked for their series, each source in a thread of its own, so that none holds up another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pinchpoint.model import Snapshot
from pinchpoint.wire.poller import Poller, Problem
from pinchpoint.wire.sources import Source

__all__ = ["Hosts"]

MAX_RETRY_INTERVAL_SECONDS = 30.0
"""Seconds between two questions to a source that gives no answers, at most."""
MAX_ANSWER_OVERDUE_SECONDS = MAX_RETRY_INTERVAL_SECONDS / 3
"""Seconds for which a question may be under way beyond the interval."""


class Hosts:
    """The hosts of all sources."""

    def __init__(self, interval: float) -> None:
        """Begin; each source is asked every `interval` seconds."""
        self._interval = interval
        self._pollers: dict[str, Poller] = {}

    def set(self, sources: Mapping[str, Callable[[], Source]]) -> None:
        """Ask these sources from now on, by a name for each, and no others."""
        for name in self._pollers.keys() - sources.keys():
            self._pollers.pop(name).close()
        for name in sources.keys() - self._pollers.keys():
            self._pollers[name] = Poller(sources[name](), self._interval, slowest=MAX_RETRY_INTERVAL_SECONDS)

    def collect(self) -> dict[str, Snapshot]:
        """Return the hosts that have answered since the last time, with their newest series."""
        return {host: snapshot for poller in self._pollers.values() for host, snapshot in poller.collect().items()}

    def problems(self) -> dict[str, Problem]:
        """Return why hosts or sources are not seen, by name."""
        patience = self._interval + MAX_ANSWER_OVERDUE_SECONDS
        return {name: why for poller in self._pollers.values() for name, why in poller.problems(patience).items()}

    def stop(self) -> None:
        """End all threads that are not in a question, and release the sources."""
        for poller in self._pollers.values():
            poller.close()
