"""``pinchpoint replay``: a saved run, as ``watch`` would have shown it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.commands.options import NumberRange, complete_runs
from pinchpoint.diagnosis.recent import Recent, RecentVerdicts
from pinchpoint.model import Snapshots, time_of
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord, StoreError
from pinchpoint.terminal.plain import fail, warn
from pinchpoint.terminal.screen import Bell, is_screen, show_live, show_plain, status_of
from pinchpoint.terminal.view import Down, HostView, Picture, duration
from pinchpoint.text import printable
from pinchpoint.wire import recording
from pinchpoint.wire.sources import RecordingSource, SourceError

__all__ = ["command", "open_recording"]

MAX_SPEED = 1000.0
"""Highest speed: an hour is read in 4 s, so beyond that reading is the limit."""
MAX_READING_SECONDS = 0.2
"""Seconds of reading after which a picture is drawn, whatever the speed: keys must work."""
MIN_PAUSE_SECONDS = 0.1
"""Minimum seconds between two pictures."""
PAUSE_KEYS = b" pP"
MAX_NAMED_PHASES = 8
"""Maximum number of phases named in a message."""


class _Replay:
    """A recording that advances by its own clock."""

    def __init__(self, source: RecordingSource, marker: Marker, speed: float) -> None:
        self._source = source
        self._marker = marker
        self._speed = speed
        self._recent: dict[str, Recent] = {}
        self._last: dict[str, float] = {}
        self._verdicts = RecentVerdicts()
        self._at = source.time
        self._since: float | None = None
        self.paused = False

    @property
    def ended(self) -> bool:
        """Whether the last moment is shown."""
        return self._source.ended

    def skip(self, until: float) -> None:
        """Advance to a Unix time without showing what is on the way. Raises SourceError."""
        for moment in self._source.advance(until):
            self._take(moment)
        self._at = max(self._at, until)

    def step(self, now: float) -> None:
        """Advance to what is due at `now`, in monotonic seconds, as far as it can be read. Raises SourceError."""
        if self._since is None or self.paused:
            self._since = now
        self._at += (now - self._since) * self._speed
        self._since = now
        until = time.monotonic() + MAX_READING_SECONDS
        for moment in self._source.advance(self._at):
            self._take(moment)
            if time.monotonic() > until:
                self._at = self._source.time  # reading is slower than the requested speed
                break

    def _take(self, moment: Snapshots) -> None:
        for host, snapshot in moment.items():
            self._recent.setdefault(host, Recent()).add(snapshot)
            self._last[host] = time_of(moment)

    def press(self, keys: bytes) -> None:
        """Pause or resume."""
        if any(key in PAUSE_KEYS for key in keys):
            self.paused = not self.paused

    def picture(self) -> Picture:
        """Return the hosts at the current moment, and what limits the benchmark."""
        now = self._source.time
        views = [
            HostView(host, "replay", recent.usage() if self._last[host] == now else self._lost(host, now))
            for host, recent in self._recent.items()
        ]
        return Picture(views, self._verdicts.take(now, self._recent))

    def _lost(self, host: str, now: float) -> Down:
        self._recent[host].clear()
        return Down("no samples in the recording", now - self._last[host])

    def title(self) -> str:
        """Return the run and its current time."""
        marker = self._marker
        whole = f" of {duration(marker.end - marker.start)}" if marker.end is not None else ""
        return printable(f"{marker.run} at {duration(self._source.time - marker.start)}{whole}")

    def footer(self) -> str:
        """Return the keys, and the state of the replay."""
        state = "the end" if self.ended else "paused" if self.paused else f"speed {self._speed:g}"
        return f"q quits, space pauses; {state}; {self.title()}"


def open_recording(text: str) -> tuple[RunRecord, Path]:
    """Return the run selected by `text`, and its recording; exit if there is none."""
    try:
        record = store.find(text, store.runs(warn))
    except StoreError as error:
        fail(str(error))
    path = store.state_directory() / record.marker.run / recording.FILE
    if not path.exists():
        why = f"it was imported from {record.origin}" if record.origin else "its recording is gone"
        fail(f"{record.marker.run} has no samples: {why}")
    return record, path


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--speed",
    type=NumberRange(0, MAX_SPEED, min_open=True),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Speed relative to real time.",
)
@click.option("--from", "begin", metavar="PHASE|SECONDS", help="Where to start. [default: the run's start]")
@click.option("--once", is_flag=True, help="Print one screen as plain text: the end of the run, or the moment of --at.")
@click.option("--at", type=NumberRange(0), metavar="SECONDS", help="With --once: the moment of the run to show.")
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
def command(speed: float, begin: str | None, once: bool, at: float | None, run: str) -> None:
    """Show a saved run as `pinchpoint watch` would have shown it.

    A RUN is an id, its beginning, a name or a part of it, or "last"; see `pinchpoint runs`. Times are seconds since the
    run's start. Without a terminal, the screens are printed one after another.
    """
    if at is not None and not once:
        fail("--at is the time of one picture: give --once with it, or --from to begin there", 2)
    if once and begin is not None:
        fail("--from is where a replay begins: give --at for the time of one picture", 2)
    record, path = open_recording(run)
    marker = record.marker
    start = None if begin is None else _start(marker, begin)
    try:
        replay = _Replay(RecordingSource(path, warn), marker, speed)
        if once:
            replay.skip(float("inf") if at is None else marker.start + at)
            sys.exit(status_of(lambda: show_plain(iter([(replay.title(), replay.picture())]))))
        if start is not None:
            replay.skip(start)
        sys.exit(_show(replay, speed))
    except SourceError as error:
        fail(str(error))


def _show(replay: _Replay, speed: float) -> int:
    bell = Bell()
    pause = max(MIN_PAUSE_SECONDS, 1 / speed)

    def picture() -> Picture:
        replay.step(time.monotonic())
        return replay.picture()

    def pictures() -> Iterator[tuple[str, Picture]]:
        while not replay.ended:
            shown = picture()
            yield replay.title(), shown
            if not replay.ended:
                bell.wait(pause)

    if is_screen():
        return status_of(lambda: show_live(picture, replay.footer, bell, pause, press=replay.press))
    return status_of(lambda: show_plain(pictures()))


def _start(marker: Marker, text: str) -> float:
    """Return the Unix time given by ``--from``; exit if it is invalid."""
    for mark in marker.phases:
        if mark.name == text:
            return mark.start
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        names = [mark.name for mark in marker.phases]
        more = f" and {len(names) - MAX_NAMED_PHASES} more" if len(names) > MAX_NAMED_PHASES else ""
        known = f"its phases are {', '.join(names[:MAX_NAMED_PHASES])}{more}" if names else "it has no phases"
        fail(f"--from {text!r} is neither a phase of {marker.run} nor a number of seconds: {known}", 2)
    return marker.start + seconds
