"""The recording of a run, read as sparingly as possible: unpacking a moment is cheap, parsing it is not."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

from pinchpoint.diagnosis.series import label
from pinchpoint.diagnosis.window import Sightings, Window, Windows, needed
from pinchpoint.metrics import UNKNOWN_THREAD_BUSY_RATIO
from pinchpoint.model import Snapshots
from pinchpoint.runs import PhaseMark
from pinchpoint.wire.recording import hosts_of, read_documents, read_recording, read_series, sample_time

__all__ = ["Samples"]


class Samples:
    """The moments of one recording.

    A damaged one has those before the damage, which `damage` describes.
    """

    def __init__(self, path: Path) -> None:
        """Scan the recording. Raises OSError if it can't be read."""
        self._path = path
        self.damage = ""
        self.sightings = Sightings()
        """The threads without a role that were seen hot."""
        self.changes: list[int] = []
        """The indexes of moments in which the answering hosts differ from the previous one."""
        before: frozenset[str] | None = None
        try:
            for place, document in enumerate(read_documents(path, self._warn)):
                self.times.append(_time(document, self.times[-1] if self.times else 0.0))
                if (hosts := hosts_of(document)) != before:
                    self.changes.append(place)
                    before = hosts
                for host, labels, value in read_series(document, UNKNOWN_THREAD_BUSY_RATIO.name):
                    self.sightings.add(host, label(labels, "thread"), label(labels, "process"), value)
        except ValueError as error:
            self.damage = str(error)

    @property
    def times(self) -> list[float]:
        """The time of each moment, in Unix seconds."""
        return self.sightings.times

    def windows(
        self,
        marks: Sequence[PhaseMark],
        end: float | None = None,
        *,
        step: float = float("inf"),
        also: Callable[[Snapshots], None] = lambda moment: None,
    ) -> list[Window]:
        """Return the windows of phases. Raises OSError.

        `end` is that of `Windows.finish`. `also` is called with each moment read for them, and with one per `step`
        seconds.
        """
        windows = Windows()
        found = [windows.open(mark.start, mark.end) for mark in marks]
        for moment in self.moments(needed(self.times, self.changes, marks, step)):
            windows.take(moment)
            also(moment)
        windows.finish(end)
        for window in found:
            if window.end is not None:
                window.hottest = self.sightings.hottest(window.start, window.end)
        return found

    def moments(self, wanted: Container[int]) -> Iterator[Snapshots]:
        """Yield the moments at these indexes of `times`, oldest first. Raises OSError."""
        try:
            yield from read_recording(self._path, self._warn, wanted)
        except ValueError as error:
            self.damage = str(error)

    def _warn(self, message: str) -> None:
        self.damage = message


def _time(document: str, before: float) -> float:
    """Return the time of a moment: like `time_of`, of its first sample; if it is empty, of the last one.

    Raises ValueError.
    """
    for line in document.split("\n"):
        if line and line[0] != "#":
            try:
                return sample_time(line.rpartition(" ")[2])
            except ValueError:
                raise ValueError(f"not a recording: {line[:80]!r} has no time") from None
    return before
