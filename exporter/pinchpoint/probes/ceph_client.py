"""Ceph clients in user space, by their admin sockets: ceph-fuse, libcephfs, librbd, librados in any process.

Only ``perf dump`` is asked. ``mds_requests``, ``mds_sessions`` and ``status`` would show more but take the client_lock
of libcephfs (src/client/Client.cc): watching would slow down a busy client, and a stuck one would not answer. So the
number of requests in flight is known for OSDs (objecter.op_active), but not for MDSs: client.lat sums up their seconds
as they end. By Little's law its gain in a second is the mean number in flight, but a request that waits for a minute
shows as 60 when it is over, and as nothing before.

Libraries open an admin socket only where the configuration names one, for instance
``admin_socket = /run/ceph/$cluster-$name.$pid.$cctid.asok`` under ``[client]``; ceph-fuse, a daemon, always does. A
process that has the threads of a Ceph library but no socket is blind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinchpoint.ceph import clients
from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.clients import MAX_ANSWER_GAP_SECONDS, ClientReading, Clients, Instance, Integral, Series
from pinchpoint.ceph.follower import FSID, UNSEEN, DaemonReader, Followers
from pinchpoint.ceph.perf import PerfDump
from pinchpoint.ceph.sockets import is_ceph_client
from pinchpoint.ceph.waiting import FIRST_NEGATIVE_GAUGE
from pinchpoint.host.capabilities import Capability
from pinchpoint.metrics import (
    CEPH_CLIENT_INFLIGHT_SECONDS,
    CEPH_CLIENT_IO_SECONDS,
    CEPH_CLIENT_IOS,
    CEPH_CLIENT_REQUESTS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.threads.roles import BENCHMARK, CEPH_CLIENTS

__all__ = ["CephClient", "ClientReader", "counters", "requests_in_flight"]

CLASSES = CEPH_CLIENTS | {BENCHMARK}
GONE = frozenset({"foreign", "missing", "refused"})
"""Problems of sockets that are not, or no longer, the process' own: a child inherits those of its parent."""


OPERATIONS = {
    "client": {"read": "rdlat", "write": "wrlat", "fsync": "fsync"},
    "librbd": {"read": "rd_latency", "write": "wr_latency", "flush": "flush_latency", "discard": "discard_latency"},
}
"""Counters of the application's operations: Client::_finish_init (src/client/Client.cc), ImageCtx::perf_start
(src/librbd/ImageCtx.cc), Ceph 14 to 19."""


def _loggers(dump: PerfDump, kind: str) -> list[str]:
    """Return the loggers of one kind. A second one has its address appended, librbd's are named after their images.

    The addresses are from PerfCountersCollectionImpl::add (src/common/perf_counters.cc). A persistent write log has a
    logger with counters of the same names, and is not the image (AbstractWriteLog::init, src/librbd/cache/pwl).
    """
    return [
        name
        for name in dump.loggers(kind)
        if (name == kind or name.startswith(f"{kind}-")) and not name.startswith("librbd-pwl-")
    ]


def requests_in_flight(dump: PerfDump) -> float | None:
    """Return the requests in flight to OSDs, None if the process does not say."""
    found = [dump.value(name, "op_active") for name in _loggers(dump, "objecter")]
    known = [value for value in found if value is not None]
    return sum(value for value in known if value < FIRST_NEGATIVE_GAUGE) if known else None


BLOCKED = "write_blocked"
"""Writes that waited for room in the client's own cache: ObjectCacher::perf_start (src/osdc/ObjectCacher.cc)."""


def counters(dump: PerfDump) -> Iterator[tuple[Series, float]]:
    """Yield the counters of a client, by logger."""
    for name in _loggers(dump, "objecter"):
        if (replies := dump.value(name, "op_reply")) is not None:
            yield (CEPH_CLIENT_REQUESTS, "osd", name), replies
    for name in _loggers(dump, "client"):
        if (latency := dump.average(name, "lat")) is not None:
            yield (CEPH_CLIENT_REQUESTS, "mds", name), latency.number
            yield (CEPH_CLIENT_INFLIGHT_SECONDS, "mds", name), latency.total
    for name in _loggers(dump, "objectcacher-libcephfs"):
        number, seconds = dump.value(name, "write_ops_blocked"), dump.value(name, "write_time_blocked")
        if number is not None and seconds is not None:
            yield (CEPH_CLIENT_IOS, BLOCKED, name), number
            yield (CEPH_CLIENT_IO_SECONDS, BLOCKED, name), seconds
    for kind, operations in OPERATIONS.items():
        for name in _loggers(dump, kind):
            for operation, counter in operations.items():
                if (latency := dump.average(name, counter)) is not None:
                    yield (CEPH_CLIENT_IOS, operation, name), latency.number
                    yield (CEPH_CLIENT_IO_SECONDS, operation, name), latency.total


class ClientReader(DaemonReader):
    """What one admin socket of a client says."""

    questions = (Question("perf dump"),)
    identity = (FSID,)
    names = False

    def __init__(self) -> None:
        self.reading = ClientReading({}, {})
        """What the last answer said; to be read under the follower's lock."""
        self._integral = Integral()
        self._last: tuple[float, float] | None = None

    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        """Take a ``perf dump``; `now` is a monotonic time in seconds. Raises FormatError."""
        if (raw := answers.get("perf dump")) is None:
            return
        dump = PerfDump.parse(raw)
        found = dict(counters(dump))
        inflight: dict[str, float] = {}
        if (active := requests_in_flight(dump)) is not None:
            inflight["osd"] = active
            self._integral.look(now, active)
            found[CEPH_CLIENT_INFLIGHT_SECONDS, "osd", ""] = self._integral.seconds
        waited = [
            value
            for (metric, target, _), value in found.items()
            if (metric, target) == (CEPH_CLIENT_INFLIGHT_SECONDS, "mds")
        ]
        if waited:
            if self._last is not None and 0 < now - self._last[0] <= MAX_ANSWER_GAP_SECONDS:
                inflight["mds"] = max(0.0, sum(waited) - self._last[1]) / (now - self._last[0])
            self._last = now, sum(waited)
        self.reading = ClientReading(inflight, found)

    def points(self, daemon: str) -> Iterator[Point]:
        """Yield nothing: the series of a client are sums over its readers, see `CephClient.points`."""
        return iter(())


class CephClient(Probe):
    """Requests in flight, latencies and operations of Ceph clients in user space."""

    name = "ceph_client"
    metrics = clients.METRICS
    capabilities = (Capability.DAC_OVERRIDE, Capability.SYS_PTRACE)

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._followers = Followers(
            host.procfs,
            host.rootfs,
            host.processes,
            CLASSES,
            ClientReader,
            accepts=lambda process: is_ceph_client(host.procfs, process.pid),
            asker=host.clients,
        )
        self._clients = Clients()

    def sample(self, now: float) -> None:
        """Look for clients and add what they did. Raises NotPresent where there are none."""
        self._followers.refresh(now)
        self._clients.update(now, self._instances())
        if not self._clients:
            raise NotPresent("no Ceph client runs in user space")

    def points(self) -> Iterator[Point]:
        """Yield the sums over the instances of each client."""
        return self._clients.points()

    def close(self) -> None:
        """Ask no more."""
        self._followers.close()

    def _instances(self) -> Iterator[Instance]:
        for process, followers in self._followers:
            own = False
            for follower in followers:
                assert isinstance(follower.reader, ClientReader)
                with follower.lock:
                    problem, reading, cluster = follower.problem, follower.reader.reading, follower.cluster
                own = own or problem not in GONE
                if problem == "new":  # neither blind nor known: what it did so far doesn't count
                    yield Instance((follower, problem), process.owner, ClientReading({}, {}))
                elif problem not in GONE | UNSEEN:
                    yield Instance(follower, process.owner, None if problem else reading, cluster)
            if not own:
                yield Instance((process.pid, process.start), process.owner, None)
