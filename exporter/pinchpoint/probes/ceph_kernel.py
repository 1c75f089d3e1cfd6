"""The kernel's own Ceph clients, CephFS mounts and RBD devices, as debugfs shows them below ``ceph/FSID.clientID/``.

Files and the kernel sources that write them:

- ``osdc``: requests to OSDs (osdc_show, net/ceph/debugfs.c; the first line is the same from Linux 4.14 on);
- ``mdsc``: requests to MDSs, one a line (mdsc_show, fs/ceph/debugfs.c; CephFS only);
- ``metrics/latency`` since Linux 5.16, a table of ``metrics`` since 5.8: number and mean latency of requests;
- ``status`` since Linux 5.11: whether the cluster has shut this client out;
- ``bdi``: a link whose last part is the name of the mount's backing device, which also names writeback threads.

``caps`` is never read: it walks every capability of the mount under the mutexes of its sessions (caps_show). ``osdc``
and ``mdsc`` hold locks while they print the requests in flight, which have no age. Only root may read all this, and
debugfs may not be mounted. Then ``/sys/class/bdi`` and ``/sys/bus/rbd`` still show that there are clients, which are
blind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pinchpoint.ceph import clients
from pinchpoint.ceph.clients import ClientReading, Clients, Instance, Integral, Series
from pinchpoint.expressions import expression
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.procfs import FormatError, decode, read_bytes
from pinchpoint.host.sysfs import read_text
from pinchpoint.metrics import (
    CEPH_CLIENT_BLOCKLISTED,
    CEPH_CLIENT_INFLIGHT_SECONDS,
    CEPH_CLIENT_IO_SECONDS,
    CEPH_CLIENT_IOS,
    CEPH_CLIENT_REQUESTS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.units import MICROSECONDS_PER_SECOND

__all__ = ["CephKernel", "KernelLatency", "RunningSum", "parse_latency", "parse_mdsc", "parse_osdc", "parse_status"]

DIRECTORY = expression(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.client\d{1,19}")
"""Name of a client's directory (ceph_debugfs_client_init, net/ceph/debugfs.c); ``meta`` is not one."""
BDI = expression(r"ceph-\d{1,10}")
"""Name of a CephFS mount's backing device (ceph_setup_bdi, fs/ceph/super.c)."""
RBD = "krbd"
"""All RBD devices of the kernel together; "rbd" is the command of that name."""
MORE = "ceph-more"
MAX_LABELLED_CLIENTS = 64
"""Clients that have a label of their own."""
HEAD_BYTES = 4096
"""Bytes of osdc that are read: the first line says it all."""

DATA = ("read", "write", "copyfrom")
"""Items of the table of latencies that are requests to OSDs (metric_str, fs/ceph/debugfs.c; copyfrom since 5.16)."""
OPERATIONS = ("read", "write", "metadata")


class KernelLatency(NamedTuple):
    """One line of the table of latencies; times in seconds."""

    number: int
    mean: float
    shortest: float
    longest: float


def parse_osdc(raw: bytes) -> int:
    """Return the requests in flight to OSDs from ``osdc``, those without an OSD ("homeless") included.

    Raises FormatError.
    """
    if found := re.match(rb"REQUESTS (\d{1,10}) homeless \d{1,10}\n", raw):
        return int(found[1])
    raise FormatError(f"not an osdc: {raw[:80]!r}")


def parse_mdsc(raw: bytes) -> int:
    """Return the requests in flight to MDSs from ``mdsc``, without those whose caller has its answer already.

    These are marked "(unsafe)": the MDS has answered but not yet written its journal. A line is TID, MDS or why there
    is none, operation, and paths, which may contain a newline. Raises FormatError.
    """
    count = 0
    for number, line in enumerate(raw.split(b"\n")):
        found = re.match(rb"\d{1,20}\t(?:mds-?\d+|\(no (?:request|session)\))\t[^\t]*\t(\(unsafe\))?", line)
        if found:
            count += found[1] is None
        elif not number and raw:
            raise FormatError(f"not an mdsc: {raw[:80]!r}")
    return count


def parse_latency(raw: bytes) -> dict[str, KernelLatency]:
    """Return the table of latencies in ``metrics/latency``, or among the other tables of ``metrics``, by item.

    Its columns are item, total, avg_lat(us), min_lat(us), max_lat(us), stdev(us); damaged lines are left out. Raises
    FormatError where there is no such table.
    """
    found: dict[str, KernelLatency] = {}
    inside = seen = False
    for line in raw.splitlines():
        name, *fields = line.split() or (b"",)
        if name == b"item":
            inside = fields[:4] == [b"total", b"avg_lat(us)", b"min_lat(us)", b"max_lat(us)"]
            seen = seen or inside
        elif inside and len(fields) == 5 and all(field.isdigit() and len(field) <= 19 for field in fields[:4]):
            total, *times = map(int, fields[:4])
            mean, shortest, longest = (time / MICROSECONDS_PER_SECOND for time in times)
            found[decode(name)] = KernelLatency(total, mean, shortest, longest)
    if not seen:
        raise FormatError(f"no table of latencies: {raw[:80]!r}")
    return found


def parse_status(raw: bytes) -> bool:
    """Return whether a mount is blocklisted, from ``status`` (status_show, fs/ceph/debugfs.c). Raises FormatError."""
    if found := re.search(rb"^blocklisted: (true|false)$", raw, re.MULTILINE):
        return found[1] == b"true"
    raise FormatError(f"not a status: {raw[:80]!r}")


class RunningSum:
    """The seconds that all requests took, from their number and their mean.

    The mean is cut to microseconds, so number x mean jumps up and down, by up to a microsecond for each request
    ever made. What was added since the last look can't be less than the shortest latency allows, nor more than the
    longest: within these bounds the sum follows number x mean. Since Linux 5.18 the mean is a running one in whole
    nanoseconds (__update_mean_and_stdev, fs/ceph/metric.c): after n requests it does not see that one took up to n ns
    longer or shorter, which is 1 ms after a million.
    """

    def __init__(self, first: KernelLatency) -> None:
        self.number = first.number
        self.seconds = first.number * first.mean

    def look(self, found: KernelLatency) -> None:
        """Add what happened since the last look."""
        new = max(0, found.number - self.number)
        low, high = self.seconds + new * found.shortest, self.seconds + new * found.longest
        self.seconds = min(max(found.number * found.mean, low), high)
        self.number += new


class _ClientDirectory:
    """One directory of debugfs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inflight = {"osd": Integral(), "mds": Integral()}
        self._sums: dict[str, RunningSum] = {}

    def device(self) -> str:
        """Return the name of a CephFS mount's backing device, "" if it is not a mount, or not completely yet."""
        try:
            return os.path.basename(os.readlink(self.path / "bdi"))
        except OSError:
            return ""

    def read(self, now: float) -> ClientReading:
        """Return what the client says. Raises OSError where it is gone or may not be read, FormatError."""
        inflight = {"osd": float(parse_osdc(read_bytes(self.path / "osdc", HEAD_BYTES)))}
        if (raw := self._optional("mdsc")) is not None:
            inflight["mds"] = float(parse_mdsc(raw))
        counters: dict[Series, float] = {}
        for target, number in inflight.items():
            self._inflight[target].look(now, number)
            counters[CEPH_CLIENT_INFLIGHT_SECONDS, target, ""] = self._inflight[target].seconds
        if (raw := self._optional("metrics/latency", "metrics")) is not None:
            counters |= self._latencies(parse_latency(raw))
        return ClientReading(inflight, counters)

    def blocklisted(self) -> bool | None:
        """Return whether the cluster has shut it out, None if the kernel does not say. Raises FormatError."""
        try:
            raw = self._optional("status")
        except OSError:
            return None
        return None if raw is None else parse_status(raw)

    def _latencies(self, table: Mapping[str, KernelLatency]) -> Iterator[tuple[Series, float]]:
        yield (CEPH_CLIENT_REQUESTS, "osd", ""), sum(table[item].number for item in DATA if item in table)
        for item in OPERATIONS:
            if item not in table:
                continue
            sums = self._sums.setdefault(item, RunningSum(table[item]))
            sums.look(table[item])
            if item == "metadata":
                yield (CEPH_CLIENT_REQUESTS, "mds", ""), sums.number
            yield (CEPH_CLIENT_IOS, item, ""), sums.number
            yield (CEPH_CLIENT_IO_SECONDS, item, ""), sums.seconds

    def _optional(self, *names: str) -> bytes | None:
        """Return the first of the files that this kernel has; an RBD device has fewer than a mount."""
        for name in names:
            try:
                return read_bytes(self.path / name)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
        return None


class CephKernel(Probe):
    """Requests in flight, latencies and blocklisting of the kernel's CephFS mounts and RBD devices."""

    name = "ceph_kernel"
    metrics = (*clients.METRICS, CEPH_CLIENT_BLOCKLISTED)
    capabilities = (Capability.DAC_READ_SEARCH,)

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._debugfs = host.sysfs / "kernel" / "debug" / "ceph"
        self._bdi = host.sysfs / "class" / "bdi"
        self._rbd = host.sysfs / "bus" / "rbd" / "devices"
        self._found: dict[str, _ClientDirectory] = {}
        self._labels: dict[str, str] = {}
        self._blocklisted: dict[str, bool] = {}
        self._errors: list[FormatError] = []
        self._clients = Clients()

    def sample(self, now: float) -> None:
        """Read every client. Raises NotPresent where there are none, FormatError where one writes another format."""
        self._errors, self._blocklisted = [], {}
        self._clients.update(now, self._instances(now))
        if self._errors:
            raise self._errors[0]
        if not self._clients:
            raise NotPresent("the kernel has no CephFS mount and no RBD device")

    def points(self) -> Iterator[Point]:
        """Yield the series of each mount, and of all RBD devices together."""
        yield from self._clients.points()
        for label, blocklisted in self._blocklisted.items():
            yield CEPH_CLIENT_BLOCKLISTED.point(float(blocklisted), label)

    def _instances(self, now: float) -> Iterator[Instance]:
        devices = {name for name in _entries(self._bdi) if BDI.fullmatch(name)}
        images = set(self._images())
        # Every mount gets a new number: labels are free again once nothing is shown under them.
        self._labels = {name: self._labels[name] for name in self._labels if name in devices or name in self._clients}
        names = [name for name in _entries(self._debugfs) if DIRECTORY.fullmatch(name)]
        self._found = {name: self._found.get(name) or _ClientDirectory(self._debugfs / name) for name in names}
        for name, client in self._found.items():
            device = client.device()
            if BDI.fullmatch(device):
                label = self._label(device)
            elif name in images:
                label = RBD
            else:
                continue  # an incomplete mount, or an RBD device that is being removed
            devices.discard(device)
            images.discard(name)
            yield from self._read(now, name, label)
        for device in sorted(devices):
            yield Instance(device, self._label(device), None)
        for image in images:
            yield Instance(image, RBD, None)

    def _read(self, now: float, name: str, label: str) -> Iterator[Instance]:
        client = self._found[name]
        reading = None
        try:
            reading = client.read(now)
            if (blocklisted := client.blocklisted()) is not None:
                self._blocklisted[label] = blocklisted or self._blocklisted.get(label, False)
        except (FileNotFoundError, NotADirectoryError):
            return  # it is gone
        except FormatError as error:
            self._errors.append(error)
        except OSError:
            pass
        yield Instance(name, label, reading, name.partition(".")[0])

    def _images(self) -> Iterator[str]:
        """Yield the directory in debugfs of each RBD device's client; devices may share one.

        Both files are written by drivers/block/rbd.c (rbd_cluster_fsid_show, rbd_client_id_show).
        """
        for device in _entries(self._rbd):
            cluster = read_text(self._rbd / device / "cluster_fsid")
            client = read_text(self._rbd / device / "client_id")
            if cluster and client:
                yield f"{cluster}.{client}"

    def _label(self, device: str) -> str:
        """Return the label of a mount: `MAX_LABELLED_CLIENTS` of them have the name of their backing device."""
        if device not in self._labels:
            own = sum(label != MORE for label in self._labels.values())
            self._labels[device] = device if own < MAX_LABELLED_CLIENTS else MORE
        return self._labels[device]


def _entries(directory: Path) -> list[str]:
    """Return the names in a directory, none where it is not there or may not be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
