"""Sources of snapshots: this process, scraped exporters, a Prometheus server, a recording.

All have the same interface: `snapshots()` returns the hosts, each with its series.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec

from pinchpoint.clock import STEADY
from pinchpoint.expressions import expression
from pinchpoint.metrics import EXPORTER
from pinchpoint.model import STALE_SECONDS, Labels, Snapshot, Snapshots, time_of
from pinchpoint.wire.fetch import Fetcher, FetchError
from pinchpoint.wire.prometheus import PrometheusError, RawSeries, raw_series
from pinchpoint.wire.recording import INSTANCE, read_recording
from pinchpoint.wire.sampletext import MAX_HEADS, most_heads, parse_head, split_sample

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = [
    "LOST_AFTER_SECONDS",
    "OWN",
    "Demand",
    "PrometheusSource",
    "RecordingSource",
    "Source",
    "SourceError",
    "TargetSource",
    "is_here",
    "known_hosts",
    "parse_exposition",
    "target_url",
]

OWN = "pinchpoint_"
"""Prefix of Pinchpoint's metric names."""
CLOCK = f"{OWN}sampler_priority_info"
"""One series of a host, which says when Prometheus scraped it: all series of a scrape have one time."""
CLOCKS = f'{{__name__="{CLOCK}"}}'
"""Selects it."""
MILLISECOND = 0.001
"""Prometheus' unit of time."""
MAX_GROUP_HOSTS, MAX_GROUP_CHARACTERS = 100, 4000
"""Maximum number of hosts per query, and of characters in their names."""
SPECIAL = expression(r"[\\.+*?()|\[\]{}^$]")
"""Characters that are escaped in Prometheus' regular expressions."""
LOST_AFTER_SECONDS = 15.0
"""Seconds without a new sample in Prometheus after which a host counts as lost ..."""
LOST_AFTER_SCRAPES = 2.5
"""... or this many of its scrapes, if these take longer."""
STEADY_INTERVAL_SECONDS = 15.0
"""Seconds after which the steady metrics of a host are queried again."""
FORGET_HOST_SECONDS = 3600.0
"""Seconds after which a host that is not found any more counts as gone for good."""
COUNTED_SECONDS, COUNT_INTERVAL_SECONDS = 150.0, 60.0
"""Seconds in which scrapes are counted, so that one in a minute is known, and after which they are again."""


class SourceError(Exception):
    """A source gave no snapshot; the message says which one and why."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class Source(Protocol):
    """Hosts that can be queried for their series."""

    name: str
    """Its name for people: ``this host``, ``HOST:PORT``, the URL of a server."""

    @property
    def problems(self) -> Mapping[str, str]:
        """Why hosts are missing from the last answer, by name (or the source's name if its hosts are not known)."""

    def snapshots(self) -> Snapshots:
        """Return the current series of each host that answers. Raises SourceError if there is no answer at all."""

    def close(self) -> None:
        """Release the source's threads and files."""


class _OneHost:
    """Base class of sources of one host."""

    name: str
    problems: Mapping[str, str] = {}

    def snapshot(self) -> Snapshot:
        """Return the series of the host now. Raises SourceError."""
        raise NotImplementedError

    def snapshots(self) -> Snapshots:
        """Return the host under its name. Raises SourceError."""
        return {self.name: self.snapshot()}


class Demand:
    """What is asked of several exporters: the full rate, while a benchmark that runs on one host waits for others."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full


class TargetSource(_OneHost):
    """An exporter, scraped over HTTP at ``HOST:PORT`` (its path is /metrics) or at a whole URL.

    Snapshots have our times, of when its answer came: clocks of several hosts cannot be compared.
    """

    def __init__(
        self,
        target: str,
        timeout: float = 2.0,
        name: str = "",
        clock: Callable[[], float] = STEADY.now,
        access: HttpAccess | None = None,
        demand: Demand | None = None,
    ) -> None:
        """Name the target; its host has the same name unless `name` is given. `clock` gives Unix time in seconds."""
        self.name = name or target
        self.url = target_url(target, "http" if access is None else access.scheme)
        self._demand = demand or Demand()
        self._fetcher = Fetcher(timeout, access)
        self._access = access
        self._clock = clock
        self._heads: dict[str, tuple[str, Labels]] = {}

    def snapshot(self) -> Snapshot:
        """Return the target's series now. Raises SourceError."""
        try:
            url = at_full_rate(self.url) if self._demand.full else self.url
            text = self._fetcher.get(url).decode("utf-8", "replace")
        except FetchError as error:
            raise SourceError(self.name, str(error)) from error
        try:
            return parse_exposition(text, self._clock(), self._heads)
        except ValueError as error:
            raise SourceError(self.name, f"not an exposition of metrics: {error}") from error

    def stacks(self, seconds: float) -> str:
        """Return the stacks of threads that were full in the last `seconds`, as folded text. Raises SourceError.

        Unlike `snapshot` it may be called by another thread at the same time.
        """
        with closing(Fetcher(self._fetcher.timeout, self._access)) as fetcher:
            try:
                return fetcher.get(urljoin(self.url, f"/profile?seconds={seconds:.0f}")).decode("utf-8", "replace")
            except FetchError as error:
                raise SourceError(self.name, str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._fetcher.close()


def target_url(target: str, scheme: str = "http") -> str:
    """Return the URL of the metrics of ``HOST:PORT``, or the given URL."""
    return target if "://" in target else f"{scheme}://{target}/metrics"


def at_full_rate(url: str) -> str:
    """Return the URL of an exporter's metrics that also asks for the full rate."""
    return f"{url}{'&' if urlsplit(url).query else '?'}rate=full"


def parse_exposition(text: str, now: float, heads: dict[str, tuple[str, Labels]] | None = None) -> Snapshot:
    """Return the snapshot in a text in Prometheus' format. Raises ValueError.

    `heads` remembers the series from one text to the next, and begins anew when most of them no longer come.
    """
    heads = {} if heads is None else heads
    values: dict[str, dict[Labels, float]] = {}
    last, series = "", dict[Labels, float]()
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        # Nearly all lines are a known head, a space and a value.
        head, _, value = line.rpartition(" ")
        if (known := heads.get(head)) is None:
            if line.isspace():
                continue
            head, (value, *_) = split_sample(line)
            if (known := heads.get(head)) is None:
                if len(heads) >= MAX_HEADS:
                    heads.clear()
                known = heads[head] = parse_head(head)
        name, labels = known
        if name != last:
            last, series = name, values.setdefault(name, {})
        series[labels] = float(value)
    found = Snapshot(now, values)
    if len(heads) > most_heads(_size(found)):
        heads.clear()
    return found


class PrometheusSource:
    """The hosts that a Prometheus server scrapes, each under its label ``instance``, with the times of its samples.

    `leave_out` says which of them belong to another source. If `names` is given, only these metrics are queried, and
    those of `steady` not with every scrape: in between they are as they were. Each sample is queried once: when a
    host's `CLOCK` shows that the server has scraped it again.
    """

    def __init__(
        self,
        url: str,
        leave_out: Callable[[str], bool] = lambda instance: False,
        timeout: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        names: Collection[str] = (),
        steady: Collection[str] = (),
        access: HttpAccess | None = None,
    ) -> None:
        self.name = url
        self._wanted = _named({*names, CLOCK}) if names else f'__name__=~"{OWN}.+"'
        self._unsteady = _named({*names, CLOCK}.difference(steady))
        """The same without the steady metrics."""
        self._steady = frozenset(steady)
        self._whole: dict[str, float] = {}
        """When each host's steady metrics were last queried: the time of that scrape."""
        self._clock = clock
        self._intervals: dict[str, float] = {}
        """Seconds between the scrapes of each host."""
        self._counted: float | None = None
        """When scrapes were last counted, by the clock."""
        self.problems: Mapping[str, str] = {}
        self._leave_out = leave_out
        self._fetcher = Fetcher(timeout, access)
        self._names = {metric.name: metric.labels for metric in EXPORTER}
        self._seen: dict[str, float] = {}
        """When each host was last found, by the clock."""
        self._hosts: dict[str, Snapshot] = {}
        self._partial: set[str] = set()
        """Hosts that had fewer series than before in the last query."""
        self._most = most_heads(0)
        self._heads: dict[bytes, tuple[str, str, Labels]] = {}
        """Host, name and labels of a series, by the server's text of it."""

    def snapshots(self) -> Snapshots:
        """Return the newest samples of each host. Raises SourceError."""
        try:
            found = self._newest()
        except PrometheusError as error:
            reason = str(error).removeprefix(f"{self.name}: ")
            raise SourceError(
                self.name, f"{reason}; a server's address is needed, such as http://127.0.0.1:9090"
            ) from error
        if not found and not self._seen:
            raise SourceError(
                self.name,
                f"has no series of Pinchpoint in its last {self._recent:g} s: it should scrape the exporters every 5 s "
                "or faster, see compose/prometheus.yml",
            )
        self._seen = known_hosts(self._seen, found, self._clock())
        self.problems = {
            host: f"Prometheus at {self.name} has no samples of the last {self._lasts(host, LOST_AFTER_SECONDS):g} s"
            for host in self._seen
            if host not in found and not self._leave_out(host)
        }
        self._hosts = found
        self._most = most_heads(sum(map(_size, found.values())))
        return found

    def _newest(self) -> dict[str, Snapshot]:
        """Return the hosts of the server. Raises PrometheusError."""
        if self._counted is None or self._clock() - self._counted >= COUNT_INTERVAL_SECONDS:
            self._count()
        scraped: dict[str, float] = {}
        for host, samples in self._clocks(self._recent):
            if not self._leave_out(host):
                at, _ = samples[-1]
                scraped[host] = max(at, scraped.get(host, at))
        last = max(scraped.values(), default=0.0)
        scraped = {host: at for host, at in scraped.items() if last - at <= self._lasts(host, LOST_AFTER_SECONDS)}
        known = {host: self._hosts[host] for host in scraped if host in self._hosts}
        new = {host: at for host, at in scraped.items() if host not in known or at > known[host].time}
        whole, others = list[str](), list[str]()
        for host, at in new.items():
            (whole if host not in known or self._is_due(host, at) else others).append(host)
        found: dict[str, Snapshot] = {}
        for hosts in _groups(whole):
            found |= self._scrapes(self._wanted, hosts, [new[host] for host in hosts])
        for hosts in _groups(others):
            changed = self._scrapes(self._unsteady, hosts, [new[host] for host in hosts])
            found |= {host: self._completed(known[host], changed[host]) for host in hosts if host in changed}
        # With remote write a scrape may arrive in parts: a host that seems to have lost series is queried again.
        partial = {
            host
            for host, snapshot in found.items()
            if host in known and host not in self._partial and _size(snapshot) < _size(known[host])
        }
        self._partial = partial
        # The first scrape of a host may be a part, so its second one is queried as a whole too.
        taken = {host: found[host].time for host in whole if host in found and host in known and host not in partial}
        self._whole = {host: at for host, at in self._whole.items() if host in scraped} | taken
        return known | {host: snapshot for host, snapshot in found.items() if host in new and host not in partial}

    def _is_due(self, host: str, at: float) -> bool:
        """Return whether to query the steady metrics of a host's scrape too."""
        return not self._steady or at - self._whole.get(host, float("-inf")) >= STEADY_INTERVAL_SECONDS

    def _completed(self, known: Snapshot, snapshot: Snapshot) -> Snapshot:
        """Return a host's snapshot with the steady metrics of the one before."""
        steady = {name: series for name, series in known.values.items() if name in self._steady}
        return msgspec.structs.replace(snapshot, values={**steady, **snapshot.values})

    def _scrapes(self, wanted: str, hosts: Sequence[str], times: Sequence[float]) -> dict[str, Snapshot]:
        """Return what hosts reported when they were scraped at these Unix times, or since. Raises PrometheusError."""
        newest: dict[str, float] = {}
        instances = json.dumps("|".join(SPECIAL.sub(r"\\\g<0>", host) for host in hosts), ensure_ascii=False)
        selector = f"{{{wanted},{INSTANCE}=~{instances}}}"
        found: dict[str, dict[str, dict[Labels, float]]] = {}
        seconds = max(times) - min(times) + MILLISECOND
        for series in raw_series(self._fetcher, self.name, selector, seconds, max(times)):
            host, name, labels = self._heads.get(bytes(series.metric)) or self._head(series)
            at, text = series.values[-1]
            if (known := newest.get(host)) != at:
                # All series of one scrape have the same time: an older one has ended since.
                if known is not None and at < known:
                    continue
                newest[host], found[host] = at, {}
            values = found[host]
            if name not in values:
                values[name] = {}
            try:
                values[name][labels] = float(text)
            except ValueError as error:
                raise PrometheusError(f"{self.name}: {name} has the value {text!r}") from error
        return {
            host: Snapshot(newest[host], values, self._lasts(host, STALE_SECONDS)) for host, values in found.items()
        }

    def _count(self) -> None:
        """Determine how often each host is scraped. Raises PrometheusError."""
        intervals = {}
        for host, samples in self._clocks(COUNTED_SECONDS):
            if len(samples) > 1:
                gaps = [later - earlier for (earlier, _), (later, _) in pairwise(samples)]
                intervals[host] = min(COUNTED_SECONDS, statistics.median(gaps))
        self._intervals, self._counted = intervals, self._clock()

    def _lasts(self, host: str, least: float) -> float:
        """Return for how many seconds a scrape of a host counts, `least` or more; a new host counts as the slowest."""
        return max(least, LOST_AFTER_SCRAPES * (self._intervals.get(host) or self._slowest))

    @property
    def _recent(self) -> float:
        """Seconds within which each healthy host was scraped."""
        return max(LOST_AFTER_SECONDS, LOST_AFTER_SCRAPES * self._slowest)

    @property
    def _slowest(self) -> float:
        """The longest interval between scrapes, in seconds."""
        return max(self._intervals.values(), default=0.0)

    def _clocks(self, seconds: float) -> Iterator[tuple[str, list[tuple[float, str]]]]:
        """Yield the samples of each host's clock, from the last seconds. Raises PrometheusError."""
        for series in raw_series(self._fetcher, self.name, CLOCKS, seconds):
            host, _, _ = self._heads.get(bytes(series.metric)) or self._head(series)
            yield host, series.values

    def _head(self, series: RawSeries) -> tuple[str, str, Labels]:
        """Return the host of a series, its name, and the labels that the exporter gave; from now on it is remembered.

        Prometheus adds labels, and renames conflicting ones: see ``honor_labels`` in its configuration. Raises
        PrometheusError.
        """
        try:
            labels = series.labels()
        except ValueError as error:
            raise PrometheusError(f"{self.name}: no answer of a Prometheus server: {error}") from error
        name = labels.get("__name__", "")
        if (own := self._names.get(name)) is None:
            own = tuple(label for label in labels if label not in ("__name__", INSTANCE, "job"))
        given = ((label, labels.get(f"exported_{label}", labels.get(label))) for label in own)
        kept = tuple(sorted((label, value) for label, value in given if value is not None))
        if len(self._heads) >= self._most:
            self._heads.clear()
        # Interned, two of a name are one object, which is found faster.
        head = self._heads[bytes(series.metric)] = sys.intern(labels.get(INSTANCE, "")), sys.intern(name), kept
        return head

    def close(self) -> None:
        """Close the connection."""
        self._fetcher.close()


def known_hosts(seen: Mapping[str, float], found: Iterable[str], now: float) -> dict[str, float]:
    """Return when each host was last found, in seconds, without those that have gone; `found` are there now."""
    kept = {host: at for host, at in seen.items() if now - at < FORGET_HOST_SECONDS}
    return kept | dict.fromkeys(found, now)


def _named(names: Iterable[str]) -> str:
    """Return the matcher for our metrics of these names."""
    return f'__name__=~"{OWN}({"|".join(sorted(name.removeprefix(OWN) for name in names))})"'


def _groups(hosts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the hosts of each query: it is part of an address, and its answer has a maximum length."""
    some: list[str] = []
    for host in hosts:
        if len(some) == MAX_GROUP_HOSTS or sum(map(len, some)) + len(host) > MAX_GROUP_CHARACTERS:
            yield some
            some = []
        some.append(host)
    if some:
        yield some


def _size(snapshot: Snapshot) -> int:
    return sum(map(len, snapshot.values.values()))


class RecordingSource:
    """A recording, with a current position in time.

    `warn` is called if it is damaged.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda message: None) -> None:
        """Read the first moment. Raises SourceError if there is none."""
        self.name = str(path)
        self.problems: Mapping[str, str] = {}
        self._moments = read_recording(path, warn)
        self._present: Snapshots = {}
        self._next = self._read()
        if self._next is None:
            raise SourceError(self.name, "has no samples")

    @property
    def time(self) -> float:
        """The position: the time of the current moment, or initially of the first one, in Unix seconds."""
        return time_of(self._present or self._next or {})

    @property
    def ended(self) -> bool:
        """Whether the current moment is the last one."""
        return self._next is None

    def advance(self, until: float) -> Iterator[Snapshots]:
        """Advance to `until`, in Unix seconds, and yield each moment on the way. Raises SourceError."""
        while self._next is not None and time_of(self._next) <= until:
            self._present = self._next
            self._next = self._read()
            yield self._present

    def snapshots(self) -> Snapshots:
        """Return the current moment. Raises SourceError before the first one."""
        if not self._present:
            raise SourceError(self.name, "has not been read yet")
        return self._present

    def _read(self) -> Snapshots | None:
        try:
            return next(self._moments, None)
        except OSError as error:
            raise SourceError(self.name, error.strerror or str(error)) from error
        except ValueError as error:
            raise SourceError(self.name, str(error).removeprefix(f"{self.name}: ")) from error

    def close(self) -> None:
        """Close the file."""
        self._moments = iter(())


@cache
def is_here(target: str, server: str = "") -> bool:
    """Return whether a target (``HOST:PORT`` or a URL) is on this machine: loopback, or the address we connect from.

    If it was named by a `server` (a URL), a loopback address belongs to that machine.
    """
    address = _address(target)
    if address is None:
        return False
    if ip_address(address).is_loopback:
        return is_here(server) if server else True
    return address == _own_address(address)


def _address(target: str) -> str | None:
    """Return the IP address of a target, or None if it has none."""
    try:
        host = urlsplit(target if "://" in target else f"//{target}").hostname
        if not host:
            return None
        return str(socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0][4][0])
    except (OSError, ValueError):
        return None


def _own_address(address: str) -> str | None:
    """Return the address that the kernel would use to reach another one; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return None
