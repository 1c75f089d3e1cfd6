"""The OSDs and RADOS: whether they are the limit, by their workers, their commits, their disks, or one OSD alone."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.daemons import (
    HEALTH_COLOURS,
    HEALTH_WORDS,
    MANAGER,
    busy,
    ceph,
    daemon_of_owner,
    full_from,
    health_checks,
    instead,
    of_cluster,
    rate,
)
from dashboards.kit.about import About, board_link
from dashboards.kit.board import board, folded
from dashboards.kit.colours import WAIT_COLOURS, class_colour
from dashboards.kit.over_time import lines, states
from dashboards.kit.panel import Panel
from dashboards.kit.present import numbers
from dashboards.kit.queries import CLUSTER, FULL, HOST, Query, limit_of_alert
from dashboards.kit.tables import Column, rows
from pinchpoint.report.palette import KINDS

OSD = "osd[.].+"
SEEN = "pinchpoint_osd_ops_in_flight"
"""A series of every OSD that the exporter sees."""
SHADE = class_colour("osd_op")
TYPES = {"read": "r", "write": "w", "rw": "rw"}
"""Kinds of operations, and what Ceph's counters call them. An rw operation reads what it changes."""
TYPE_COLOURS = {
    "/read/": WAIT_COLOURS["network"],
    "/write/": WAIT_COLOURS["osd"],
    "/rw/": WAIT_COLOURS["lock"],
}
PG_STATES = (
    "degraded|undersized|remapped|recovering|recovery_wait|backfilling|backfill_wait|backfill_toofull|peering|"
    "activating|incomplete|inconsistent|down|stale|unknown"
)
"""States in which a placement group has fewer copies than it should, moves them, or does not answer."""
OTHER_CHECKS = "MDS_.+|FS_.+"
"""Health checks that the dashboard MDS shows."""
ROLES = 'role!="stray"'
"""A stray group is about to be deleted."""
THROTTLES = 'throttle!~".*objecter.*"'
"""Throttles on what clients and other OSDs send; those on an OSD's own requests to others are left out."""
HOTTEST = 12
WARNED = KINDS["resource"]


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-osd",
        "Pinchpoint / OSD and RADOS",
        "Are the OSDs the limit: their workers, their commits, their disks, or one that is slower than all others? "
        "Figures come from the exporter on the OSDs' hosts; where the chosen hosts have none, from Ceph itself.",
        variables=("cluster", "host", "run", "several"),
    )
    tiles = (groups_now, slow_now, write_now, commit_now, workers_now, operations_now)
    for panel in (*tiles, hottest, health, worst, write_steps, commits, operations, throughput, in_flight):
        made.with_panel(panel())
    made.with_row(folded("Latency", mean(), read_steps(), metadata()))
    made.with_row(folded("Workers and commits", queue(), workers(), commit_time(), database()))
    made.with_row(folded("Network and background work", unsent(), round_trips(), background()))
    made.with_row(folded("Throttles and slow operations", throttle_waits(), throttle_fill(), slow()))
    made.with_row(folded("Placement groups", groups(), balance()))
    return made


def gauge(name: str, *selectors: str) -> str:
    """Return one of the exporter's gauges of the chosen OSDs."""
    return of_cluster(f"pinchpoint_osd_{name}{{{', '.join([*selectors, HOST])}}}")


def change(name: str, *selectors: str) -> str:
    """Return the rate of one of the exporter's counters of the chosen OSDs."""
    return of_cluster(rate(f"pinchpoint_osd_{name}_total", *selectors))


def latency(*selectors: str) -> str:
    """Return the mean time of an operation, by OSD and kind."""
    done = f"({change('ops', *selectors)} > 0)"
    return f"{change('op_seconds', *selectors)} / on (instance, daemon, type) {done}"


def by_type(expr: str) -> str:
    """Return `expr` with each kind of operation in place of TYPE; the label ``type`` names it."""
    parts = (f'label_replace({expr.replace("TYPE", short)}, "type", "{name}", "", "")' for name, short in TYPES.items())
    return " or ".join(parts)


OPS = change("ops")
PGS = f"(sum by (instance, daemon) ({gauge('pgs', ROLES)}) > 0)"
THEIR_OPS = f"({ceph('ceph_osd_op_TYPE_latency_count')} > 0)"
THEIR_LATENCY = f"{ceph('ceph_osd_op_TYPE_latency_sum')} / {THEIR_OPS}"
THEIR_QUEUE = f"({ceph('ceph_osd_op_latency_sum')} - {ceph('ceph_osd_op_process_latency_sum')})"
WORKERS = busy("osd_op", OSD)
COMMITS = busy("kv_sync|kv_commit", OSD)


def groups_now() -> Panel:
    """Return the placement groups that are not clean."""
    about = About(
        "Placement groups that are not clean: a copy is missing or being moved. From the manager, up to 20 s old.",
        "All clean.",
        "Any that is not clean during a run: recovery uses disks and network, so the result is not this cluster's "
        "normal performance.",
        ("ClusterDegradedDuringRun",),
    )
    expr = f"sum(ceph_pg_total{{{CLUSTER}}}) - sum(ceph_pg_clean{{{CLUSTER}}})"
    return numbers(
        "PGs not clean", about, Query(expr, "groups", 5), good={"0": "all clean"}, decimals=0, nothing="not scraped"
    )


def slow_operations() -> tuple[Query, Query]:
    """Return how many operations are stuck."""
    by_daemon = f'max by (cluster, ceph_daemon) (ceph_daemon_health_metrics{{type="SLOW_OPS", {CLUSTER}}})'
    theirs = f"max(ceph_healthcheck_slow_ops{{{CLUSTER}}}) or sum({by_daemon})"
    return Query(f"sum({gauge('slow_ops')})", "operations"), instead(theirs, SEEN, "operations", scrape=5)


def slow_now() -> Panel:
    """Return how many operations are stuck."""
    about = About(
        "Operations older than osd_op_complaint_time (30 s).",
        "None.",
        "Any: a client waits for it, and in an MPI benchmark all ranks wait for that client.",
        ("OsdSlowOps", "DaemonStuck"),
    )
    return numbers("Slow ops", about, *slow_operations(), good={"0": "none"}, decimals=0)


def write_now() -> Panel:
    """Return the OSD whose writes take longest."""
    about = About(
        "The OSD with the slowest writes, and their average time, replicas included.",
        "About as long as on the other OSDs: see Latency, mean.",
        "Several times the mean: that OSD, its disk or its host slows down every phase that uses all OSDs.",
        ("KvSyncSaturated", "DiskSaturated", "OsdSlowOps"),
    )
    writes = latency('type="write"')
    own = f"topk(1, max by (instance, daemon) ({writes}))"
    theirs = f"topk(1, {THEIR_LATENCY.replace('TYPE', 'w')})"
    queries = Query(own, "{{daemon}}"), instead(theirs, SEEN, "{{ceph_daemon}}")
    return numbers("Slowest write", about, *queries, unit="s", name=True)


def commit_now() -> Panel:
    """Return how busy the busiest commit thread is."""
    about = About(
        "How much of the time BlueStore's single commit thread was inside a commit, on a CPU or waiting for one, "
        "on the OSD where it is busiest.",
        "Well below the threshold (dashed in Commits).",
        "Near 100 %: writes on this OSD cannot get faster. Commits shows whether the thread or its device is full.",
        ("KvSyncSaturated",),
    )
    their = f"topk(1, {ceph('ceph_bluestore_kv_sync_lat_sum')})"
    queries = (
        Query(f"topk(1, max by (instance, daemon) ({COMMITS}))", "{{daemon}}"),
        instead(their, SEEN, "{{ceph_daemon}}"),
    )
    return numbers("Busiest commit", about, *queries, unit="percentunit", name=True, full="kv_commit", decimals=0)


def workers_now() -> Panel:
    """Return how busy the busiest operation workers are."""
    about = About(
        "How much of the time the operation workers (tp_osd_tp) were on a CPU or waiting for one: mean over the "
        "workers, on the OSD where they are busiest.",
        "Well below the threshold (dashed in Threads).",
        "Near 100 %: the limit is this OSD's CPU time, not its disk.",
        ("OsdOpThreadsSaturated",),
    )
    return numbers(
        "Busiest workers",
        about,
        Query(f"topk(1, {WORKERS})", "{{daemon}}"),
        unit="percentunit",
        name=True,
        full="osd_op",
        decimals=0,
    )


def operations_now() -> Panel:
    """Return the operations of all clients."""
    about = About(
        "Client operations, all OSDs together, excluding copies between OSDs.",
        "As many as in the best run so far.",
        "Few while latency is low: the OSDs wait for clients, not clients for OSDs.",
        ("InflightCollapsed", "PhaseStalled"),
    )
    return numbers(
        "Operations",
        about,
        Query(f"sum({OPS})", "all OSDs"),
        instead(f"sum({ceph('ceph_osd_op')})", SEEN, "all OSDs"),
        unit="iops",
        sparkline=True,
        decimals=0,
    )


def hottest() -> Panel:
    """Return the busiest OSDs."""
    about = About(
        f"The {HOTTEST} OSDs of the selected hosts with the busiest stage: workers, the commit thread (kv_sync), or "
        "commits that wait for their device; with their disks, operations and placement groups. Without an exporter on "
        "their hosts: the OSDs with the most operations, and their latency.",
        "All OSDs are about equally busy.",
        "One OSD, or the OSDs of one host, far above the rest: a slow disk, a host short of CPUs, or too many "
        "placement groups. Commits and disk both near 100 %: the device is at its limit.",
        ("KvSyncSaturated", "OsdOpThreadsSaturated", "DiskSaturated", "PgImbalance"),
    )
    hot = f"topk({HOTTEST}, max by (instance, daemon) ({busy('osd_op|kv_sync|kv_commit', OSD)}))"

    def column(own: str, theirs: str = "") -> Query:
        found = f"max by (instance, daemon) ({own}) and on (instance, daemon) {hot}"
        if theirs:
            chosen = f"{theirs} and on (cluster, ceph_daemon) topk({HOTTEST}, {ceph('ceph_osd_op')})"
            named = f'label_replace({chosen}, "daemon", "$1", "ceph_daemon", "(?:ceph-)?(.*)")'
            found += f" or ({named} unless on () {of_cluster(f'{SEEN}{{{HOST}}}')})"
        return Query(found, scrape=5)

    disk_time = rate("pinchpoint_resource_busy_seconds_total", 'resource="disk"')
    disks = f"max by (instance, owner) ({disk_time})"
    below = f'pinchpoint_storage_device_info{{owner=~"{OSD}", device!="", {HOST}}}'
    disk = f'{below} * on (instance, device) group_left () label_replace({disks}, "device", "$1", "owner", "(.*)")'
    took = f"sum by (instance, daemon) ({change('op_seconds')}) / (sum by (instance, daemon) ({OPS}) > 0)"
    theirs = f"{ceph('ceph_osd_op_latency_sum')} / ({ceph('ceph_osd_op_latency_count')} > 0)"
    return rows(
        "Hottest OSDs",
        about,
        {
            "hot": Query(hot, scrape=5),
            "workers": column(WORKERS),
            "thread": column(busy("kv_sync", OSD)),
            "commits": column(busy("kv_commit", OSD), ceph("ceph_bluestore_kv_sync_lat_sum")),
            "disk": column(daemon_of_owner(f"max by (instance, owner) ({disk})")),
            "ops": column(f"sum by (instance, daemon) ({OPS})", ceph("ceph_osd_op")),
            "latency": column(took, theirs),
            "queue": column(change("op_queue_seconds"), THEIR_QUEUE),
            "groups": column(PGS, gauge_of_ceph("osd_numpg")),
        },
        {
            "daemon": Column("OSD", link=board_link("threads"), link_title="Threads of the hosts", width=135),
            "instance": Column("on", width=115, several=True),
            "hot": Column("busiest", unit="percentunit", bar=SHADE, decimals=0),
            "workers": Column("workers", unit="percentunit", width=75, decimals=0),
            "thread": Column("kv_sync", unit="percentunit", width=75, decimals=0),
            "commits": Column("commits", unit="percentunit", width=80, decimals=0),
            "disk": Column("disk", unit="percentunit", width=60, decimals=0),
            "ops": Column("operations", unit="iops", width=90, decimals=0),
            "latency": Column("latency", unit="s", width=80),
            "queue": Column("queue", width=65, decimals=1),
            "groups": Column("PGs", width=50, decimals=0),
        },
        size=(18, 9),
        sort="hot",
        nothing="no OSD is seen",
    )


def gauge_of_ceph(name: str) -> str:
    """Return one of Ceph's own gauges, by daemon."""
    return f"max by (cluster, ceph_daemon) (ceph_{name}{{{CLUSTER}}})"


def health() -> Panel:
    """Return Ceph's health checks about OSDs and placement groups."""
    about = About(
        "State of the cluster according to Ceph, and its active health checks for OSDs, placement groups and "
        "pools. From the manager, which caches its answer for 15 s; SLOW_OPS comes and goes as batches complete.",
        "The cluster is ok, and no check is active.",
        "OSD_DOWN, PG_DEGRADED, PG_AVAILABILITY: the run is void. SLOW_OPS: clients wait for 30 s or more.",
        ("ClusterDegradedDuringRun", "OsdSlowOps", "TooFewPgs"),
    )
    return states(
        "Health",
        about,
        Query(f"max(ceph_health_status{{{CLUSTER}}}) or vector(3)", "cluster", scrape=5),
        health_checks(f'name!~"{OTHER_CHECKS}"'),
        size=(6, 9),
        colours={"cluster": WAIT_COLOURS["other"], "/^[A-Z]/": WARNED},
        words=HEALTH_WORDS,
        value_colours=HEALTH_COLOURS,
    )


def worst() -> Panel:
    """Return the latency of the slowest OSD."""
    about = About(
        "Mean time of an operation on the slowest OSD, by kind; a write includes its replicas. Only finished "
        "operations count: see Operations in flight and Slow operations for stuck ones.",
        "Near the mean on the right.",
        "Far above it: one OSD slows down the rest. Hottest OSDs names it.",
        ("OsdSlowOps", "KvSyncSaturated", "DiskSaturated"),
    )
    return lines(
        "Latency, worst OSD",
        about,
        Query(f"max by (type) ({latency()})", "{{type}}"),
        instead(by_type(f"max({THEIR_LATENCY})"), SEEN, "{{type}}"),
        unit="s",
        size=(8, 9),
        colours=TYPE_COLOURS,
    )


def mean() -> Panel:
    """Return the mean latency of all OSDs."""
    about = About(
        "Mean time of an operation over all OSDs, by kind; a write includes its replicas.",
        "About one millisecond on flash, ten on rotating disks.",
        "It rises with operations in flight while operations/s do not: the OSDs are full, and more clients would "
        "only wait.",
        ("OsdOpThreadsSaturated", "KvSyncSaturated", "ClientOverloaded"),
    )
    own = f"sum by (type) ({change('op_seconds')}) / (sum by (type) ({OPS}) > 0)"
    took = f"sum({ceph('ceph_osd_op_TYPE_latency_sum')})"
    count = f"sum({ceph('ceph_osd_op_TYPE_latency_count')})"
    return lines(
        "Latency, mean",
        about,
        Query(own, "{{type}}"),
        instead(by_type(f"{took} / ({count} > 0)"), SEEN, "{{type}}"),
        unit="s",
        size=(8, 9),
        colours=TYPE_COLOURS,
    )


def queue() -> Panel:
    """Return how many operations wait for a worker."""
    about = About(
        "Operations that wait in an OSD for a worker and for the lock of their placement group: mean number at "
        "any time, on the OSD with the most and per OSD. Divided by operations/s, it is the waiting time of one "
        "operation. Waiting starts with the first bytes of a message, so it includes a slow arrival of the rest "
        "(ProtocolV2.cc).",
        "Below one.",
        "As many as are in flight: operations do not reach the disk. If the workers are full, they are the limit. "
        "If they are idle, all operations go to one placement group, or data arrives slowly.",
        ("OsdOpThreadsSaturated", "TooFewPgs", "NicSaturated"),
    )
    waiting = change("op_queue_seconds")
    return lines(
        "Queue for workers",
        about,
        Query(f"max({waiting})", "worst OSD"),
        Query(f"avg({waiting})", "mean"),
        instead(f"max({THEIR_QUEUE})", SEEN, "worst OSD"),
        instead(f"avg({THEIR_QUEUE})", SEEN, "mean"),
        unit="short",
        size=(8, 9),
        colours={"mean": WAIT_COLOURS["other"]},
    )


def seconds_of(step: str) -> str:
    """Return the seconds that all chosen OSDs spend in a step, per second."""
    return f"sum({change('step_seconds', _is('step', step))})"


def times_of(step: str) -> str:
    """Return how often a step happens per second in all chosen OSDs."""
    return f"sum({change('steps', _is('step', step))})"


def mean_of(step: str) -> str:
    """Return the mean time of a step over all chosen OSDs."""
    return f"{seconds_of(step)} / ({times_of(step)} > 0)"


def queued(kind: str) -> str:
    """Return the mean time until a worker has an operation."""
    spent, number = (f"sum({change(counter, _is('type', kind))})" for counter in ("op_seconds", "ops"))
    return f"clamp_min({spent} - {seconds_of(f'{kind}_process')}, 0) / ({number} > 0)"


def _is(label: str, value: str) -> str:
    return f'{label}="{value}"'


def write_steps() -> Panel:
    """Return the steps of the mean write."""
    about = About(
        "Mean time of a write's steps over all OSDs, stacked: until a worker has it, until BlueStore has its "
        "transaction, in BlueStore's throttle and preparation, writing data, waiting for the commit thread, and in the "
        "commit. The wait for replicas is not shown.",
        "Most of it in kv commit or data write, at the speed of the device.",
        "queue: workers are full, or one placement group is hot. store prepare: a throttle is full. kv queue longer "
        "than kv commit: more writes arrive than the commit thread takes.",
        ("KvSyncSaturated", "OsdOpThreadsSaturated", "docs/ceph.md"),
    )
    prepared = f"clamp_min({mean_of('write_prepare')} - {mean_of('store_prepare')}, 0)"
    store = ("store_prepare", "data_write", "kv_queue", "kv_commit")
    return lines(
        "Steps of a write",
        about,
        Query(queued("write"), "queue"),
        Query(prepared, "prepare"),
        *(Query(mean_of(step), step.replace("_", " ")) for step in store),
        unit="s",
        size=(8, 9),
        colours={
            "queue": WAIT_COLOURS["runqueue"],
            "prepare": WAIT_COLOURS["cpu"],
            "store prepare": WAIT_COLOURS["lock"],
            "data write": WAIT_COLOURS["disk"],
            "kv queue": WAIT_COLOURS["other"],
            "kv commit": WAIT_COLOURS["osd"],
        },
        stack=True,
    )


def read_steps() -> Panel:
    """Return the steps of the mean read."""
    about = About(
        "Mean time of a read's steps over all OSDs, stacked: until a worker has it, looking up objects in RocksDB, and "
        "waiting for the disk.",
        "Most of it in data read, at the speed of the device, or next to nothing where the cache has the data.",
        "queue: workers are full. metadata: the cache lacks the objects' metadata; see Metadata cache misses.",
        ("OsdOpThreadsSaturated", "OnodeCacheMisses", "DiskSaturated", "docs/ceph.md"),
    )
    return lines(
        "Steps of a read",
        about,
        Query(queued("read"), "queue"),
        Query(f"{seconds_of('rocksdb_get')} / ({times_of('receive')} > 0)", "metadata"),
        Query(mean_of("read_data"), "data read"),
        unit="s",
        size=(8, 9),
        colours={
            "queue": WAIT_COLOURS["runqueue"],
            "metadata": WAIT_COLOURS["lock"],
            "data read": WAIT_COLOURS["disk"],
        },
        stack=True,
    )


def metadata() -> Panel:
    """Return how often the metadata cache misses."""
    about = About(
        "Share of the lookups of objects that BlueStore's metadata cache does not answer, on the worst OSD and over "
        "all. A new object is always a miss.",
        "Near 0 in phases that read or overwrite.",
        "High while objects are read: osd_memory_target is too small for the objects in use, and Steps of a read "
        "shows what the lookups in RocksDB cost.",
        ("OnodeCacheMisses", "docs/ceph.md"),
    )
    missed = change("onode_lookups", _is("result", "miss"))
    every = change("onode_lookups")
    worst = f"sum by (instance, daemon) ({missed}) / (sum by (instance, daemon) ({every}) > 0)"
    return lines(
        "Metadata cache misses",
        about,
        Query(f"max({worst})", "worst OSD"),
        Query(f"sum({missed}) / (sum({every}) > 0)", "mean"),
        unit="percentunit",
        size=(8, 9),
        colours={"mean": WAIT_COLOURS["other"]},
        most=1,
    )


def workers() -> Panel:
    """Return how busy the threads of the busiest OSD are."""
    about = About(
        "How much of the time each kind of thread was on a CPU or waiting for one, on the OSD where it is "
        "busiest; the workers (osd_op) of an OSD count as one. Dashed: busy share at which a thread counts as "
        "full.",
        "Below the dashed line.",
        "osd_op: CPU time is the limit. finisher, messenger: one thread slows down the OSD; without "
        "ceph/ceph#53477 a full messenger may be spinning in an empty loop. rocksdb: compaction.",
        ("OsdOpThreadsSaturated", "CompactionSaturated", "MessengerSaturated"),
    )
    kinds = "osd_op|finisher|messenger|rocksdb|bluestore_aio|kv_final"
    return lines(
        "Threads, worst OSD",
        about,
        Query(f"max by (resource) ({busy(kinds, OSD)})", "{{resource}}"),
        full_from("osd_op"),
        unit="percentunit",
        size=(8, 9),
        most=1,
    )


def commits() -> Panel:
    """Return how busy BlueStore's commits are."""
    about = About(
        "BlueStore commits all writes of an OSD with one thread: how much of the time it was inside a commit, and "
        "how much it was on a CPU or waiting for one; the worst OSD and the mean. Dashed: busy share at which it "
        "counts as full.",
        "Below the dashed line.",
        "The thread is full: use more OSDs or a faster clock. Inside commits but not full: it waits for a flush "
        "of the device; more OSDs on the same device do not help. Worst far above the mean: a single OSD is the "
        "problem.",
        ("KvSyncSaturated",),
    )
    inside, thread = busy("kv_commit", OSD), busy("kv_sync", OSD)
    theirs = ceph("ceph_bluestore_kv_sync_lat_sum")
    return lines(
        "Commits",
        about,
        Query(f"clamp_max(max({inside}), 1)", "in commits, worst OSD"),
        Query(f"clamp_max(avg({inside}), 1)", "in commits, mean"),
        Query(f"clamp_max(max({thread}), 1)", "thread, worst OSD"),
        Query(f"clamp_max(avg({thread}), 1)", "thread, mean"),
        instead(f"clamp_max(max({theirs}), 1)", SEEN, "in commits, worst OSD"),
        instead(f"clamp_max(avg({theirs}), 1)", SEEN, "in commits, mean"),
        full_from("kv_sync|kv_commit"),
        unit="percentunit",
        size=(8, 9),
        colours={
            "in commits, worst OSD": WAIT_COLOURS["osd"],
            "in commits, mean": WAIT_COLOURS["network"],
            "thread, worst OSD": WAIT_COLOURS["cpu"],
            "thread, mean": WAIT_COLOURS["other"],
        },
        most=1,
    )


def commit_time() -> Panel:
    """Return how long a commit takes, and how much of that is the flush of the device."""
    about = About(
        "Mean time of a BlueStore commit on the slowest OSD and over all OSDs, and the part of the latter spent "
        "flushing the data device (the rest is the RocksDB write).",
        "Below 1 ms on flash with power-loss protection.",
        "5 ms or more, nearly all of it flush: drives without power-loss protection, or rotating disks without a "
        "database on flash.",
        ("KvSyncSaturated", "DiskSaturated"),
    )
    syncs = change("kv_syncs")
    count = ceph("ceph_bluestore_kv_sync_lat_count")
    sync, flush = (ceph(f"ceph_bluestore_kv_{part}_lat_sum") for part in ("sync", "flush"))
    return lines(
        "Time of a commit",
        about,
        Query(f"max({change('kv_sync_seconds')} / on (instance, daemon) ({syncs} > 0))", "worst OSD"),
        Query(f"sum({change('kv_sync_seconds')}) / (sum({syncs}) > 0)", "mean"),
        Query(f"sum({change('kv_flush_seconds')}) / (sum({syncs}) > 0)", "mean, flush"),
        instead(f"max({sync} / ({count} > 0))", SEEN, "worst OSD"),
        instead(f"sum({sync}) / (sum({count}) > 0)", SEEN, "mean"),
        instead(f"sum({flush}) / (sum({count}) > 0)", SEEN, "mean, flush"),
        unit="s",
        size=(8, 9),
        colours={
            "worst OSD": WAIT_COLOURS["osd"],
            "mean": WAIT_COLOURS["other"],
            "mean, flush": WAIT_COLOURS["disk"],
        },
    )


def database() -> Panel:
    """Return the space of RocksDB's files."""
    about = About(
        "Space that RocksDB's files use on the database device, and beyond it on the main device (slow), on the OSD "
        "with the most.",
        "Nothing on the slow device.",
        "Bytes on the slow device: the database is larger than its device, and part of each commit and lookup runs at "
        "the speed of the slow one (BLUEFS_SPILLOVER).",
        ("BluefsSpillover", "CompactionSaturated"),
    )
    return lines(
        "RocksDB's files, worst OSD",
        about,
        Query(f"max by (device) ({gauge('bluefs_used_bytes')})", "{{device}}"),
        unit="bytes",
        size=(8, 9),
        colours={"slow": WARNED, "db": WAIT_COLOURS["other"]},
    )


def unsent() -> Panel:
    """Return how long data waits for the network."""
    about = About(
        "How long what OSDs send waits in their sockets: bytes that TCP has not sent yet, divided by what leaves in a "
        "second; the worst OSD, and the mean. Data in flight does not count.",
        "A millisecond or less.",
        "20 ms or more: the network, or who reads at the other end, is slower than the OSD. Ceph's own counter of "
        "waiting messages does not show it.",
        ("MessagesQueued", "NicSaturated"),
    )
    osds = f'owner=~"{OSD}"'
    left = daemon_of_owner(rate("pinchpoint_tcp_sent_bytes_total", osds))
    waits = daemon_of_owner(f"pinchpoint_tcp_unsent_bytes{{{osds}, {HOST}}}")
    return lines(
        "Data waits for the network",
        about,
        Query(f"max({waits} / ({left} > 0))", "worst OSD"),
        Query(f"sum({waits}) / (sum({left}) > 0)", "mean"),
        unit="s",
        size=(8, 9),
        colours={"mean": WAIT_COLOURS["other"]},
    )


def background() -> Panel:
    """Return the recovery of all OSDs, and their deferred writes."""
    about = About(
        "Recovery operations and deferred writes per second over all OSDs. A deferred write is answered from RocksDB "
        "and written to its place later.",
        "No recovery; deferred writes only where clients write small blocks.",
        "Recovery during a run: the result is not this cluster's normal performance.",
        ("ClusterDegradedDuringRun", "docs/ceph.md"),
    )
    return lines(
        "Recovery and deferred writes",
        about,
        Query(f"sum({change('recovery_ops')})", "recovery"),
        Query(times_of("deferred"), "deferred writes"),
        unit="ops",
        size=(8, 9),
        colours={"recovery": WARNED, "deferred writes": WAIT_COLOURS["other"]},
    )


def throughput() -> Panel:
    """Return what clients read and write, by pool."""
    about = About(
        "Bytes that clients write and, downwards, read, by pool over a minute, and bytes that recovery moves. "
        "Copies between OSDs are excluded. From the manager.",
        "As much as the benchmark reports, and no recovery.",
        "Recovery alongside clients: the result is not this cluster's normal performance. Many bytes written to a "
        "metadata pool: small files.",
        ("ClusterDegradedDuringRun", "ThroughputDecay", "NicSaturated"),
    )

    def moved(counter: str) -> str:
        pools = f"max by (cluster, pool_id, name) (ceph_pool_metadata{{{CLUSTER}}})"
        found = f"max by (cluster, pool_id) (rate(ceph_pool_{counter}_bytes{{{CLUSTER}}}[$__rate_interval]))"
        return f"sum by (name) ({found} * on (cluster, pool_id) group_left (name) {pools})"

    return lines(
        "Client throughput by pool",
        about,
        Query(moved("wr"), "write {{name}}", MANAGER),
        Query(moved("rd"), "read {{name}}", MANAGER),
        Query(f"sum({ceph('ceph_osd_recovery_bytes')}) > 0", "recovery", MANAGER),
        unit="binBps",
        size=(8, 9),
        colours={"/^read/": WAIT_COLOURS["network"], "recovery": WARNED},
        nothing="Ceph's manager is not scraped",
    )


def operations() -> Panel:
    """Return the operations of clients by kind."""
    about = About(
        "Client operations by kind, all OSDs together, excluding copies between OSDs; an rw operation reads what "
        "it changes.",
        "Steady within a phase.",
        "It falls while operations in flight rise: the OSDs got slower. Both fall: the clients got slower.",
        ("ThroughputDecay", "InflightCollapsed"),
    )
    return lines(
        "Operations of clients",
        about,
        Query(f"sum by (type) ({OPS})", "{{type}}"),
        instead(by_type(f"sum({ceph('ceph_osd_op_TYPE')})"), SEEN, "{{type}}"),
        unit="iops",
        size=(8, 9),
        colours=TYPE_COLOURS,
    )


def in_flight() -> Panel:
    """Return the operations that OSDs work on."""
    about = About(
        "Client operations that OSDs have received but not yet answered: all, and on the OSD with the most.",
        "As many as the benchmark keeps in flight, spread over the OSDs.",
        "Most of them on one OSD: everything waits for it. Far fewer than the benchmark keeps in flight: they "
        "wait elsewhere, in the client or in the network.",
        ("InflightCollapsed", "OsdSlowOps"),
    )
    own, theirs = gauge("ops_in_flight"), gauge_of_ceph("osd_op_wip")
    return lines(
        "Operations in flight",
        about,
        Query(f"sum({own})", "all OSDs"),
        Query(f"max({own})", "worst OSD"),
        instead(f"sum({theirs})", SEEN, "all OSDs", scrape=5),
        instead(f"max({theirs})", SEEN, "worst OSD", scrape=5),
        unit="short",
        size=(8, 9),
        colours={"all OSDs": WAIT_COLOURS["other"]},
    )


def throttle_waits() -> Panel:
    """Return how much waits for a throttle."""
    about = About(
        "Operations that wait for a throttle: mean number at any time, all OSDs together. Without the exporter: "
        "BlueStore's throttle only.",
        "0.",
        "osd_client_messages or osd_client_bytes: clients send more than an OSD accepts. "
        "bluestore_throttle_bytes: writes arrive faster than commits; see Commits.",
        ("KvSyncSaturated", "ClientOverloaded"),
    )
    own = f"sum by (throttle) ({change('throttle_wait_seconds', THROTTLES)})"
    theirs = " or ".join(f"sum({ceph(f'ceph_bluestore_{name}_lat_sum')})" for name in ("throttle", "txc_throttle"))
    return lines(
        "Waiting for throttles",
        about,
        Query(own, "{{throttle}}"),
        instead(theirs, SEEN, "bluestore_throttle"),
        unit="short",
        size=(8, 9),
    )


def throttle_fill() -> Panel:
    """Return how full throttles are."""
    about = About(
        "How much of each throttle is in use, on the OSD where it is fullest.",
        "Below 100 %.",
        "100 %: further operations have to wait.",
        ("KvSyncSaturated", "ClientOverloaded"),
    )
    return lines(
        "Throttles, fullest OSD",
        about,
        Query(f"max by (throttle) ({gauge('throttle_fill_ratio', THROTTLES)})", "{{throttle}}"),
        unit="percentunit",
        size=(8, 9),
    )


def slow() -> Panel:
    """Return which OSDs have operations that are stuck."""
    about = About(
        "Operations older than osd_op_complaint_time (30 s): all, and by OSD where there are any.",
        "None.",
        "On one OSD: its disk or commits. On all OSDs of a host: its network or controller. If the only OSD is "
        "frozen, none are reported, because no other OSD is left to report them: see DaemonStuck.",
        ("OsdSlowOps", "DaemonStuck"),
    )
    theirs = f'max by (cluster, ceph_daemon) (ceph_daemon_health_metrics{{type="SLOW_OPS", {CLUSTER}}}) > 0'
    return lines(
        "Slow operations",
        about,
        *slow_operations(),
        Query(f"{gauge('slow_ops')} > 0", "{{daemon}}"),
        instead(theirs, SEEN, "{{ceph_daemon}}", scrape=5),
        unit="short",
        size=(8, 9),
        colours={"operations": WAIT_COLOURS["other"]},
    )


def groups() -> Panel:
    """Return the states of placement groups that are not clean."""
    about = About(
        "Placement groups that are not clean, and their states; one group can have several. From the manager, up "
        "to 20 s old.",
        "0. Groups stay clean during scrubbing and snapshot trimming.",
        "degraded, undersized: a copy is missing. recovering, backfilling, remapped: data is moving. peering, "
        "stale, down, incomplete: clients wait. unknown: a manager has just taken over.",
        ("ClusterDegradedDuringRun",),
    )
    named = f'{{__name__=~"ceph_pg_({PG_STATES})", {CLUSTER}}}'
    found = f'sum by (state) (label_replace({named}, "state", "$1", "__name__", "ceph_pg_(.*)")) > 0'
    return lines(
        "Placement groups not clean",
        about,
        Query(f"sum(ceph_pg_total{{{CLUSTER}}}) - sum(ceph_pg_clean{{{CLUSTER}}})", "not clean", scrape=5),
        Query(found, "{{state}}", scrape=5),
        unit="short",
        size=(8, 9),
        colours={"not clean": WAIT_COLOURS["other"]},
    )


def balance() -> Panel:
    """Return how evenly placement groups are spread."""
    about = About(
        "Placement groups on the OSD with the most and the fewest, and the mean. Dashed: the number above which "
        "PgImbalance would fire if all OSDs had the same size and kind.",
        "All three are close together.",
        "The highest is above the dashed line: that OSD finishes last in a phase that uses all OSDs. With OSDs of "
        "different size or kind this is intended, and the alert compares within a kind and relative to size.",
        ("PgImbalance", "TooFewPgs"),
    )
    theirs = f"({gauge_of_ceph('osd_numpg')} > 0)"
    factor = f"on () (1 + {limit_of_alert('PgImbalance')})"
    queries: list[Query] = []
    for legend, how in (("most", "max"), ("mean", "avg"), ("fewest", "min")):
        queries += Query(f"{how}({PGS})", legend), instead(f"{how}({theirs})", SEEN, legend, scrape=5)
    return lines(
        "Placement groups of an OSD",
        about,
        *queries,
        Query(f"avg({PGS}) * {factor}", FULL),
        instead(f"avg({theirs}) * {factor}", SEEN, FULL, scrape=5),
        unit="short",
        size=(8, 9),
        colours={"mean": WAIT_COLOURS["other"], "fewest": WAIT_COLOURS["network"]},
    )


def round_trips() -> Panel:
    """Return the round trips of the OSDs' connections."""
    about = About(
        "TCP round-trip time of the OSDs' connections to clients and to each other: on the slowest OSD, on the "
        "median OSD, and the shortest of the last minutes. It includes the peer's delay before it answers.",
        "Tens of microseconds on one switch; the median stays near the shortest.",
        "Above a millisecond, or the median far above the shortest: queues in the network, a full link, CPUs that "
        "wake up slowly, or a host short of CPUs.",
        ("NicSaturated", "DeepIdleInLatencyPhase", "SoftirqSaturated"),
    )
    trips = daemon_of_owner(f'pinchpoint_tcp_rtt_seconds{{owner=~"{OSD}", {HOST}}}')
    shortest = daemon_of_owner(f'pinchpoint_tcp_rtt_min_seconds{{owner=~"{OSD}", {HOST}}}')
    return lines(
        "Network round trip",
        about,
        Query(f"max({trips})", "worst OSD"),
        Query(f"quantile(0.5, {trips})", "median OSD"),
        Query(f"min({shortest})", "shortest"),
        unit="s",
        size=(8, 9),
        colours={"worst OSD": WAIT_COLOURS["osd"], "shortest": WAIT_COLOURS["other"]},
    )
