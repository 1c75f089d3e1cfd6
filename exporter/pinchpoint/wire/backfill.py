"""A recording transposed: from moments with all series to series with all their samples.

OpenMetrics requires each metric in one piece, each series in one piece, and its samples in order (OpenMetrics
1.0, sections 4.5 and 5.1). A recording is ordered by time, and may be larger than memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

from pinchpoint.metrics import EXPORTER, JUDGE, TREND
from pinchpoint.model import Labels, Snapshots
from pinchpoint.wire.recording import INSTANCE
from pinchpoint.wire.sampletext import escaped, render_head, render_value

__all__ = ["Backfill"]

MAX_HELD_SAMPLES = 2_000_000
"""Maximum number of samples held in memory (16 bytes each); the others wait in a temporary file."""
TIMES = "_timestamp_seconds"
"""Suffixes of metrics whose values are times."""
NUMBERS_PER_SAMPLE = 2
"""Numbers in a sample: its time and its value."""


class _SeriesSamples:
    """The samples of one series: pieces in the file, and what came since."""

    __slots__ = ("held", "last", "pieces")

    def __init__(self) -> None:
        self.held = array("d")
        self.last = float("-inf")
        self.pieces: list[tuple[int, int]] = []
        """Offsets and lengths in bytes of its pieces in the file, in order."""


class Backfill:
    """Takes moments, oldest first, and writes them as one OpenMetrics text. As a context, it closes its file."""

    def __init__(self) -> None:
        """Open the temporary file. Raises OSError."""
        self._file: IO[bytes] = TemporaryFile("w+b", buffering=0)  # noqa: SIM115 - it is closed by __exit__
        self._families: dict[str, dict[tuple[str, Labels], _SeriesSamples]] = {}
        self._held = 0
        self.samples = 0
        """Number of samples in the text."""
        self.dropped = 0
        """Number of samples older than the last one of their series: Prometheus takes none out of order."""
        self.impossible = 0
        """Number of samples that no exporter writes and OpenMetrics refuses: NaN, negative, of a clashing name."""
        self._names: dict[str, str] = {}
        """The metric of each family."""

    def __enter__(self) -> Backfill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, moment: Snapshots, shift: float = 0.0) -> None:
        """Take the next moment, shifted later by so many seconds. Raises OSError."""
        for host, snapshot in moment.items():
            # Prometheus' times are whole milliseconds.
            now = round((snapshot.time + shift) * 1000) / 1000
            for name, values in snapshot.values.items():
                if self._names.setdefault(name.removesuffix("_total"), name) != name:
                    self.impossible += len(values)
                    continue
                family = self._families.setdefault(name, {})
                later = shift if name.endswith(TIMES) else 0.0
                for labels, given in values.items():
                    value = given + later
                    if not 0 <= value < math.inf:
                        self.impossible += 1
                        continue
                    if (series := family.get((host, labels))) is None:
                        series = family[host, labels] = _SeriesSamples()
                    if now > series.last:
                        series.last = now
                        series.held.extend((now, value))
                        self._held += 1
                        self.samples += 1
                    elif now < series.last:
                        self.dropped += 1
        if self._held >= MAX_HELD_SAMPLES:
            self._spill()

    def _spill(self) -> None:
        end = self._file.seek(0, 2)
        for family in self._families.values():
            for series in family.values():
                if series.held:
                    raw = series.held.tobytes()
                    series.pieces.append((end, len(raw)))
                    end += len(raw)
                    _write(self._file, raw)
                    series.held = array("d")
        self._held = 0

    def text(self) -> Iterator[str]:
        """Yield the text in pieces of one series or less. Raises OSError."""
        metrics = {metric.name: metric for metric in (*EXPORTER, *JUDGE, *TREND)}
        for name in sorted(self._families):
            family = name.removesuffix("_total")
            metric = metrics.get(name)
            if metric is not None:
                yield f"# HELP {family} {escaped(metric.help)}\n"
            yield f"# TYPE {family} {metric.kind.value if metric else 'counter' if family != name else 'gauge'}\n"
            for (host, labels), series in sorted(self._families[name].items(), key=lambda entry: entry[0]):
                head = render_head(name, (*labels, *([(INSTANCE, host)] if host else [])))
                for samples in self._pieces(series):
                    times, values = samples[::NUMBERS_PER_SAMPLE], samples[1::NUMBERS_PER_SAMPLE]
                    yield "".join(
                        f"{head} {render_value(value)} {time:.3f}\n" for time, value in zip(times, values, strict=True)
                    )
        yield "# EOF\n"

    def _pieces(self, series: _SeriesSamples) -> Iterator[array[float]]:
        for offset, length in series.pieces:
            self._file.seek(offset)
            piece = array("d")
            piece.frombytes(_read(self._file, length))
            yield piece
        yield series.held


def _write(file: IO[bytes], raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[file.write(rest) :]


def _read(file: IO[bytes], length: int) -> bytes:
    """Return so many bytes; a truncated file is an error. Raises OSError."""
    raw = file.read(length)
    if len(raw) < length:
        raise OSError(0, "the temporary file was cut off")
    return raw
