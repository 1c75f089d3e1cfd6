"""The metadata servers of CephFS: whether one is the limit, by its lock, its cache, its journal or its clients."""

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
    used,
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
from pinchpoint.threads.roles import UNVERIFIED_ROLE

MDS = "mds[.].+"
SEEN = "pinchpoint_mds_rank_held"
"""A series of every MDS that the exporter sees."""
COLOUR = class_colour("mds_lock")
OPERATIONS = (
    "create",
    "open",
    "lookup",
    "getattr",
    "setattr",
    "readdir",
    "mkdir",
    "rmdir",
    "unlink",
    "rename",
    "link",
    "symlink",
)
"""Client requests that benchmarks make; those for locks, layouts, snapshots and user attributes are left out."""
OPERATION_COLOURS = {
    "create": WAIT_COLOURS["osd"],
    "open": WAIT_COLOURS["network"],
    "lookup": WAIT_COLOURS["cpu"],
    "getattr": WAIT_COLOURS["disk"],
    "setattr": WAIT_COLOURS["client"],
    "readdir": WAIT_COLOURS["writeback"],
    "unlink": WAIT_COLOURS["lock"],
    "rename": WAIT_COLOURS["mds"],
    "/^(mkdir|rmdir|link|symlink)$/": WAIT_COLOURS["other"],
}
"""The colours match those of phases: creating is blue, looking up is yellow, removing is orange."""
CHECKS = "MDS_.+|FS_.+"
"""Health checks of the file system (src/mds/FSMap.cc, MDSMap.cc, messages/MMDSBeacon.h)."""
WARNED = KINDS["resource"]


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-mds",
        "Pinchpoint / MDS",
        "Is a metadata server the limit: its lock, its cache, its journal, or clients that keep capabilities? "
        "Figures come from the exporter on the servers' hosts; where the chosen hosts have none, from Ceph itself.",
        variables=("cluster", "host", "run", "several"),
    )
    tiles = (lock_now, rereads_now, cache_now, journal_now, requests_now, latency_now)
    for panel in (*tiles, servers, health, lock, requests, latency, steps, cache, segments):
        made.with_panel(panel())
    made.with_row(folded("Operations", operations(), operation_latency(), purges()))
    made.with_row(folded("Cache and capabilities", rereads(), caps(), revoked()))
    made.with_row(folded("Journal and OSDs", journal_writes(), queue()))
    made.with_row(folded("Ranks", balance(), migrations(), ranks()))
    return made


def gauge(name: str) -> str:
    """Return one of the exporter's gauges of the chosen servers."""
    return of_cluster(f"pinchpoint_mds_{name}{{{HOST}}}")


def change(name: str) -> str:
    """Return the rate of one of the exporter's counters of the chosen servers."""
    return of_cluster(rate(f"pinchpoint_mds_{name}_total"))


def share(value: str, limit: str) -> str:
    """Return a gauge as a share of another."""
    return of_cluster(f"pinchpoint_mds_{value}{{{HOST}}} / (pinchpoint_mds_{limit}{{{HOST}}} > 0)")


REQUESTS = change("requests")
LATENCY = f"{change('reply_seconds')} / on (instance, daemon) ({change('replies')} > 0)"
LOCK = busy("mds_lock", MDS)
REREADS = busy("mds_cache", MDS)
CACHE_FILL = share("cache_bytes", "cache_limit_bytes")
JOURNAL_FILL = share("log_segments", "log_segments_limit")


def lock_now() -> Panel:
    """Return how busy the busiest lock is."""
    about = About(
        "How much of the time the single lock of the busiest MDS could take no more work: CPU and run-queue time "
        "of all threads that take it. No single thread or process shows this.",
        "Well below the threshold (dashed in Lock).",
        "Near 100 %: this rank is at its limit, regardless of the number of cores. Use more active ranks or a "
        "faster clock.",
        ("MdsLockSaturated", "MdsProcessBusyNoLock"),
    )
    return numbers(
        "Busiest lock",
        about,
        Query(f"topk(1, {LOCK})", "{{daemon}}"),
        unit="percentunit",
        name=True,
        full="mds_lock",
        decimals=0,
    )


def rereads_now() -> Panel:
    """Return how much a full cache costs."""
    about = About(
        "How much of the time the worst MDS waited for directories that its full cache had dropped.",
        "0 %. A full cache alone costs nothing.",
        "More than a few per cent: the cache is too small for this phase. Raise mds_cache_memory_limit.",
        ("MdsCacheNearLimit",),
    )
    return numbers("Cache waits", about, Query(f"topk(1, {REREADS})", "{{daemon}}"), unit="percentunit", name=True)


def cache_now() -> Panel:
    """Return how full the fullest cache is."""
    about = About(
        "Size of the cache as a share of mds_cache_memory_limit; the fullest MDS.",
        "Up to 100 %: an MDS trims from 95 % on and stays there.",
        "150 % and more: clients keep what the MDS should drop, and Ceph warns (MDS_CACHE_OVERSIZED).",
        ("MdsCacheNearLimit", "MdsCacheOversized"),
    )
    return numbers(
        "Cache", about, Query(f"topk(1, {CACHE_FILL})", "{{daemon}}"), unit="percentunit", name=True, decimals=0
    )


def journal_now() -> Panel:
    """Return how long the longest journal is."""
    about = About(
        "Segments of the journal as a share of mds_log_max_segments; the longest.",
        "About 100 %: every MDS settles there.",
        "Above 150 % and growing: the metadata pool writes back more slowly than clients change metadata. From 200 % "
        "on Ceph warns (MDS_TRIM).",
        ("MdsJournalGrowing", "MdsTrimBehind"),
    )
    return numbers(
        "Journal", about, Query(f"topk(1, {JOURNAL_FILL})", "{{daemon}}"), unit="percentunit", name=True, decimals=0
    )


def requests_now() -> Panel:
    """Return the requests of all clients."""
    about = About(
        "Client requests, all servers together.",
        "As many as in the best run so far.",
        "Few requests in a metadata phase: check what the servers and the clients wait for.",
        ("MdsLockSaturated", "PhaseStalled"),
    )
    return numbers(
        "Requests",
        about,
        Query(f"sum({REQUESTS})", "all servers"),
        instead(f"sum({ceph('ceph_mds_request')})", SEEN, "all servers"),
        unit="reqps",
        sparkline=True,
        decimals=0,
    )


def latency_now() -> Panel:
    """Return the mean latency of requests."""
    about = About(
        "Mean time from a request to its reply, inside the servers.",
        "Below a millisecond where the cache answers; changes take a journal write longer.",
        "Tens of milliseconds: requests queue for the lock, for a capability, or for the metadata pool.",
        ("MdsLockSaturated", "MdsSlowRequest", "MdsSlowMetadataIO"),
    )
    own = f"sum({change('reply_seconds')}) / (sum({change('replies')}) > 0)"
    theirs = f"sum({ceph('ceph_mds_reply_latency_sum')}) / (sum({ceph('ceph_mds_reply_latency_count')}) > 0)"
    return numbers(
        "Latency",
        about,
        Query(own, "all servers"),
        instead(theirs, SEEN, "all servers"),
        unit="s",
        sparkline=True,
    )


def servers() -> Panel:
    """Return a row for each server, the busiest lock first."""
    about = About(
        "Each MDS of the selected hosts: how busy its lock is, how much of that was only waiting for a CPU, how "
        "long it was full, the CPU use of the whole process, its operations, and how full its cache and journal "
        "are. A standby does nothing. Without an exporter on their hosts: requests, latency and capabilities.",
        "All ranks about equally busy.",
        "One lock is full and the others are idle: the load is not spread. A process that uses a whole CPU while "
        "its lock is half free does not need more ranks. Much time waiting for a CPU: the host is short of CPUs.",
        ("MdsLockSaturated", "MdsRankImbalance", "MdsProcessBusyNoLock", "RunQueueWaitHigh"),
    )

    def column(own: str, theirs: str = "") -> Query:
        found = f"max by (instance, daemon) ({own})"
        if theirs:
            absent = f"unless on () {of_cluster(f'{SEEN}{{{HOST}}}')}"
            found += f' or (label_replace({theirs}, "daemon", "$1", "ceph_daemon", "(?:ceph-)?(.*)") {absent})'
        return Query(found, scrape=5)

    replies = f"({ceph('ceph_mds_reply_latency_count')} > 0)"
    cpus = rate("pinchpoint_thread_cpu_seconds_total", f'owner=~"{MDS}",role!="{UNVERIFIED_ROLE}"')
    return rows(
        "Servers",
        about,
        {
            "lock": column(LOCK),
            "cpu": column(used("runqueue", "mds_lock", MDS)),
            "full": column(used("saturated", "mds_lock", MDS)),
            "process": column(daemon_of_owner(f"sum by (instance, owner) ({cpus})")),
            "requests": column(REQUESTS, ceph("ceph_mds_request")),
            "latency": column(LATENCY, f"{ceph('ceph_mds_reply_latency_sum')} / {replies}"),
            "cache": column(CACHE_FILL),
            "reads": column(change("dir_fetches")),
            "journal": column(JOURNAL_FILL),
            "caps": column(gauge("caps"), theirs("caps")),
        },
        {
            "daemon": Column("server", link=board_link("threads"), link_title="Threads of the hosts", width=135),
            "instance": Column("on", width=115, several=True),
            "lock": Column("lock busy", unit="percentunit", bar=COLOUR, decimals=0),
            "cpu": Column("no CPU", unit="percentunit", width=65, decimals=0),
            "full": Column("full for", unit="percentunit", width=65, decimals=0),
            "process": Column("CPUs", width=60, decimals=2),
            "requests": Column("requests", unit="reqps", width=85, decimals=0),
            "latency": Column("latency", unit="s", width=75),
            "cache": Column("cache", unit="percentunit", width=60, decimals=0),
            "reads": Column("dir reads", unit="ops", width=75, decimals=0),
            "journal": Column("journal", unit="percentunit", width=65, decimals=0),
            "caps": Column("caps", unit="short", width=60),
        },
        size=(18, 7),
        sort="lock",
        nothing="no MDS is seen",
    )


def theirs(name: str) -> str:
    """Return one of Ceph's own gauges of its servers, by daemon."""
    return f"max by (cluster, ceph_daemon) (ceph_mds_{name}{{{CLUSTER}}})"


def health() -> Panel:
    """Return Ceph's health checks about the file system."""
    about = About(
        "State of the cluster according to Ceph, and its active health checks for the file system. They are late: "
        "an MDS checks every 5 s, and the manager caches its answer for 15 s.",
        "The cluster is ok, and no check is active.",
        "MDS_CLIENT_RECALL: a client keeps recalled capabilities. MDS_TRIM: the journal is behind. "
        "MDS_SLOW_METADATA_IO: the metadata pool is stuck. FS_DEGRADED, MDS_DAMAGE: the run is void.",
        ("MdsClientRecall", "MdsClientLateRelease", "MdsTrimBehind", "MdsSlowMetadataIO", "MdsReadOnlyOrDamaged"),
    )
    return states(
        "Health",
        about,
        Query(f"max(ceph_health_status{{{CLUSTER}}}) or vector(3)", "cluster", scrape=5),
        health_checks(f'name=~"{CHECKS}"'),
        size=(6, 7),
        colours={"cluster": WAIT_COLOURS["other"], "/^(MDS|FS)_/": WARNED},
        words=HEALTH_WORDS,
        value_colours=HEALTH_COLOURS,
    )


def lock() -> Panel:
    """Return how busy the lock of each server is, and how much of that may have waited for a CPU."""
    about = About(
        "How much of the time the lock of each MDS could take no more work; downwards, the part in which its "
        "threads were runnable without a CPU, on the MDS with the most. Dashed: busy share at which it counts as "
        "full.",
        "Below the dashed line, with little downwards.",
        "At 100 % with nothing downwards: the lock is the limit, and more active ranks help. As much downwards as "
        "upwards: the host is short of CPUs, and more ranks on it make that worse.",
        ("MdsLockSaturated", "RunQueueWaitHigh"),
    )
    return lines(
        "Lock",
        about,
        Query(LOCK, "{{daemon}}"),
        Query(f"max({used('runqueue', 'mds_lock', MDS)})", "no CPU, worst server"),
        full_from("mds_lock"),
        unit="percentunit",
        colours={"/^no CPU/": WAIT_COLOURS["runqueue"]},
        most=1,
    )


def requests() -> Panel:
    """Return the requests of each server."""
    about = About(
        "Client requests by MDS.",
        "All active ranks get about the same.",
        "One gets nearly all: more ranks do not help until pinned directories spread the load.",
        ("MdsRankImbalance",),
    )
    return lines(
        "Requests by server",
        about,
        Query(REQUESTS, "{{daemon}}"),
        instead(ceph("ceph_mds_request"), SEEN, "{{ceph_daemon}}"),
        unit="reqps",
    )


def latency() -> Panel:
    """Return the mean latency of each server."""
    about = About(
        "Mean time from a request to its reply, by MDS.",
        "Flat, and the same for all.",
        "It rises with the lock: the rank is full. It rises alone: requests wait for client capabilities or for "
        "the metadata pool.",
        ("MdsSlowRequest", "MdsClientLateRelease", "MdsSlowMetadataIO"),
    )
    replies = f"({ceph('ceph_mds_reply_latency_count')} > 0)"
    return lines(
        "Latency by server",
        about,
        Query(LATENCY, "{{daemon}}"),
        instead(f"{ceph('ceph_mds_reply_latency_sum')} / {replies}", SEEN, "{{ceph_daemon}}"),
        unit="s",
        size=(12, 9),
    )


def steps() -> Panel:
    """Return the steps of the mean request."""
    about = About(
        "Mean time of a request inside the servers, stacked: work of the threads that take the lock, their wait for a "
        "CPU, and the rest: the queue for the lock, capabilities of other clients, directories from the metadata pool.",
        "Mostly work.",
        "The rest is large with a full lock: more ranks. It is large with a free lock: clients share files, or the "
        "metadata pool is slow. Without a CPU: the host is short of CPUs.",
        ("MdsLockSaturated", "MdsSlowRequest", "RunQueueWaitHigh"),
    )
    replies = f"(sum({change('replies')}) > 0)"
    work, waited = f"sum({LOCK})", f"sum({used('runqueue', 'mds_lock', MDS)})"
    return lines(
        "Steps of a request",
        about,
        Query(f"({work} - {waited}) / {replies}", "work under mds_lock"),
        Query(f"{waited} / {replies}", "without a CPU"),
        Query(f"clamp_min(sum({change('reply_seconds')}) - {work}, 0) / {replies}", "queue, caps and OSDs"),
        unit="s",
        size=(12, 9),
        colours={
            "work under mds_lock": WAIT_COLOURS["cpu"],
            "without a CPU": WAIT_COLOURS["runqueue"],
            "queue, caps and OSDs": WAIT_COLOURS["mds"],
        },
        stack=True,
    )


def by_operation(expr: str) -> str:
    """Return `expr` with each operation in place of OPERATION; the label ``operation`` names it."""
    parts = (f'label_replace({expr.replace("OPERATION", name)}, "operation", "{name}", "", "")' for name in OPERATIONS)
    return " or ".join(parts)


def operations() -> Panel:
    """Return requests by operation."""
    about = About(
        "Client operations over a minute, all servers together: Ceph's own counters, from its manager (up to "
        "Quincy) or from ceph-exporter. Common operations only.",
        "Operations that match the phase: create in a write phase, getattr and lookup in a stat phase.",
        "Many lookup or open operations besides those of the phase: clients lost their capabilities and ask again.",
        ("MdsLockSaturated", "MdsClientRecall"),
    )
    count = f"sum({ceph('ceph_mds_server_req_OPERATION_latency_count')})"
    return lines(
        "Requests by operation",
        about,
        Query(f"{by_operation(count)} > 0", "{{operation}}", MANAGER),
        unit="reqps",
        size=(8, 9),
        colours=OPERATION_COLOURS,
    )


def operation_latency() -> Panel:
    """Return latency by operation."""
    about = About(
        "Mean time of each operation inside the servers, over a minute: Ceph's own counters, from its manager (up "
        "to Quincy) or from ceph-exporter.",
        "Read operations are faster than those that write to the journal (create, mkdir, rename, unlink).",
        "All rise together: the lock or the host is the cause. Only writes rise: the journal, and so the metadata "
        "pool. Only readdir and lookup rise: the cache is too small.",
        ("MdsLockSaturated", "MdsCacheNearLimit", "MdsSlowMetadataIO"),
    )
    took = f"sum({ceph('ceph_mds_server_req_OPERATION_latency_sum')})"
    count = f"sum({ceph('ceph_mds_server_req_OPERATION_latency_count')})"
    return lines(
        "Latency by operation",
        about,
        Query(by_operation(f"{took} / ({count} > 0)"), "{{operation}}", MANAGER),
        unit="s",
        size=(8, 9),
        colours=OPERATION_COLOURS,
    )


def cache() -> Panel:
    """Return the size of each cache against its limits."""
    about = About(
        "Cache size of each MDS, and its largest size since the process was first seen. Dashed: "
        "mds_cache_memory_limit and the size at which Ceph warns (MDS_CACHE_OVERSIZED), the smallest of all MDSs.",
        "It rises with the files in use and settles at or below its limit.",
        "Above the limit: clients keep capabilities. A limit of twice the peak would have held everything so far.",
        ("MdsCacheNearLimit", "MdsCacheOversized"),
    )
    return lines(
        "Cache",
        about,
        Query(gauge("cache_bytes"), "{{daemon}}"),
        Query(f"max({gauge('cache_peak_bytes')})", "peak"),
        Query(f"min({gauge('cache_limit_bytes')})", f"{FULL}: limit"),
        Query(f"min({gauge('cache_warn_bytes')})", f"{FULL}: Ceph warns"),
        unit="bytes",
        size=(12, 9),
        colours={"peak": WAIT_COLOURS["other"]},
    )


def rereads() -> Panel:
    """Return what a cache that is too small costs."""
    about = About(
        "How much of the time each MDS had a nearly full cache and waited for directories from the metadata pool. "
        "Dashed: share at which it counts as full.",
        "0 %, regardless of how full the cache is.",
        "Above 0 % in a stat or find phase: the MDS rereads what it dropped, and each read is a round trip to an "
        "OSD. Ceph has no check for it.",
        ("MdsCacheNearLimit",),
    )
    return lines(
        "Cache waits",
        about,
        Query(REREADS, "{{daemon}}"),
        full_from("mds_cache"),
        unit="percentunit",
        size=(8, 9),
        most=1,
    )


def segments() -> Panel:
    """Return the segments of each journal against its limits."""
    about = About(
        "Journal segments of each MDS. Dashed: mds_log_max_segments, to which it trims, and the number at which "
        "Ceph warns (MDS_TRIM), the smallest of all MDSs.",
        "At the first dashed line: it settles there.",
        "It keeps climbing: the metadata pool writes back more slowly than clients change metadata. A higher "
        "mds_log_max_segments did not help (10.24 after 11.28).",
        ("MdsJournalGrowing", "MdsTrimBehind"),
    )
    return lines(
        "Journal",
        about,
        Query(gauge("log_segments"), "{{daemon}}"),
        instead(theirs("log_seg"), SEEN, "{{ceph_daemon}}", scrape=5),
        Query(f"min({gauge('log_segments_limit')})", f"{FULL}: trimmed to"),
        Query(f"min({gauge('log_segments_warn')})", f"{FULL}: Ceph warns"),
        unit="short",
        size=(12, 9),
    )


def caps() -> Panel:
    """Return the capabilities that clients hold."""
    about = About(
        "Capabilities that clients hold, by MDS: each pins an inode in its cache.",
        "They level off when the cache is full: clients release what is recalled.",
        "They keep rising beyond the cache limit, and Health shows MDS_CLIENT_RECALL: a client keeps them.",
        ("MdsClientRecall", "MdsCacheOversized"),
    )
    return lines(
        "Capabilities",
        about,
        Query(gauge("caps"), "{{daemon}}"),
        instead(theirs("caps"), SEEN, "{{ceph_daemon}}", scrape=5),
        unit="short",
        size=(8, 9),
    )


def revoked() -> Panel:
    """Return how often capabilities are taken back, because another client wants the file."""
    about = About(
        "Capabilities that an MDS revokes because another client wants the same file or directory. This excludes "
        "recall for lack of memory: see Health.",
        "Few, where every process has its own directory.",
        "As many as requests: clients share files or directories, and each request waits for another client.",
        ("MdsClientLateRelease", "MdsSlowRequest"),
    )
    return lines(
        "Revoked capabilities",
        about,
        Query(change("caps_revoked"), "{{daemon}}"),
        instead(ceph("ceph_mds_ceph_cap_op_revoke"), SEEN, "{{ceph_daemon}}"),
        unit="ops",
        size=(8, 9),
    )


def journal_writes() -> Panel:
    """Return how long a write of the journal takes."""
    about = About(
        "Mean time of a journal flush by MDS: a write to the metadata pool.",
        "A few milliseconds, as long as an OSD needs for a small write.",
        "It follows the latency of writes on the dashboard OSD and RADOS: the pool is the limit, not the MDS.",
        ("MdsTrimBehind", "MdsSlowMetadataIO", "KvSyncSaturated"),
    )
    own = f"{change('journal_write_seconds')} / on (instance, daemon) ({change('journal_writes')} > 0)"
    count = f"({ceph('ceph_mds_log_jlat_count')} > 0)"
    return lines(
        "Journal writes",
        about,
        Query(own, "{{daemon}}"),
        instead(f"{ceph('ceph_mds_log_jlat_sum')} / {count}", SEEN, "{{ceph_daemon}}"),
        unit="s",
        size=(8, 9),
    )


def migrations() -> Panel:
    """Return what ranks pass on to each other."""
    about = About(
        "Requests that a rank forwards to another one, and inodes that ranks hand over, all servers together.",
        "0 with one rank, and with pinned directories.",
        "Ranks hand over inodes all the time: the balancer moves directories to and fro, and clients follow. Pin "
        "directories (ceph.dir.pin).",
        ("MdsForwarding", "MdsRankImbalance"),
    )
    return lines(
        "Forwards and migrations",
        about,
        Query(f"sum({change('forwards')})", "requests forwarded"),
        Query(f"sum({change('inodes_exported')})", "inodes handed over"),
        unit="ops",
        size=(8, 9),
        colours={"inodes handed over": WAIT_COLOURS["lock"]},
    )


def purges() -> Panel:
    """Return the deleted files whose objects still exist, and the directories that are written."""
    about = About(
        "Deleted files whose objects are being removed or wait for that, and directories written to OSDs per second, "
        "all servers together.",
        "The queue shrinks after a phase that deletes.",
        "Many while the next phase runs: their deletion competes with it on the OSDs.",
        ("ClusterDegradedDuringRun",),
    )
    return lines(
        "Deleted files to purge",
        about,
        Query(f"sum({gauge('purges_queued')})", "queued"),
        Query(f"sum({gauge('purges')})", "being removed"),
        Query(f"sum({change('dir_commits')})", "directories written per second"),
        unit="short",
        size=(8, 9),
    )


def balance() -> Panel:
    """Return the share of the busiest rank, compared with an even share."""
    about = About(
        "Share of all requests that the busiest rank of a cluster gets, and its share if all active ranks got the "
        "same. Dashed: share at which MdsRankImbalance fires.",
        "Near the even share.",
        "Above the dashed line: one rank does the work, and its lock limits the whole file system. A single rank "
        "gets everything and is on the line.",
        ("MdsRankImbalance",),
    )
    # A rank that wrote to its journal is active; a server that follows one (standby-replay) holds it too.
    active = (
        f"({rate('pinchpoint_mds_requests_total')} and on (instance, daemon) pinchpoint_mds_journal_writes_total > 0)"
    )
    own = f'(pinchpoint_ceph_daemon_info{{cluster=~"$cluster"}} * on (instance, daemon) group_left () {active})'
    theirs = ceph("ceph_mds_request")
    factor = limit_of_alert("MdsRankImbalance")

    def busiest(of: str) -> str:
        return f"max by (cluster) ({of}) / (sum by (cluster) ({of}) > 0)"

    def even(of: str) -> str:
        return f"1 / count by (cluster) ({of})"

    def full(of: str) -> str:
        others = f"count by (cluster) ({of}) - 1"
        return f"{factor} / on () group_right () ({others} + on () group_left () {factor})"

    return lines(
        "Share of the busiest rank",
        about,
        Query(busiest(own), "busiest"),
        Query(even(own), "even"),
        Query(full(own), FULL),
        instead(busiest(theirs), SEEN, "busiest"),
        instead(even(theirs), SEEN, "even"),
        instead(full(theirs), SEEN, FULL),
        unit="percentunit",
        size=(8, 9),
        colours={"even": WAIT_COLOURS["other"]},
        most=1,
    )


def queue() -> Panel:
    """Return the messages that wait for a server, and the operations that the server waits for."""
    about = About(
        "Messages that wait for each MDS, as last counted by its balancer (every 10 s, and since Reef only with "
        "balance_automate), and operations that the MDS itself has in flight to OSDs.",
        "Few of both.",
        "Many messages: the lock is full. Many operations at OSDs: the MDS waits for the metadata pool.",
        ("MdsLockSaturated", "MdsSlowMetadataIO"),
    )
    return lines(
        "Queue, and operations at OSDs",
        about,
        Query(gauge("osd_ops_in_flight"), "at OSDs, {{daemon}}"),
        Query(gauge("queue_requests"), "queue of {{daemon}}"),
        unit="short",
        size=(8, 9),
        colours={"/^at OSDs/": WAIT_COLOURS["osd"]},
    )


def ranks() -> Panel:
    """Return which server holds which rank."""
    about = About(
        "Which MDS held which rank over time. If no manager answers, only whether it held one.",
        "One bar for each rank, from end to end.",
        "A bar ends and another begins: an MDS failed and a standby took over. Clients waited in between, so the "
        "phase's result is void.",
        ("MdsReadOnlyOrDamaged", "NoStandbyMds", "DaemonStuck"),
    )
    held = f'ceph_mds_metadata{{rank!="-1", {CLUSTER}}}'
    return states(
        "Ranks",
        about,
        Query(f"max by (cluster, rank, ceph_daemon) ({held})", "rank {{rank}}: {{ceph_daemon}}", scrape=5),
        Query(f"{gauge('rank_held')} == 1 unless on () {held}", "{{daemon}}", scrape=5),
        size=(8, 7),
        colours={"/.*/": COLOUR},
        show_value=False,
    )
