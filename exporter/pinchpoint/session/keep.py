"""The files of a run: its marker, from which exporters show its current phases, and its record."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from pinchpoint.benchmarks.markers import MAX_MARKED_RANKS, Marker, RunDirectory
from pinchpoint.host.procfs import parse_stat, read_bytes
from pinchpoint.limits import LIMITS, words
from pinchpoint.runs import RankMark, RunState
from pinchpoint.session import store
from pinchpoint.text import as_utf8

__all__ = ["RunKeeper"]

MARK_INTERVAL_SECONDS = 1.0
"""Seconds between two markers during a phase."""
MAX_MARKED_PHASES = 128
"""Maximum number of phases in the marker: the last ones; an exporter shows at most half of them."""


class RunKeeper:
    """Keeps the run `run`: its record in `directory`, its marker in `markers`.

    `wall` gives Unix time in seconds; `warn` takes what could not be saved.
    """

    def __init__(
        self,
        run: str,
        directory: Path,
        markers: RunDirectory,
        *,
        tags: Mapping[str, str],
        wall: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._markers = markers
        self._wall = wall
        self._warn = warn
        self._marked = float("-inf")
        self._signature: object = None
        self._ranks: tuple[RankMark, ...] = ()
        self.kept = False
        """Whether the record on disk has all that is known."""
        known = {as_utf8(key): as_utf8(value) for key, value in tags.items()}
        self.marker = Marker(run, "command", wall(), pid=0, pid_start=0, command_pid=0, tags=known)
        self.record = store.RunRecord(self.marker, [], host=os.uname().nodename)

    def start(self, command: Sequence[str], pid: int) -> None:
        """Begin: the command runs as `pid`."""
        own = os.getpid()
        marker = self.marker
        marker.pid, marker.command_pid, marker.start = own, pid, self._wall()
        self.record.command = [as_utf8(word) for word in command]
        with suppress(OSError):
            store.reserve(self._directory)
        self._markers.prune(marker.start)
        marker.pid_start = parse_stat(read_bytes(f"/proc/{own}/stat")).start
        self._mark()  # at once: an exporter that finds the run earlier takes it for another user's

    def update(self, state: RunState, ranks: Sequence[RankMark] = ()) -> None:
        """Take over what is known about the run; save it if it changed, and regularly show that it is in progress."""
        self._ranks = tuple(ranks[:MAX_MARKED_RANKS])
        marker = self.marker
        marker.benchmark = state.benchmark or marker.benchmark
        marker.state, marker.phases = state.state, state.phases
        marker.total, marker.scores, marker.valid = state.total, state.scores, state.valid
        marker.reason, marker.blind = state.reason, state.blind
        signature = [(mark.name, mark.start, mark.end, len(mark.results)) for mark in state.phases], state.state
        if signature != self._signature:
            self._signature = signature
            self.save()
        elif self._wall() - self._marked >= MARK_INTERVAL_SECONDS:
            self._mark()

    def save(self) -> None:
        """Save what is known."""
        self._mark()
        try:
            store.save(self._directory, self.record)
            self.kept = True
        except LIMITS as error:
            self.kept = False
            self._warn(f"{self._directory / store.FILE}: {words(error)}: the run is not saved")

    def close(self) -> None:
        """Save for the last time."""
        self.save()
        store.release(self._directory)

    def _mark(self) -> None:
        self._marked = self._wall()
        try:
            phases = self.marker.phases[-MAX_MARKED_PHASES:]
            self._markers.write(msgspec.structs.replace(self.marker, phases=phases, ranks=self._ranks))
        except LIMITS as error:
            self._warn(f"{self._markers.path}: {words(error)}: an exporter will not show the phases")
