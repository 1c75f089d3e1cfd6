"""The samples of a run, kept in a file.

A recording is a gzip file of OpenMetrics documents. Each document is one moment: all hosts, each sample with the label
``instance`` for its host and with the time at which it was taken, by `pinchpoint.clock`. Each is a separate gzip
member, so what was written before a crash can be read, and any tool unpacks the whole.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pinchpoint.expressions import expression
from pinchpoint.model import STALE_SECONDS, THIS_HOST, Labels, Snapshot, Snapshots
from pinchpoint.regular import open_regular
from pinchpoint.runs import MAX_TIME_SECONDS
from pinchpoint.wire.sampletext import MAX_HEADS, escaped, parse_head, render_head, render_value, split_sample

__all__ = ["FILE", "INSTANCE", "Recorder", "hosts_of", "read_documents", "read_recording", "read_series", "sample_time"]

FILE = "samples.om.gz"
"""File name of the recording in a run's directory."""
INSTANCE = "instance"
"""The label that names the host: what Prometheus calls a scraped target."""
RECORDING_CHUNK_BYTES = 1 << 18
MAX_DOCUMENT_BYTES = 64 << 20
"""Longest document in bytes (100 hosts with 2,000 series each have 25 MB): a few bytes can unpack to gigabytes."""
GZIP_LEVEL = 6
"""Compression level of gzip: a sixth smaller than level 1, for half a millisecond."""
VALUE_DECIMALS = 9
"""Decimals of a value (nanoseconds): the digits after them are rounding noise, which does not compress."""
END = "# EOF"
LASTS = "pinchpoint_recording_lasts_seconds"
"""For how many seconds a snapshot is valid, if longer than `STALE_SECONDS`: its host is scraped rarely."""
AHEAD = "pinchpoint_recording_clock_ahead_seconds"
"""By how many seconds the wall clock of the recording host is ahead of a moment's times, if it was set meanwhile."""
MAX_LASTS_SECONDS = 3600.0
HOST = expression(rf'[{{,]{INSTANCE}="((?:[^"\\]|\\.)*)"')
"""The host of a series; a backslash escapes quotation marks in the value."""


class Recorder:
    """Appends moments to a recording.

    It formats the text itself, every second on the measured host; prometheus_client takes ten times as long.
    """

    def __init__(self, path: Path) -> None:
        """Open the file for appending. Raises OSError."""
        self._file = path.open("ab", buffering=0)
        self._helped: set[str] = set()
        self._heads: dict[tuple[str, str], dict[Labels, str]] = {}

    def add(self, snapshots: Snapshots, kinds: Mapping[str, tuple[str, str]], ahead: float = 0.0) -> None:
        """Append a moment of all hosts; `kinds` has kind and help of each recorded metric. Raises OSError.

        The wall clock is `ahead` of the times by so many seconds.
        """
        lines = [*self._lines(snapshots, kinds)]
        if ahead and snapshots:
            host, snapshot = next(iter(snapshots.items()))
            head = render_head(AHEAD, ((INSTANCE, host),))
            lines += [f"# TYPE {AHEAD} gauge", f"{head} {render_value(ahead)} {render_value(snapshot.time)}"]
        document = "\n".join([*lines, END, ""])
        self._append(gzip.compress(document.encode("utf-8", "replace"), GZIP_LEVEL))

    def _lines(self, snapshots: Snapshots, kinds: Mapping[str, tuple[str, str]]) -> Iterator[str]:
        times = {host: render_value(snapshot.time) for host, snapshot in snapshots.items()}
        for name in sorted({name for snapshot in snapshots.values() for name in snapshot.values if name in kinds}):
            kind, text = kinds[name]
            family = name.removesuffix("_total")
            if name not in self._helped:
                # Once is enough for readers of the file; in each document it would be a third of it.
                self._helped.add(name)
                yield f"# HELP {family} {escaped(text)}"
            yield f"# TYPE {family} {kind}"
            for host, snapshot in snapshots.items():
                series, before = snapshot.values.get(name, {}), self._heads.get((host, name), {})
                heads = self._heads[host, name] = {
                    labels: before.get(labels) or render_head(name, (*labels, (INSTANCE, host))) for labels in series
                }
                time = times[host]
                for labels, value in series.items():
                    yield f"{heads[labels]} {render_value(round(value, VALUE_DECIMALS))} {time}"
        if rare := {host: snapshot.lasts for host, snapshot in snapshots.items() if snapshot.lasts > STALE_SECONDS}:
            yield f"# TYPE {LASTS} gauge"
            for host, lasts in rare.items():
                yield f"{render_head(LASTS, ((INSTANCE, host),))} {render_value(lasts)} {times[host]}"

    def _append(self, member: bytes) -> None:
        end = os.fstat(self._file.fileno()).st_size
        rest = memoryview(member)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            # Half a member would hide all that follows once the disk has room again.
            with suppress(OSError):
                self._file.truncate(end)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _ignore(message: str) -> None:
    pass


def read_recording(
    path: Path, warn: Callable[[str], None] = _ignore, only: Container[int] | None = None
) -> Iterator[Snapshots]:
    """Yield the moments of a recording, oldest first, or those at the indexes `only`: parsing is what costs.

    A last one that is incomplete, or truncated by a crash, is left out. What comes before any damage (foreign bytes) is
    given, and `warn` is called. Raises OSError if the file can't be read, ValueError if it is not a recording from its
    first byte on.
    """
    reader = _MomentReader()
    for place, document in enumerate(read_documents(path, warn)):
        if only is not None and place not in only:
            continue
        try:
            moment = reader.read(document)
        except ValueError as error:
            _damaged(path, place, error, warn)
            return
        if moment:
            yield moment


def read_documents(path: Path, warn: Callable[[str], None] = _ignore) -> Iterator[str]:
    """Yield the text of each moment of a recording; see `read_recording`."""
    whole = 0
    try:
        for document in _members(path):
            if not document.endswith(f"\n{END}\n") and document != f"{END}\n":
                raise ValueError(f"a moment has no end, {END}")
            yield document
            whole += 1
    except (ValueError, zlib.error) as error:
        _damaged(path, whole, error, warn)


def read_series(document: str, name: str) -> Iterator[tuple[str, Labels, float]]:
    """Yield host, labels and value of each series of one metric in a moment's text, parsing nothing else.

    Raises ValueError.
    """
    start = f"\n{name}{{"
    at = document.find(start)
    while at >= 0:
        end = document.find("\n", at + 1)
        head, fields = split_sample(document[at + 1 : end])
        host, _, labels = _series(head)
        yield host, labels, float(fields[0])
        at = document.find(start, end)


def hosts_of(document: str) -> frozenset[str]:
    """Return the escaped names of the hosts in a moment's text."""
    return frozenset(HOST.findall(document))


def _damaged(path: Path, whole: int, error: Exception, warn: Callable[[str], None]) -> None:
    """Warn that only the first moments are used. Raises ValueError if there are none."""
    if not whole:
        raise ValueError(f"{path}: not a recording: {error}") from error
    warn(f"{path}: damaged behind its first {whole} moments, which are used: {error}")


def _members(path: Path) -> Iterator[str]:
    """Yield the content of each gzip member. Raises OSError, zlib.error, ValueError."""
    member, parts, length, rest = zlib.decompressobj(wbits=31), list[bytes](), 0, b""
    with open_regular(path) as file:
        while chunk := rest or file.read(RECORDING_CHUNK_BYTES):
            parts.append(member.decompress(chunk, MAX_DOCUMENT_BYTES + 1 - length))
            length += len(parts[-1])
            if length > MAX_DOCUMENT_BYTES:
                raise ValueError(f"a moment of more than {MAX_DOCUMENT_BYTES >> 20} MiB")
            rest = member.unused_data or member.unconsumed_tail
            if member.eof:
                yield b"".join(parts).decode()
                member, parts, length = zlib.decompressobj(wbits=31), [], 0


class _MomentReader:
    """Turns documents of one recording into snapshots; a series seen before costs a look-up."""

    def __init__(self) -> None:
        self._heads: dict[str, tuple[str, str, Labels]] = {}

    def read(self, document: str) -> Snapshots:
        """Return the hosts of one moment. Raises ValueError."""
        values: dict[str, dict[str, dict[Labels, float]]] = {}
        times: dict[str, str] = {}
        heads = self._heads
        for line in document.split("\n"):
            if not line or line[0] == "#":
                continue
            head, fields = split_sample(line)
            if len(fields) < 2:
                raise ValueError(f"a sample without a time: {head}")
            if (known := heads.get(head)) is None:
                if len(heads) >= MAX_HEADS:
                    heads.clear()
                known = heads[head] = _series(head)
            host, name, labels = known
            if host not in values:
                values[host] = {}
            of = values[host]
            if name not in of:
                of[name] = {}
            of[name][labels] = float(fields[0])
            times[host] = fields[1]
        for of in values.values():
            of.pop(AHEAD, None)
        return {host: Snapshot(sample_time(times[host]), of, _lasts(of)) for host, of in values.items()}


def _lasts(values: dict[str, dict[Labels, float]]) -> float:
    """Remove from a host's series for how many seconds they are valid."""
    (lasts,) = values.pop(LASTS, {}).values() or (STALE_SECONDS,)
    return min(lasts, MAX_LASTS_SECONDS) if lasts > STALE_SECONDS else STALE_SECONDS


def _series(head: str) -> tuple[str, str, Labels]:
    """Return host, name and labels of a series; recordings from before multiple hosts were supported name none."""
    name, labels = parse_head(head)
    host = dict(labels).get(INSTANCE, THIS_HOST)
    return host, name, tuple(label for label in labels if label[0] != INSTANCE)


def sample_time(text: str) -> float:
    """Return the Unix time at the end of a sample's line. Raises ValueError for what is not a plausible one."""
    time = float(text)
    if not 0 <= time <= MAX_TIME_SECONDS:
        raise ValueError(f"no time: {text}")
    return time
