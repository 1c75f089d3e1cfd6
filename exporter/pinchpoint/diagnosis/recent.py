"""What one host does at present: its snapshots of the last seconds, as they come."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from pinchpoint.diagnosis.usage import Usage, usage
from pinchpoint.model import Snapshot

__all__ = ["WINDOW", "Recent"]

WINDOW = 2.0
"""Seconds that a picture covers at least: some probes sample once a second only."""


class Recent:
    """The snapshots of one host that a picture of its present is made of."""

    def __init__(self, seconds: float = WINDOW) -> None:
        self._seconds = seconds
        self._history: deque[Snapshot] = deque()
        self._usage: Usage | None = None
        self._cost: float | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot; one that was there already changes nothing."""
        history = self._history
        if history and snapshot.time == history[-1].time:
            return
        if history and snapshot.time < history[-1].time:
            history.clear()  # the clock was set back: nothing that came before can be compared
        history.append(snapshot)
        while len(history) > 2 and snapshot.time - history[1].time >= self._seconds:
            history.popleft()
        self._usage = None

    def clear(self) -> None:
        """Forget the snapshots."""
        self._history.clear()
        self._usage = None

    @property
    def span(self) -> tuple[Snapshot, Snapshot] | None:
        """The first and the last snapshot; None while there is only one."""
        return (self._history[0], self._history[-1]) if len(self._history) > 1 else None

    def usage(self) -> Usage | None:
        """Return what the host did between them; None while there is only one."""
        if self._usage is None and self.span is not None:
            self._usage = usage(*self.span)
            if self._usage.own.cpu is None:
                # An exporter reads its own cost more rarely than we look: what it last was stays in sight.
                self._usage = replace(self._usage, own=replace(self._usage.own, cpu=self._cost))
            self._cost = self._usage.own.cpu
        return self._usage
