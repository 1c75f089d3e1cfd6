"""The inside of the OSDs of this host: operations, BlueStore's commits, throttles, placement groups.

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
from pinchpoint.ceph.follower import DaemonReader
from pinchpoint.ceph.perf import PerfDump
from pinchpoint.ceph.readings import PERF, Messages, Options, asked
from pinchpoint.expressions import expression
from pinchpoint.host.procfs import FormatError
from pinchpoint.metrics import (
    CEPH_MESSAGES,
    CEPH_MESSENGER_SECONDS,
    CEPH_OPTION_DAEMONS,
    OSD_ALLOCATION_FALLBACKS,
    OSD_BLUEFS_USED_BYTES,
    OSD_COMPACTIONS,
    OSD_FINISHER_QUEUE,
    OSD_FRAGMENTATION_RATIO,
    OSD_KV_COMMIT_SECONDS,
    OSD_KV_FLUSH_SECONDS,
    OSD_KV_SYNC_SECONDS,
    OSD_KV_SYNCS,
    OSD_ONODE_LOOKUPS,
    OSD_OP_QUEUE_SECONDS,
    OSD_OP_SECONDS,
    OSD_OPS,
    OSD_OPS_IN_FLIGHT,
    OSD_PGS,
    OSD_QUEUED_REQUESTS,
    OSD_RECOVERY_OPS,
    OSD_ROCKSDB_DELAY_SECONDS,
    OSD_ROCKSDB_SYNC_SECONDS,
    OSD_SLOW_OPS,
    OSD_SLOW_STORE_OP_AGE_SECONDS,
    OSD_SLOW_STORE_OPS,
    OSD_STEP_SECONDS,
    OSD_STEPS,
    OSD_THROTTLE_FILL_RATIO,
    OSD_THROTTLE_WAIT_SECONDS,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_SATURATED_SECONDS,
)
from pinchpoint.model import Metric, Point
from pinchpoint.probes.daemon import DaemonProbe
from pinchpoint.resources import Resource, all_resources
from pinchpoint.threads.roles import Roles
from pinchpoint.typedjson import decoder

__all__ = ["Osd", "OsdReader", "parse_blocked_ops", "throttle_name"]


OP_TYPES = (("read", "op_r", "op_r_latency"), ("write", "op_w", "op_w_latency"), ("rw", "op_rw", "op_rw_latency"))
PG_ROLES = (("primary", "numpg_primary"), ("replica", "numpg_replica"), ("stray", "numpg_stray"))
THROTTLES = frozenset(
    {
        "bluestore_throttle_bytes",
        "bluestore_throttle_deferred_bytes",
        "osd_client_bytes",
        "osd_client_messages",
        "objecter_bytes",
        "objecter_ops",
        "msgr_dispatch_throttler-client",
        "msgr_dispatch_throttler-cluster",
        "msgr_dispatch_throttler-ms_objecter",
    }
)
"""The throttles that are shown; the others of an OSD are those of its heartbeats."""
ADDRESS = expression(r"-0x[0-9a-f]+")
"""End of the name of a throttle that a process has several times, in some loggers (src/osdc/Journaler.h)."""

TOLD_SECONDS = 2.5
"""Seconds for which commits that were full count as full: two looks, and a half of one for a late sample."""

UNTRACKED = b"op_tracker tracking is not enabled"
"""An answer without osd_enable_op_tracker, up to Ceph 14 (OSD::asok_command, src/osd/OSD.cc); an error since."""


class _KvPart(NamedTuple):
    """A part of a commit, and its counter."""

    metric: Metric
    counter: str


KV_PARTS = (
    _KvPart(OSD_KV_SYNC_SECONDS, "kv_sync_lat"),
    _KvPart(OSD_KV_FLUSH_SECONDS, "kv_flush_lat"),
    _KvPart(OSD_KV_COMMIT_SECONDS, "kv_commit_lat"),
)


class _Step(NamedTuple):
    """A step of an operation, and where its time is counted: the sum of counters that follow each other."""

    name: str
    logger: str
    counters: tuple[tuple[str, ...], ...]
    """Each by its names in different releases; occurrences are those of the last."""


STEPS = (
    # OSD::enqueue_op and dequeue_op (src/osd/OSD.cc), PrimaryLogPG::log_op_stats and do_op (src/osd/PrimaryLogPG.cc).
    _Step("receive", "osd", (("op_before_queue_op_lat",),)),
    _Step("write_process", "osd", (("op_w_process_latency",),)),
    _Step("write_prepare", "osd", (("op_w_prepare_latency",),)),
    _Step("read_process", "osd", (("op_r_process_latency",),)),
    _Step("replica_write", "osd", (("subop_w_latency",),)),
    # The states of a transaction follow each other without a gap (BlueStore::_txc_state_proc, src/os/bluestore).
    _Step("throttle", "bluestore", (("txc_throttle_lat", "throttle_lat"),)),
    _Step("store_prepare", "bluestore", (("state_prepare_lat",),)),
    _Step("data_write", "bluestore", (("state_aio_wait_lat",),)),
    _Step("kv_queue", "bluestore", (("state_io_done_lat",), ("state_kv_queued_lat",))),
    _Step("kv_commit", "bluestore", (("state_kv_commiting_lat",),)),
    _Step("deferred", "bluestore", (("state_deferred_queued_lat",), ("state_deferred_aio_wait_lat",))),
    # BlueStore::_do_read; RocksDBStore::get (src/kv/RocksDBStore.cc), which also has the time of read_onode_meta_lat.
    _Step("read_data", "bluestore", (("read_wait_aio_lat",),)),
    _Step("rocksdb_get", "rocksdb", (("get_latency",),)),
)


class _Count(NamedTuple):
    """A number, and its counter."""

    metric: Metric
    label: str
    logger: str
    counters: tuple[str, ...]


COUNTS = (
    _Count(OSD_ONODE_LOOKUPS, "hit", "bluestore", ("onode_hits", "bluestore_onode_hits")),
    _Count(OSD_ONODE_LOOKUPS, "miss", "bluestore", ("onode_misses", "bluestore_onode_misses")),
    _Count(OSD_COMPACTIONS, "queued", "rocksdb", ("compact_queue_len",)),
    _Count(OSD_COMPACTIONS, "running", "rocksdb", ("compact_running",)),
    _Count(OSD_BLUEFS_USED_BYTES, "db", "bluefs", ("db_used_bytes",)),
    _Count(OSD_BLUEFS_USED_BYTES, "slow", "bluefs", ("slow_used_bytes",)),
    _Count(OSD_ALLOCATION_FALLBACKS, "", "bluefs", ("alloc_slow_fallback",)),
    _Count(OSD_RECOVERY_OPS, "", "osd", ("recovery_ops",)),
)

SLOW = (
    "slow_aio_wait_count",
    "slow_committed_kv_count",
    "slow_read_onode_meta_count",
    "slow_read_wait_aio_count",
)
"""BlueStore::log_latency (src/os/bluestore/BlueStore.cc), since Ceph 18."""

BLOCKED = Question("dump_blocked_ops", every=2.0, limit=16 << 20)
"""679 operations were 0.65 MB. However long it is, it costs little to read: see `parse_blocked_ops`."""
KEEP_BLOCKED_SECONDS = 3 * BLOCKED.every
"""Seconds for which the last answer holds; there is none while osd_enable_op_tracker is off."""
OPTIONS = asked(
    (
        "osd_op_num_shards",
        "osd_op_num_shards_hdd",
        "osd_op_num_shards_ssd",
        "osd_op_num_threads_per_shard",
        "osd_op_num_threads_per_shard_hdd",
        "osd_op_num_threads_per_shard_ssd",
        "osd_op_queue",
        "osd_mclock_profile",
        "osd_mclock_max_capacity_iops_hdd",
        "osd_mclock_max_capacity_iops_ssd",
        "osd_max_backfills",
        "osd_memory_target",
        "osd_client_message_cap",
        "osd_client_message_size_cap",
        "osd_op_complaint_time",
        "osd_objectstore",
        "bluestore_cache_autotune",
        "bluestore_cache_size",
        "bluestore_cache_size_hdd",
        "bluestore_cache_size_ssd",
        "bluestore_throttle_bytes",
        "bluestore_throttle_deferred_bytes",
        "bluestore_prefer_deferred_size",
        "bluestore_prefer_deferred_size_hdd",
        "bluestore_prefer_deferred_size_ssd",
        "bluestore_compression_mode",
        "bluefs_buffered_io",
        "ms_async_op_threads",
    )
)

MAX_OWED_SECONDS = 60.0
"""Seconds of commits that are kept until they can be charged."""


class _BlockedOps(msgspec.Struct):
    num_blocked_ops: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None


DECODER = decoder(_BlockedOps)


def parse_blocked_ops(raw: bytes) -> int | None:
    """Return the number in an answer to ``dump_blocked_ops``, None where there is none. Raises FormatError.

    The answer lists the operations too, 1.3 KB each, which are skipped. It is made without the locks of the OSD and of
    placement groups: only those of the tracker and of each operation are held
    (``OpTracker::dump_ops_in_flight``, src/common/TrackedOp.cc; Ceph 18.2.7 and 20.2.4).
    """
    if raw.startswith(UNTRACKED):
        return None
    try:
        return DECODER.decode(raw).num_blocked_ops
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not an answer to dump_blocked_ops: {error}") from error


def throttle_name(logger: str) -> str:
    """Return the name of a throttle without the address that distinguishes several in a process."""
    return ADDRESS.sub("", logger.removeprefix("throttle-"))


class OsdReader(DaemonReader):
    """What one OSD reports."""

    questions = (PERF, BLOCKED, *OPTIONS)

    def __init__(self, roles: Roles) -> None:
        self._resource = Resource("kv_commit", "", roles.serves["kv_commit"], roles.thresholds["kv_commit"])
        self.options = Options(self.questions)
        self._messages = Messages()
        self._values: dict[tuple[Metric, str], float] = {}
        self._blocked: tuple[float, int] | None = None
        self._synced: tuple[float, float] | None = None
        self._slow: float | None = None
        self._slowed: float | None = None
        self._owed = 0.0
        self.committing = False
        """Whether it did nothing but commit between the last two looks."""

    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        """Take the answers of one round. Raises FormatError."""
        self.options.take(answers)
        if (raw := answers.get(BLOCKED.key)) is not None and (blocked := parse_blocked_ops(raw)) is not None:
            self._blocked = now, blocked
        elif self._blocked is not None and now - self._blocked[0] > KEEP_BLOCKED_SECONDS:
            self._blocked = None
        if (raw := answers.get(PERF.key)) is None:
            return
        dump = PerfDump.parse(raw)
        self._messages.take(dump)
        self._values = {}
        self._read_ops(dump)
        self._read_throttles(dump)
        self._read_steps(dump)
        self._read_store(dump)
        self._read_slow(now, dump)
        for metric, counter in KV_PARTS:
            if (part := dump.average("bluestore", counter)) is not None:
                self._values[metric, ""] = part.total
                if metric is OSD_KV_SYNC_SECONDS:
                    self._values[OSD_KV_SYNCS, ""] = part.number
                    self._charge(now, part.total)

    def _read_ops(self, dump: PerfDump) -> None:
        for type_, number, latency in OP_TYPES:
            self._set(OSD_OPS, type_, dump.value("osd", number))
            if (took := dump.average("osd", latency)) is not None:
                self._values[OSD_OP_SECONDS, type_] = took.total
        if (queued := dump.average("osd", "op_before_dequeue_op_lat")) is not None:
            self._values[OSD_OP_QUEUE_SECONDS, ""] = queued.total
        self._set(OSD_OPS_IN_FLIGHT, "", dump.value("osd", "op_wip"))
        for role, counter in PG_ROLES:
            self._set(OSD_PGS, role, dump.value("osd", counter))
        waiting = [dump.value(logger, "queue_len") for logger in dump.loggers("finisher-")]
        if known := [number for number in waiting if number is not None]:
            self._values[OSD_FINISHER_QUEUE, ""] = sum(known)

    def _read_throttles(self, dump: PerfDump) -> None:
        for logger in dump.loggers("throttle-"):
            name = throttle_name(logger)
            limit = dump.value(logger, "max")
            if name not in THROTTLES or limit is None or limit < 1:  # 0: no limit
                continue
            if (wait := dump.average(logger, "wait")) is not None:
                self._values[OSD_THROTTLE_WAIT_SECONDS, name] = (
                    self._values.get((OSD_THROTTLE_WAIT_SECONDS, name), 0.0) + wait.total
                )
            if (taken := dump.value(logger, "val")) is not None:
                fill = taken / limit
                self._values[OSD_THROTTLE_FILL_RATIO, name] = max(
                    fill, self._values.get((OSD_THROTTLE_FILL_RATIO, name), fill)
                )

    def _read_steps(self, dump: PerfDump) -> None:
        for step in STEPS:
            parts = [dump.average(step.logger, *names) for names in step.counters]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                self._values[OSD_STEP_SECONDS, step.name] = sum(part.total for part in known)
                self._values[OSD_STEPS, step.name] = known[-1].number

    def _read_store(self, dump: PerfDump) -> None:
        for count in COUNTS:
            self._set(count.metric, count.label, dump.value(count.logger, *count.counters))
        if (sync := dump.average("rocksdb", "submit_sync_latency")) is not None:
            self._values[OSD_ROCKSDB_SYNC_SECONDS, ""] = sync.total
        # Counted only if rocksdb_perf is on; otherwise 0 says nothing.
        if (delay := dump.average("rocksdb", "rocksdb_write_delay_time")) is not None and delay.number > 0:
            self._values[OSD_ROCKSDB_DELAY_SECONDS, ""] = delay.total
        # In thousandths, despite its name (BlueStore::_init_logger and _kv_finalize_thread, src/os/bluestore).
        fragmented = dump.value("bluestore", "fragmentation_micros", "bluestore_fragmentation_micros")
        if fragmented is not None:
            self._values[OSD_FRAGMENTATION_RATIO, ""] = fragmented / 1000
        shards = [dump.value(shard, "mclock_all_type_queue_len") for shard in dump.loggers("mclock-shard-queue-")]
        if known := [queued for queued in shards if queued is not None]:
            self._values[OSD_QUEUED_REQUESTS, ""] = sum(known)

    def _read_slow(self, now: float, dump: PerfDump) -> None:
        """Note when the number of slow steps last rose: Ceph's check BLUESTORE_SLOW_OP_ALERT stays for a day."""
        known = [number for counter in SLOW if (number := dump.value("bluestore", counter)) is not None]
        if not known:
            return
        before, self._slow = self._slow, sum(known)
        if before is not None and self._slow > before:
            self._slowed = now
        self._values[OSD_SLOW_STORE_OPS, ""] = self._slow
        if self._slowed is not None:
            self._values[OSD_SLOW_STORE_OP_AGE_SECONDS, ""] = now - self._slowed

    def _set(self, metric: Metric, label: str, value: float | None) -> None:
        if value is not None:
            self._values[metric, label] = value

    def _charge(self, now: float, total: float) -> None:
        """Charge the time inside commits since the last look to the one thread that does them.

        A commit is counted when it ends: one of 3 s is nothing in two looks and 3 s in the third. No look can be busy
        for longer than it lasted, so the excess is owed, and charged to the next looks. On a disk where every commit
        takes 3 s the sum is right; otherwise a third of it would be lost. After a single one the thread shows as busy
        for as long as the commit took, that much too late.
        """
        before, self._synced = self._synced, (now, total)
        if before is None or now <= before[0]:
            return
        elapsed = now - before[0]
        # Less than before: the counters were reset to 0 (perf reset).
        self._owed = min(MAX_OWED_SECONDS, self._owed + (total - before[1] if total >= before[1] else total))
        busy = min(elapsed, self._owed)
        self._owed -= busy
        self.committing = busy >= self._resource.threshold * elapsed
        self._resource.add(elapsed, busy)

    def points(self, daemon: str) -> Iterator[Point]:
        """Yield the present value of every series that this release has."""
        yield from self._messages.points(daemon)
        for (metric, label), value in self._values.items():
            yield metric.point(value, daemon, label) if label else metric.point(value, daemon)
        if self._blocked is not None:
            yield OSD_SLOW_OPS.point(self._blocked[1], daemon)
        if self._synced is not None:
            self._resource.owner = daemon
            yield from resources.points((self._resource,))


class Osd(DaemonProbe):
    """Every OSD of this host, through its admin socket."""

    name = "osd"
    classes = ("ceph-osd",)
    metrics = (
        OSD_OPS,
        OSD_OP_SECONDS,
        OSD_OP_QUEUE_SECONDS,
        OSD_OPS_IN_FLIGHT,
        OSD_SLOW_OPS,
        OSD_KV_SYNCS,
        *(part.metric for part in KV_PARTS),
        OSD_STEP_SECONDS,
        OSD_STEPS,
        *dict.fromkeys(count.metric for count in COUNTS),
        OSD_FRAGMENTATION_RATIO,
        OSD_SLOW_STORE_OPS,
        OSD_SLOW_STORE_OP_AGE_SECONDS,
        OSD_ROCKSDB_SYNC_SECONDS,
        OSD_ROCKSDB_DELAY_SECONDS,
        OSD_QUEUED_REQUESTS,
        OSD_THROTTLE_WAIT_SECONDS,
        OSD_THROTTLE_FILL_RATIO,
        OSD_FINISHER_QUEUE,
        OSD_PGS,
        CEPH_OPTION_DAEMONS,
        CEPH_MESSAGES,
        CEPH_MESSENGER_SECONDS,
        *follower.METRICS,
        RESOURCE_BUSY_SECONDS,
        RESOURCE_SATURATED_SECONDS,
    )

    def reader(self) -> OsdReader:
        """Return a reader for one more daemon."""
        return OsdReader(self.host.roles)

    def sample(self, now: float) -> None:
        """Look for OSDs, and say whose commits are full. Raises NotPresent where there is none."""
        super().sample(now)
        stage = all_resources()["kv_commit"].inside
        for process, followers in self._followers:
            if any(isinstance(each.reader, OsdReader) and each.reader.committing for each in followers):
                self.host.full.tell(stage, process.owner, now + TOLD_SECONDS)
