"""The recording of a run, read as sparingly as a report allows: to unpack a moment is cheap, to parse it is not."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from pinchpoint.diagnosis.series import finite, label
from pinchpoint.diagnosis.usage import UNKNOWN_THREAD
from pinchpoint.model import Snapshots
from pinchpoint.recording import read_documents, read_recording, read_series
from pinchpoint.report.window import Sighting

__all__ = ["Samples"]


class Samples:
    """The moments of one recording.

    One that is damaged has those before the damage, and says what is wrong in `damage`.
    """

    def __init__(self, path: Path) -> None:
        """Look through the recording. Raises OSError where it can't be read."""
        self._path = path
        self.damage = ""
        self.times: list[float] = []
        """When each moment was, in Unix seconds."""
        self.sightings: list[Sighting] = []
        """The threads without a role that were seen hot, oldest first: any moment may have one."""
        try:
            for document in read_documents(path, self._warn):
                self.times.append(_time(document, self.times[-1] if self.times else 0.0))
                for host, labels, value in read_series(document, UNKNOWN_THREAD):
                    if (busy := finite(value)) is not None:
                        names = label(labels, "thread"), label(labels, "process")
                        self.sightings.append(Sighting(self.times[-1], host, *names, busy))
        except ValueError as error:
            self.damage = str(error)

    def moments(self, wanted: Container[int]) -> Iterator[Snapshots]:
        """Yield the moments at these places of `times`, oldest first. Raises OSError."""
        try:
            yield from read_recording(self._path, self._warn, wanted)
        except ValueError as error:
            self.damage = str(error)

    def _warn(self, message: str) -> None:
        self.damage = message


def _time(document: str, before: float) -> float:
    """Return when a moment was, as each of its samples ends with its time; one that is empty, when the last one was.

    Raises ValueError.
    """
    for line in reversed(document.splitlines()):
        if not line.startswith("#"):
            try:
                return float(line.rpartition(" ")[2])
            except ValueError:
                raise ValueError(f"not a recording: {line[:80]!r} has no time") from None
    return before
