"""The inside of the CephFS metadata servers of this host: cache, journal, requests.

Counters are exported as the daemon has them: after a restart or ``perf reset`` they begin again at 0, as Prometheus
expects of a counter. Names were read in perf dumps of Ceph 14.2.21, 16.2.15, 18.2.7 and 20.2.4, and in the sources of
the last two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec

from pinchpoint import resources
from pinchpoint.ceph import follower
from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.clients import MAX_ANSWER_GAP_SECONDS
from pinchpoint.ceph.follower import DaemonReader
from pinchpoint.ceph.perf import PerfDump
from pinchpoint.ceph.readings import PERF, Messages, Options, asked
from pinchpoint.host.procfs import FormatError
from pinchpoint.metrics import (
    CEPH_MESSAGES,
    CEPH_MESSENGER_SECONDS,
    CEPH_OPTION_DAEMONS,
    MDS_CACHE_BYTES,
    MDS_CACHE_LIMIT_BYTES,
    MDS_CACHE_PEAK_BYTES,
    MDS_CACHE_WARN_BYTES,
    MDS_CAP_THROTTLES,
    MDS_CAPS,
    MDS_CAPS_REVOKED,
    MDS_DIR_COMMITS,
    MDS_DIR_FETCHES,
    MDS_EVICTIONS,
    MDS_FORWARDS,
    MDS_INODES,
    MDS_INODES_EXPORTED,
    MDS_INODES_IMPORTED,
    MDS_INODES_PINNED,
    MDS_INODES_WITH_CAPS,
    MDS_JOURNAL_WRITE_SECONDS,
    MDS_JOURNAL_WRITES,
    MDS_LOG_EVENTS,
    MDS_LOG_SEGMENTS,
    MDS_LOG_SEGMENTS_ADDED,
    MDS_LOG_SEGMENTS_LIMIT,
    MDS_LOG_SEGMENTS_TRIMMED,
    MDS_LOG_SEGMENTS_WARN,
    MDS_OSD_OPS_IN_FLIGHT,
    MDS_PURGES,
    MDS_PURGES_QUEUED,
    MDS_QUEUE_REQUESTS,
    MDS_RANK_HELD,
    MDS_REPLIES,
    MDS_REPLY_SECONDS,
    MDS_REQUESTS,
    MDS_SESSIONS,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_SATURATED_SECONDS,
)
from pinchpoint.model import Metric, Point
from pinchpoint.probes.daemon import DaemonProbe
from pinchpoint.resources import Resource
from pinchpoint.threads.roles import Roles
from pinchpoint.typedjson import decoder

__all__ = ["Mds", "MdsReader", "parse_cache_bytes"]


class _Source(NamedTuple):
    """Where a metric comes from: the first of the counters that this release has."""

    metric: Metric
    logger: str
    counters: tuple[str, ...]


VALUES = (
    _Source(MDS_LOG_SEGMENTS, "mds_log", ("seg",)),
    _Source(MDS_LOG_SEGMENTS_ADDED, "mds_log", ("segadd",)),
    _Source(MDS_LOG_SEGMENTS_TRIMMED, "mds_log", ("segtrm",)),
    _Source(MDS_LOG_EVENTS, "mds_log", ("evadd",)),
    _Source(MDS_INODES, "mds", ("inodes",)),
    _Source(MDS_INODES_WITH_CAPS, "mds", ("inodes_with_caps",)),
    _Source(MDS_INODES_PINNED, "mds", ("inodes_pinned",)),
    _Source(MDS_CAPS, "mds", ("caps",)),
    _Source(MDS_SESSIONS, "mds_sessions", ("session_count",)),
    _Source(MDS_REQUESTS, "mds", ("request",)),
    _Source(MDS_REPLIES, "mds", ("reply",)),
    _Source(MDS_CAPS_REVOKED, "mds", ("ceph_cap_op_revoke",)),
    _Source(MDS_OSD_OPS_IN_FLIGHT, "objecter", ("op_active",)),
    _Source(MDS_FORWARDS, "mds", ("forward",)),
    _Source(MDS_INODES_EXPORTED, "mds", ("exported_inodes",)),
    _Source(MDS_INODES_IMPORTED, "mds", ("imported_inodes",)),
    _Source(MDS_DIR_COMMITS, "mds", ("dir_commit",)),
    _Source(MDS_CAP_THROTTLES, "mds_server", ("cap_acquisition_throttle",)),
    _Source(MDS_PURGES, "purge_queue", ("pq_executing",)),
    _Source(MDS_PURGES_QUEUED, "purge_queue", ("pq_item_in_journal",)),
)
SUMS = (
    # All fetches up to 17; later those of whole directories and those of single keys (src/mds/MDSRank.cc).
    (MDS_DIR_FETCHES, (("mds", "dir_fetch"), ("mds", "dir_fetch_complete"), ("mds", "dir_fetch_keys"))),
    # Late in releasing capabilities (src/mds/Server.cc); too large in the session table (src/mds/SessionMap.cc).
    (MDS_EVICTIONS, (("mds_server", "cap_revoke_eviction"), ("mds_sessions", "mdthresh_evicted"))),
)

MEMPOOLS = Question("dump_mempools")
CACHE_OPTION = "mds_cache_memory_limit"
HEALTH_OPTION = "mds_health_cache_threshold"
SEGMENTS_OPTION = "mds_log_max_segments"
WARN_OPTION = "mds_log_warn_factor"
OPTIONS = asked((CACHE_OPTION, HEALTH_OPTION, SEGMENTS_OPTION, WARN_OPTION), every=5.0) + asked(
    (
        "mds_cache_reservation",
        "mds_cache_trim_threshold",
        "mds_cache_trim_decay_rate",
        "mds_max_caps_per_client",
        "mds_recall_max_caps",
        "mds_recall_max_decay_threshold",
        "mds_recall_max_decay_rate",
        "mds_recall_warning_threshold",
        "mds_session_cap_acquisition_throttle",
        "mds_cap_revoke_eviction_timeout",
        "mds_log_events_per_segment",
        "mds_log_minor_segments_per_major_segment",
        "mds_log_max_events",
        "mds_bal_interval",
        "mds_bal_split_size",
        "mds_bal_fragment_size_max",
        "mds_op_complaint_time",
        "objecter_inflight_ops",
        "ms_async_op_threads",
    )
)

FULL_CACHE_SHARE = 0.9
"""Share of its limit from which the cache counts as full; the MDS trims from 0.95 on (mds_cache_reservation)."""


class _Pool(msgspec.Struct):
    bytes: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None


class _Pools(msgspec.Struct):
    mds_co: _Pool | None = None


class _Mempool(msgspec.Struct):
    by_pool: _Pools | None = None


class _Mempools(msgspec.Struct):
    mempool: _Mempool | None = None


DECODER = decoder(_Mempools)


def parse_cache_bytes(raw: bytes) -> int | None:
    """Return the size of the cache from an answer to ``dump_mempools``, None where there is none. Raises FormatError.

    It is the pool that MDCache::cache_size (src/mds/MDCache.h, Ceph 14 to 20) compares with the limit, and can be
    asked for without mds_lock, unlike ``cache status``. ``mds_mem.heap`` is not a measure: the heap never shrinks.
    """
    try:
        pools = DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not an answer to dump_mempools: {error}") from error
    pool = pools.mempool and pools.mempool.by_pool and pools.mempool.by_pool.mds_co
    return pool.bytes if pool else None


class MdsReader(DaemonReader):
    """What one MDS reports."""

    questions = (PERF, MEMPOOLS, *OPTIONS)

    def __init__(self, roles: Roles) -> None:
        self._resource = Resource("mds_cache", "", roles.serves["mds_cache"], roles.thresholds["mds_cache"])
        self.options = Options(self.questions)
        self._messages = Messages()
        self._values: dict[Metric, float] = {}
        self._held = False
        self._peak = 0.0
        self._queued = False
        self._looked: tuple[float, float] | None = None

    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        """Take the answers of one round. Raises FormatError."""
        self.options.take(answers)
        raw = answers.get(PERF.key)
        if raw is None:
            return
        dump = PerfDump.parse(raw)
        self._messages.take(dump)
        # An MDS makes its loggers when it gets a rank (MDSRank::create_logger): a standby has none of them.
        self._held = bool(dump.loggers("mds"))
        self._values = self._read(dump) if self._held else {}
        if self._held and (raw := answers.get(MEMPOOLS.key)) is not None:
            self._take_cache(parse_cache_bytes(raw))
        self._look(now)

    def _read(self, dump: PerfDump) -> dict[Metric, float]:
        values = {}
        for metric, logger, counters in VALUES:
            if (value := dump.value(logger, *counters)) is not None:
                values[metric] = value
        for metric, parts in SUMS:
            found = [value for logger, counter in parts if (value := dump.value(logger, counter)) is not None]
            if found:
                values[metric] = sum(found)
        if (reply := dump.average("mds", "reply_latency")) is not None:
            values[MDS_REPLY_SECONDS] = reply.total
        if (flush := dump.average("mds_log", "jlat")) is not None:
            values[MDS_JOURNAL_WRITES], values[MDS_JOURNAL_WRITE_SECONDS] = flush
        # Only the balancer's heartbeat sets it (MDBalancer::send_heartbeat), and since Reef there is none without
        # balance_automate: if it was always 0, perhaps nothing sets it.
        queue = dump.value("mds", "q")
        self._queued = self._queued or bool(queue)
        if queue is not None and self._queued:
            values[MDS_QUEUE_REQUESTS] = queue
        return values

    def _take_cache(self, size: int | None) -> None:
        if size is not None:
            self._values[MDS_CACHE_BYTES] = size
            self._peak = self._values[MDS_CACHE_PEAK_BYTES] = max(self._peak, size)

    def _look(self, now: float) -> None:
        """Charge the time since the last look to the cache, if requests wait for the cache.

        Fill alone costs nothing: a cache at 8 times its limit that never read a directory did 1,030 operations a
        second. Reads of a filling cache don't count: they are necessary. A full one reads again what it dropped.
        """
        fetches = self._values.get(MDS_DIR_FETCHES)
        before, self._looked = self._looked, None if fetches is None else (now, fetches)
        size, limit = self._values.get(MDS_CACHE_BYTES), self.options.limit(CACHE_OPTION)
        if before is None or fetches is None or size is None or limit is None:
            return
        elapsed = now - before[0]
        if not 0 < elapsed <= MAX_ANSWER_GAP_SECONDS:
            return
        waits = (
            size > FULL_CACHE_SHARE * limit and fetches > before[1] and self._values.get(MDS_OSD_OPS_IN_FLIGHT, 0) > 0
        )
        self._resource.add(elapsed, elapsed if waits else 0.0)

    def points(self, daemon: str) -> Iterator[Point]:
        """Yield the present value of every series that this release and this state of the MDS have."""
        yield MDS_RANK_HELD.point(float(self._held), daemon)
        yield from self._messages.points(daemon)
        if not self._held:
            return
        for metric, value in self._values.items():
            yield metric.point(value, daemon)
        for option, limit, factor, warn in (
            (CACHE_OPTION, MDS_CACHE_LIMIT_BYTES, HEALTH_OPTION, MDS_CACHE_WARN_BYTES),
            (SEGMENTS_OPTION, MDS_LOG_SEGMENTS_LIMIT, WARN_OPTION, MDS_LOG_SEGMENTS_WARN),
        ):
            if (number := self.options.limit(option)) is not None:
                yield limit.point(number, daemon)
                if (share := self.options.limit(factor)) is not None:
                    yield warn.point(number * share, daemon)
        self._resource.owner = daemon
        yield from resources.points((self._resource,))


class Mds(DaemonProbe):
    """Every MDS of this host, through its admin socket."""

    name = "mds"
    classes = ("ceph-mds",)
    metrics = (
        MDS_RANK_HELD,
        MDS_CACHE_BYTES,
        MDS_CACHE_LIMIT_BYTES,
        MDS_CACHE_WARN_BYTES,
        MDS_CACHE_PEAK_BYTES,
        MDS_LOG_SEGMENTS_LIMIT,
        MDS_LOG_SEGMENTS_WARN,
        *(source.metric for source in VALUES),
        *(metric for metric, _ in SUMS),
        MDS_JOURNAL_WRITE_SECONDS,
        MDS_JOURNAL_WRITES,
        MDS_REPLY_SECONDS,
        MDS_QUEUE_REQUESTS,
        CEPH_OPTION_DAEMONS,
        CEPH_MESSAGES,
        CEPH_MESSENGER_SECONDS,
        *follower.METRICS,
        RESOURCE_BUSY_SECONDS,
        RESOURCE_SATURATED_SECONDS,
    )

    def reader(self) -> MdsReader:
        """Return a reader for one more daemon."""
        return MdsReader(self.host.roles)
