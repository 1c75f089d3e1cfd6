"""The samples of a run, kept in a file.

A recording is a gzip file of OpenMetrics documents, one a snapshot, each with the time of every sample. Each document
is a gzip member of its own, so that what was written before a crash can be read.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pinchpoint.exposition import families_text
from pinchpoint.model import Labels, Snapshot

__all__ = ["Recorder", "read_recording"]

CHUNK = 1 << 18


class Recorder:
    """Appends snapshots to a recording."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending. Raises OSError."""
        self._file = path.open("ab")

    def add(self, snapshot: Snapshot, kinds: dict[str, tuple[str, str]]) -> None:
        """Append a snapshot; `kinds` has kind and help of each metric. Raises OSError."""
        document = families_text(_families(snapshot, kinds))
        self._file.write(gzip.compress(document.encode(), compresslevel=1))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _families(snapshot: Snapshot, kinds: dict[str, tuple[str, str]]) -> Iterator[Family]:
    for name in sorted(snapshot.values):
        if name in kinds:
            kind, help_text = kinds[name]
            family = Family(name.removesuffix("_total"), help_text, kind)
            for labels, value in snapshot.values[name].items():
                family.add_sample(name, dict(labels), value, snapshot.time)
            yield family


def read_recording(path: Path) -> Iterator[Snapshot]:
    """Yield the snapshots of a recording, oldest first; one that was cut off by a crash is left out.

    Raises OSError where the file can't be read, ValueError where it is no recording.
    """
    for document in _documents(path):
        try:
            snapshot = _snapshot(document)
        except Exception as error:  # the parser raises whatever it stumbles on
            raise ValueError(f"{path}: not a recording: {error}") from error
        yield snapshot


def _snapshot(document: str) -> Snapshot:
    values: dict[str, dict[Labels, float]] = {}
    time = 0.0
    for family in text_string_to_metric_families(document):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
            time = float(sample.timestamp or 0.0)
    return Snapshot(time, values)


def _documents(path: Path) -> Iterator[str]:
    member, document, rest = zlib.decompressobj(wbits=31), b"", b""
    with path.open("rb") as file:
        while chunk := rest or file.read(CHUNK):
            try:
                document += member.decompress(chunk)
                if member.eof:
                    yield document.decode()
            except (zlib.error, UnicodeDecodeError) as error:
                raise ValueError(f"{path}: not a recording: {error}") from error
            rest = member.unused_data
            if member.eof:
                member, document = zlib.decompressobj(wbits=31), b""
