"""How busy threads, locks and kernel workers are, the busiest first, and how long they wait for a CPU."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.kit.about import About, board_link
from dashboards.kit.board import board, folded
from dashboards.kit.colours import ROLES, WAIT_COLOURS
from dashboards.kit.over_time import lines
from dashboards.kit.panel import Panel
from dashboards.kit.queries import HOST, Query, fullest
from dashboards.kit.tables import Column, rows
from pinchpoint.resources import all_resources
from pinchpoint.rules import PAGES

LABELS = "(instance, resource, owner)"
UNKNOWN = 'resource="unknown_thread"'
SHOWN_ELSEWHERE = "disk|link|memory|memory_quota|mds_cache|io_quota|unknown_thread"
OF_THREADS = f'resource!~"{SHOWN_ELSEWHERE}"'
"""All except resources that are neither threads nor CPUs (other dashboards show them), and threads without a role."""
OF_PROCESSES = f'resource!~"{SHOWN_ELSEWHERE}|cpu|cpu_set|cpu_quota|softirq_cpu"'
"""Resources that can be full inside a process."""
CLUSTERED = frozenset({"mds", "osd"})
KERNEL = frozenset({"kworker", "ksoftirqd", "journal", "block"})
"""Process classes of kernel threads that have no panel of their own."""

WHERE = "{{owner}}$at"
EACH = "{{resource}} {{owner}}$at"


OTHERS = "others, at most"
"""The series of all that are not among the fullest."""


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-threads",
        "Pinchpoint / Threads",
        "Which thread, lock or kernel worker is full, which waits for a CPU, and which process only looks full.",
        variables=("host", "at", "run", "several"),
    )
    for panel in (busiest, processes, on_cpu, no_cpu, clients, unknown):
        made.with_panel(panel())
    made.with_row(folded("MDS and OSD", mds_lock(), osd_op(), kv_sync(), messenger(), finisher()))
    made.with_row(folded("Kernel threads", writeback(), workers(), kswapd(), stalls()))
    made.with_row(folded("How threads are seen", number(), lost(), seen()))
    return made


def share(metric: str, resources: str = "") -> str:
    """Return a query for a share of time of each resource; `resources` is a matcher of the label ``resource``."""
    selector = f"{{{HOST}{', ' if resources else ''}{resources}}}"
    return (
        f"clamp_max(max by {LABELS} (rate(pinchpoint_resource_{metric}_seconds_total{selector}[$__rate_interval])), 1)"
    )


def threshold(resources: str = "") -> str:
    """Return a query for the threshold of each resource on each host."""
    selector = f"{{{HOST}{', ' if resources else ''}{resources}}}"
    return f"max by (instance, resource) (pinchpoint_resource_threshold_ratio{selector})"


def used(metric: str) -> str:
    """Return a query for the CPUs that all threads of an owner use, or wait for."""
    return f"pinchpoint:owner_{metric}:rate{{{HOST}}}"


def linked(expr: str) -> str:
    """Return a query with two more labels: ``page`` names the resource, ``board`` the dashboard with more about it."""
    expr = f'label_replace({expr}, "page", "$1", "resource", "(.*)")'
    expr = f'label_replace({expr}, "board", "clients", "", "")'
    for kind in sorted(CLUSTERED):
        expr = f'label_replace({expr}, "board", "{kind}", "owner", "{kind}[.].+")'
    return expr


def pages() -> dict[str, str]:
    """Return the runbook of each resource."""
    found = all_resources()
    named = {name: found.get(entry.inside, entry).runbook for name, entry in found.items()}
    return {name: runbook for name, runbook in named.items() if runbook}


def unit_of(unit: str) -> str:
    """Return a matcher of the resources with a unit: ``thread``, ``lock`` or ``pool``."""
    return f'resource=~"{"|".join(sorted({role.name for role in ROLES.roles if role.unit == unit}))}"'


def links() -> dict[str, Column]:
    """Return the hidden columns that links are built from."""
    return {"page": Column("page", words=pages(), hidden=True), "board": Column("board", hidden=True)}


RUNBOOK = f"{PAGES}runbooks/${{__data.fields.page.text}}.md"
BOARD = board_link("${__data.fields.board}")


def busiest() -> Panel:
    """Return what is busiest now."""
    about = About(
        "Threads, locks, pools and CPUs, by how much of the time they could take no more work. A role counts by "
        "its busiest thread, a lock by all threads that take it, a pool by the mean of its threads. `no CPU` is "
        "the part of busy in which it was runnable but no CPU was free.",
        "Below `full from`, or full for 0 % of the time: peaks do no harm. Or what is full is what you want to "
        "measure.",
        "Full for more than half of the time. If much of that is `no CPU`, the limit is the CPUs, not the thread: "
        "more ranks, workers or mounts make that worse.",
        ("docs/verdict.md", "RunQueueWaitHigh", "MdsLockSaturated"),
    )
    top = f"topk(16, {share('busy', OF_THREADS)} > 0.01)"
    return rows(
        "Busiest now",
        about,
        {
            "busy": Query(linked(top)),
            "queue": Query(linked(f"{share('runqueue')} and on {LABELS} {top}")),
            "full": Query(linked(f"{share('saturated')} and on {LABELS} {top}")),
            "from": Query(linked(f"{top} * 0 + on (instance, resource) group_left () {threshold()}")),
        },
        {
            "resource": Column("resource", width=115, link=RUNBOOK, link_title="Runbook"),
            "owner": Column("of", width=105, link=BOARD, link_title="Its dashboard"),
            "instance": Column("on", width=95, several=True),
            "busy": Column("busy", unit="percentunit", bar=WAIT_COLOURS["osd"], decimals=0),
            "queue": Column("no CPU", unit="percentunit", bar=WAIT_COLOURS["runqueue"], decimals=0),
            "full": Column("full for", unit="percentunit", width=70, decimals=0),
            "from": Column("full from", unit="percentunit", width=75, decimals=0),
            **links(),
        },
        size=(12, 11),
        sort="busy",
        nothing="nothing is busy",
    )


SO = {
    "5": "its CPUs are the limit",
    "4": "one thread is full",
    "3": "its lock is full, no thread shows it",
    "2": "its pool of threads is full",
    "1": "looks full, and nothing in it is",
    "0": "has room",
}


def processes() -> Panel:
    """Return for each process how many CPUs it uses, and what in it is fullest."""
    about = About(
        "CPUs used by all threads of a process (1 is 100 % in `top`), how many threads wait for a CPU, and what "
        "is fullest in it. `top` shows neither a lock nor a single full thread: an MDS whose lock was held 91 % "
        "of the time used 65 % of a CPU, its busiest thread 20 %; another MDS used 80 % with its lock held 39 % "
        "of the time.",
        "`has room`; or `looks full, and nothing in it is`: many threads share the work, and none blocks the others.",
        "`one thread is full` or `its lock is full`: more of the same load adds nothing. `its CPUs are the limit`: it "
        "waits for a CPU, so give it CPUs before threads.",
        ("MdsProcessBusyNoLock", "MdsLockSaturated", "RunQueueWaitHigh"),
    )
    cpus = f"topk(16, {used('cpu')} > 0.02)"
    busy = share("busy", OF_PROCESSES)
    part = (
        f"(topk by (instance, owner) (1, {busy}) and on (instance, owner) {cpus} "
        f"or {cpus} unless on (instance, owner) {busy})"
    )

    full = f"{share('busy')} >= on (instance, resource) group_left () {threshold()}"

    def filled(unit: str) -> str:
        return f"{share('busy', unit_of(unit))} >= on (instance, resource) group_left () {threshold()}"

    def limit(alert: str) -> str:
        return f'max by (instance) (pinchpoint_alert_threshold{{{HOST}, alert="{alert}"}})'

    queued = f"{share('runqueue')} / on {LABELS} ({full}) > on (instance) group_left () {limit('RunQueueWaitHigh')}"
    why = f"(({queued}) * 0 + 5 or ({filled('lock')}) * 0 + 3 or ({filled('pool')}) * 0 + 2 or ({full}) * 0 + 4)"
    looks = f"({used('cpu')} > bool on (instance) group_left () {limit('MdsProcessBusyNoLock')})"
    # On a full host nothing in a process need be full, where all of its threads wait for CPUs more than they run.
    cpu = 'resource="cpu"'
    full_host = f"{share('busy', cpu)} >= on (instance, resource) group_left () {threshold(cpu)}"
    starved = f"(({used('runqueue')} > {used('cpu')}) * 0 + 5 and on (instance) ({full_host}))"
    so = " or ".join(
        [
            f"{part} * 0 + on {LABELS} {why}",
            *(f"{part} * 0 + on (instance, owner) group_left () {owners}" for owners in (starved, looks)),
        ]
    )
    return rows(
        "Is the process full, or a part of it?",
        about,
        {
            "cpus": Query(linked(f"{part} * 0 + on (instance, owner) group_left () {used('cpu')}")),
            "queue": Query(linked(f"{part} * 0 + on (instance, owner) group_left () {used('runqueue')}")),
            "busy": Query(linked(f"{part} and on {LABELS} {busy}")),
            "so": Query(linked(so)),
        },
        {
            "owner": Column("of", width=100, link=BOARD, link_title="Its dashboard"),
            "instance": Column("on", width=95, several=True),
            "cpus": Column("CPUs", width=50, decimals=2),
            "queue": Column("no CPU", width=65, decimals=2),
            "resource": Column("fullest part", width=100, link=RUNBOOK, link_title="Runbook"),
            "busy": Column("busy", unit="percentunit", bar=WAIT_COLOURS["osd"], width=85, decimals=0),
            "so": Column("so", words=SO),
            **links(),
        },
        size=(12, 11),
        sort="cpus",
        nothing="no followed thread is busy",
    )


def on_cpu() -> Panel:
    """Return who uses the CPUs."""
    about = About(
        "CPUs used by all threads of an owner. Owners are daemons, clients and benchmarks; for kernel workers, "
        "the disk, backing device or NUMA node they work for.",
        "The benchmark and what serves it.",
        "Something that does not belong to the run: stop it, or judge another run.",
        ("RunQueueWaitHigh", "MdsProcessBusyNoLock"),
    )
    return lines(
        "CPUs in use, by owner",
        about,
        Query(fullest(f"({used('cpu')} > 0.005)"), WHERE),
        unit="none",
        decimals=2,
        stack=True,
        nothing="no followed thread is busy",
    )


def no_cpu() -> Panel:
    """Return who waits for a CPU."""
    about = About(
        "Average number of an owner's threads that are runnable without a CPU, including time in which a quota "
        "throttles a cgroup.",
        "Near 0, far below the panel on the left.",
        "As much as on the left: the host has too few CPUs for what runs on it, or a quota is too small.",
        ("RunQueueWaitHigh",),
    )
    return lines(
        "Threads without a CPU, by owner",
        about,
        Query(fullest(f"({used('runqueue')} > 0.005)"), WHERE),
        unit="none",
        decimals=2,
        stack=True,
        nothing="no thread waits for a CPU",
    )


def kind(
    title: str,
    about: About,
    resources: str,
    *,
    legend: str = WHERE,
    nothing: str,
) -> Panel:
    """Return the fullest of some resources over time, and the share from which they count as full.

    `resources` is a regular expression. If it matches several resources, they share a threshold, and `legend` names
    the resource.
    """
    matcher = f'resource=~"{resources}"'
    # The counters of owners that have ended remain for a while.
    ended = f'sum by (instance, owner) (pinchpoint_threads{{{HOST}, role=~"{resources}"}}) == 0'
    busy = f"({share('busy', matcher)} unless on (instance, owner) {ended})"
    return lines(
        title,
        about,
        Query(fullest(busy), legend),
        Query(f"max({busy} unless ({fullest(busy)}))", OTHERS),
        Query(f"max({threshold(matcher)} and on (instance, resource) {busy})", "full from"),
        unit="percentunit",
        colours={OTHERS: WAIT_COLOURS["idle"]},
        most=1,
        nothing=nothing,
    )


def names(classes: frozenset[str], leave_out: Sequence[str] = ()) -> str:
    """Return a regular expression for the roles of some process classes that can be full."""
    found = {role.name for role in ROLES.roles if role.unit is not None and role.classes & classes}
    return "|".join(sorted(found.difference(leave_out)))


def clients() -> Panel:
    """Return the benchmark's threads, and those of Ceph clients."""
    about = About(
        "The busiest thread of the benchmark itself (`benchmark`), and of the Ceph client under it: the lock of "
        "ceph-fuse and libcephfs (`client_lock`), threads of librados and librbd (`rados_client`), QEMU, NFS-Ganesha.",
        "Well below the dashed line: the benchmark has time left to ask for more.",
        "`benchmark` is full: it measures its own CPU time, so use more processes. A client's thread is full: add "
        "another mount or image, because more processes on this one do not help.",
        ("BenchmarkThreadSaturated", "CephClientSaturated", "ClientOverloaded"),
    )
    return kind(
        "Benchmark and its clients",
        about,
        f"benchmark|{names(frozenset({'ceph-client', 'cephfs-client'}), ('messenger',))}",
        legend=EACH,
        nothing="neither a benchmark nor a Ceph client in user space is running",
    )


def unknown() -> Panel:
    """Return the hottest threads that have no role."""
    about = About(
        "The three busiest threads of each host without a role, by name while at 10 % or more over 3 s, and "
        "`busiest`: the busiest such thread in each sample, whichever it was.",
        "Below the dashed line, or part of a program that is unrelated to the run.",
        "Above it while no verdict names a limit: find out what the thread serves, and give it a role.",
        ("docs/verdict.md",),
    )
    named = f"max by (instance, thread, process) (pinchpoint_unknown_thread_busy_ratio{{{HOST}}})"
    return lines(
        "Hottest threads without a role",
        about,
        Query(fullest(named), "{{thread}} of {{process}}$at"),
        Query(fullest(share("busy", UNKNOWN)), "busiest$at"),
        Query(f"max({threshold(UNKNOWN)})", "full from"),
        unit="percentunit",
        most=1,
        nothing="no exporter reads threads",
    )


def mds_lock() -> Panel:
    """Return how full the locks of the MDSs are."""
    about = About(
        "mds_lock: CPU and run-queue time of all threads that take it, summed. No single thread shows it.",
        "Below the dashed line, and similar for all ranks.",
        "Above it: this rank cannot serve more requests. Use more ranks, if the directories can be spread over them.",
        ("MdsLockSaturated", "MdsProcessBusyNoLock", "MdsRankImbalance"),
    )
    return kind("MDS lock", about, "mds_lock", nothing="no MDS here")


def kv_sync() -> Panel:
    """Return how full the commit threads of OSDs are."""
    about = About(
        "BlueStore's single commit thread of an OSD: on a CPU or waiting for one (`kv_sync`), and inside a "
        "commit, which is mostly waiting for the disk (`kv_commit`).",
        "Both below the dashed line.",
        "`kv_commit` alone is full: the disk's flushes are slow. `kv_sync` is full too: the thread itself is the "
        "limit, and more OSDs on a fast disk help.",
        ("KvSyncSaturated", "DiskSaturated"),
    )
    return kind("OSD commit", about, "kv_sync|kv_commit", legend=EACH, nothing="no OSD here")


def osd_op() -> Panel:
    """Return how full the workers of OSDs are."""
    about = About(
        "Operation workers of an OSD (tp_osd_tp): the mean of its threads.",
        "Below the dashed line.",
        "Above it: all workers of the OSD are busy. Use more OSDs or faster CPUs; the number of shards had no "
        "clear effect.",
        ("OsdOpThreadsSaturated", "OsdSlowOps"),
    )
    return kind("OSD operation workers", about, "osd_op", nothing="no OSD here")


def messenger() -> Panel:
    """Return how full the busiest network threads of daemons are."""
    about = About(
        "The busiest network thread (msgr-worker-N) of each Ceph daemon and client.",
        "Below the dashed line, and it grows with the load.",
        "Above it. Near 100 % with few messages, the thread is spinning without work (fixed by ceph#53477): check "
        "the message rate before you add threads.",
        ("MessengerSaturated",),
    )
    return kind("Messengers", about, "messenger", nothing="no Ceph daemon or client in user space here")


def finisher() -> Panel:
    """Return how full the completion threads of OSDs are."""
    about = About(
        "The busiest thread of an OSD that completes work items one at a time: finishers and kv_final.",
        "Below the dashed line.",
        "Above it: completions wait for each other. Use more OSDs; sharded finishers (Luminous, Mimic) no longer "
        "exist.",
        ("FinisherSaturated", "KvSyncSaturated"),
    )
    return kind(
        "OSD completions",
        about,
        "finisher|kv_final",
        legend=EACH,
        nothing="no OSD here",
    )


def writeback() -> Panel:
    """Return how full the writeback of each backing device is."""
    about = About(
        "Writeback of each backing device: `ceph-1` is the first CephFS mount, others are disks. A device has one "
        "worker at a time, regardless of how many processes write.",
        "Below the dashed line.",
        "Above it while the benchmark waits for writeback: a second mount (noshare) has a second worker. It was the "
        "limit at 70 to 80 % of a CPU.",
        ("WritebackWorkerSaturated",),
    )
    return kind("Writeback by device", about, "writeback_worker", nothing="nothing was written back yet")


def kswapd() -> Panel:
    """Return how full page reclaim is."""
    about = About(
        "kswapd of each NUMA node, which frees page cache in the background.",
        "Any value, even 100 %, while no task has to reclaim memory itself (on the right).",
        "Full while tasks reclaim memory themselves.",
        ("KswapdSaturated",),
    )
    return kind("kswapd by node", about, "kswapd", nothing="kswapd has not run yet")


def stalls() -> Panel:
    """Return how often tasks have to reclaim memory themselves."""
    about = About(
        "Allocations per second that had to reclaim memory themselves because kswapd could not keep up.",
        "0: no task waits for kswapd, however busy it is.",
        "Above 0 for a longer time: the benchmark's own threads search for free pages, which causes latency peaks.",
        ("KswapdSaturated",),
    )
    expr = f"rate(pinchpoint_memory_allocation_stalls_total{{{HOST}}}[$__rate_interval])"
    return lines(
        "Tasks that reclaim memory themselves",
        about,
        Query(f"topk(8, max by (instance) ({expr}))", "{{instance}}"),
        unit="cps",
        nothing="no host reports its allocation stalls",
    )


def workers() -> Panel:
    """Return how full other kernel threads are."""
    about = About(
        "The busiest kernel thread of other kinds: block layer (kblockd), local file systems, device mapper, Ceph's "
        "kernel client, network work queues, softirq, journals.",
        "Low: 12 % of a CPU for kblockd did no harm on a raw NVMe device.",
        "One of them is full: it is serial, and all I/O goes through it.",
        ("SoftirqSaturated", "DiskSaturated", "WritebackWorkerSaturated"),
    )
    return kind(
        "Other kernel threads",
        about,
        names(KERNEL, ("writeback_worker",)),
        legend=EACH,
        nothing="no kernel thread of these kinds has run yet",
    )


def number() -> Panel:
    """Return how many threads there are."""
    about = About(
        "Threads of each owner.",
        "The same during a phase.",
        "Growing steadily, or jumping: threads are created for each request, and the shortest-lived ones appear "
        "only in their process's total.",
        ("docs/verdict.md",),
    )
    expr = f"sum by (instance, owner) (pinchpoint_threads{{{HOST}}}) > 0"
    return lines(
        "Threads, by owner",
        about,
        Query(f"{fullest(expr)}", WHERE),
        unit="none",
        decimals=0,
        nothing="no thread is followed",
    )


PROBES = "tasks|kworkers"
"""The probes that read threads."""


def lost() -> Panel:
    """Return how many samples are lost."""
    about = About(
        "Share of thread samples that were due but never taken, because the sampler got no CPU.",
        "0 %.",
        "Above the dashed line: totals are still correct, but peaks are missed and kernel workers are mistaken "
        "for each other.",
        ("SamplerLate", "PinchpointCostHigh"),
    )

    def rate(what: str) -> str:
        selector = f'{{{HOST}, probe=~"{PROBES}"}}'
        return f"sum by (instance, probe) (rate(pinchpoint_sampler_{what}_total{selector}[$__rate_interval]))"

    return lines(
        "Samples lost",
        about,
        Query(f"topk(8, {rate('lost_samples')} / ({rate('lost_samples')} + {rate('samples')}))", "{{probe}}$at"),
        Query(f'max(pinchpoint_alert_threshold{{{HOST}, alert="SamplerLate"}})', "too many from"),
        unit="percentunit",
        limit="too many from",
        nothing="no exporter reads threads",
    )


def seen() -> Panel:
    """Return how threads are read, and how many cannot be read."""
    about = About(
        "How each host reads its threads, how many it reads, and how many it lacks permission to read. "
        "`schedstat` has run-queue time; `stat` does not, and rounds to 10 ms.",
        "`schedstat`, and no unreadable threads.",
        "`stat`: threads that wait for a CPU look idle. Unreadable threads: start the exporter as root, otherwise "
        "they are missing above.",
        ("ProbeFailing", "SamplerLate"),
    )

    def info(value: str) -> str:
        source = f"max by (instance, source, file, reason) (pinchpoint_task_source_info{{{HOST}}})"
        return f"{source} * on (instance) group_left () max by (instance) ({value}{{{HOST}}})"

    return rows(
        "How threads are seen",
        about,
        {
            "followed": Query(info("pinchpoint_tasks_followed")),
            "unread": Query(info("pinchpoint_tasks_unreadable")),
        },
        {
            "instance": Column("on", width=130, several=True),
            "source": Column("by", width=85),
            "followed": Column("threads", width=70, decimals=0),
            "unread": Column("unread", width=65, decimals=0),
            "reason": Column("because"),
        },
        sort="unread",
        nothing="no exporter reads threads",
    )
