"""The hosts that run the benchmark: what they wait for, and whether they cause the wait themselves."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.kit.about import About, board_link
from dashboards.kit.board import board, folded
from dashboards.kit.colours import WAIT_COLOURS
from dashboards.kit.over_time import lines
from dashboards.kit.panel import Panel
from dashboards.kit.present import numbers
from dashboards.kit.queries import FULL, HOST, JUDGED, Query, limit_of_alert
from dashboards.kit.tables import Column, matrix, rows
from pinchpoint.report.palette import SERIES, WAIT_WORDS

OURS = f"{HOST}, {JUDGED}"
"""Hosts that run only ranks do not know the run, so they count for every run."""
LEAST = 0.005
"""Share of the time below which a wait class is left out of a table."""
NODE_SCRAPE = 5
"""Seconds between two scrapes of node_exporter (compose/prometheus.yml)."""
CLIENT_THREADS = 'serves=~"(.*,)?client(,.*)?"'
BENCHMARK_THREADS = 'resource="benchmark"'


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-clients",
        "Pinchpoint / Clients",
        "What the hosts that run the benchmark wait for, and whether they cause the wait themselves.",
        variables=("host", "at", "run"),
    )
    tiles = (instances, blind, shut_out, depth, slowest, imbalance)
    for panel in (*tiles, where, waits, hosts, inflight, latency, operations, threads, dirty, reclaim):
        made.with_panel(panel())
    made.with_row(folded("Devices and network", busy(), network(), disks(), round_trip()))
    return made


def rate(metric: str, labels: str, selector: str = "") -> str:
    """Return a query for the rate of a counter of Ceph clients, summed by `labels`."""
    return f"sum by ({labels}) (rate(pinchpoint_ceph_client_{metric}_total{{{HOST}{selector}}}[$__rate_interval]))"


def share(metric: str, selector: str) -> str:
    """Return a query for the share of the time in which resources are busy, or saturated."""
    used = f"rate(pinchpoint_resource_{metric}_seconds_total{{{HOST}, {selector}}}[$__rate_interval])"
    return f"clamp_max(max by (instance, resource, owner) ({used}), 1)"


def full(resources: str) -> Query:
    """Return the query for the thresholds of resources."""
    expr = f'max by (resource) (pinchpoint_resource_threshold_ratio{{resource=~"{resources}"}})'
    return Query(expr, f"{FULL} ({{{{resource}}}})")


def wait_seconds(labels: str) -> str:
    """Return a query for how many processes of the benchmark are in each wait class."""
    seconds = f"rate(pinchpoint_workload_seconds_total{{{OURS}}}[$__rate_interval])"
    return f"sum by ({labels}) (max by (benchmark, run, instance, wait) ({seconds}))"


def mean_latency(labels: str, selector: str = "") -> str:
    """Return a query for the mean time of requests, by `labels`."""
    requests = f"({rate('requests', labels, selector)} > 0)"
    return f"{rate('inflight_seconds', labels, selector)} / {requests}"


def of_node(metric: str, resource: str) -> str:
    """Return a query for node_exporter's bytes per second, for those devices of the chosen hosts that are a `resource`.

    node_exporter has a port of its own, so hosts are matched without the port.
    """
    ours = f'group by (instance, owner) (pinchpoint_resource_busy_seconds_total{{{HOST}, resource="{resource}"}})'
    ours = f'label_replace({_host(ours)}, "device", "$1", "owner", "(.*)")'
    theirs = _host(f"max by (instance, device) (rate(node_{metric}_total[$__rate_interval]))")
    return f"sum by (host) ({theirs} and on (host, device) {ours})"


def _host(expr: str) -> str:
    return f'label_replace({expr}, "host", "$1", "instance", "(.+?)(:[0-9]+)?")'


def instances() -> Panel:
    """Return how many instances of Ceph clients there are."""
    about = About(
        "Mounts and sessions of Ceph clients on the selected hosts. A kernel mount has one writeback worker and "
        "one set of connections, regardless of the number of processes that use it.",
        "Several on each host: four containers with one mount each doubled the score in a public diary (3.94 to 8.48).",
        "One on a host that is full: its writeback worker or messenger thread is the limit of the whole host.",
        ("WritebackWorkerSaturated", "InflightCollapsed"),
    )
    expr = f"sum(max by (instance, client) (pinchpoint_ceph_client_instances{{{HOST}}}))"
    return numbers("Client instances", about, Query(expr), nothing="none", size=(4, 3))


def blind() -> Panel:
    """Return how many instances have no data."""
    about = About(
        "Instances without data: no admin socket, no permission to read debugfs, or no answer.",
        "0.",
        "More: depth and latency below do not include them, and the verdict attributes their waiting to the client.",
        ("DaemonBlind",),
    )
    expr = f"sum(max by (instance, client) (pinchpoint_ceph_client_blind_instances{{{HOST}}}))"
    return numbers("Blind instances", about, Query(expr), nothing="none", size=(4, 3))


def shut_out() -> Panel:
    """Return how many mounts the cluster has blocklisted."""
    about = About(
        "Kernel mounts that are blocklisted, or were in the last 30 s: what they wrote is lost.",
        "0.",
        "One is enough: the run is void.",
        ("ClientBlocklisted",),
    )
    # Other clients do not report it; a missing value is not 0.
    told = f"max by (instance, client) (max_over_time(pinchpoint_ceph_client_blocklisted{{{HOST}}}[30s]))"
    return numbers("Blocklisted", about, Query(f"sum({told})"), nothing="not reported", size=(4, 3))


def depth() -> Panel:
    """Return the mean number of requests in flight."""
    about = About(
        "Average number of requests in flight to OSDs, all clients together. Throughput is this number divided by "
        "latency.",
        "In bandwidth phases: several per instance.",
        "About 1 per instance: the client sends one request at a time, however fast the cluster could be.",
        ("InflightCollapsed", "ClientOverloaded"),
    )
    expr = f"""sum({rate("inflight_seconds", "instance", ', target="osd"')})"""
    return numbers("At OSDs now", about, Query(expr), decimals=1, sparkline=True, size=(4, 3))


def slowest() -> Panel:
    """Return the slowest host."""
    about = About(
        "The host whose requests to OSDs take longest on average.",
        "About as long as on the other hosts.",
        "Far longer than on the other hosts: the cause is its network, its CPUs, or too many processes.",
        ("ClientOverloaded", "DeepIdleInLatencyPhase"),
    )
    latency = mean_latency("instance", ', target="osd"')
    return numbers(
        "Slowest to OSDs", about, Query(f"topk(1, {latency})", "{{instance}}"), unit="s", name=True, size=(4, 3)
    )


def imbalance() -> Panel:
    """Return how unevenly the hosts work."""
    about = About(
        "Requests of the busiest host divided by the mean of all hosts that run the benchmark.",
        "Near 1: all hosts do the same amount of work.",
        "Above 1.5: the slow hosts finish last, and a phase ends only when the last host is done.",
        ("HostsDiffer", "docs/verdict.md"),
    )
    requests = f"{rate('requests', 'instance')} and on (instance) pinchpoint_workload_processes{{{OURS}}} > 0"
    return numbers(
        "Host imbalance",
        about,
        Query(f"max({requests}) / (avg({requests}) > 0) and on () (count({requests}) > 1)"),
        decimals=2,
        nothing="one host",
        size=(4, 3),
    )


def where() -> Panel:
    """Return the wait classes of each host."""
    words = ", ".join(f"{wait}: {text}" for wait, text in WAIT_WORDS.items())
    about = About(
        f"How the benchmark's processes spend their time on each host ({words}).",
        "All hosts look alike and mostly wait for what you want to measure.",
        "One host waits for something different from the others: check it first.",
        ("docs/verdict.md", "HostsDiffer"),
    )
    found = wait_seconds("instance, wait")
    query = Query(f"{found} / on (instance) group_left () (sum by (instance) ({found}) > 0) > {LEAST}")
    return matrix(
        "Waits of each host",
        about,
        query,
        row="instance",
        column="wait",
        first=Column("host", width=150),
        others={wait: Column(wait, bar=colour, width=100) for wait, colour in WAIT_COLOURS.items()},
        unit="percentunit",
        decimals=0,
        size=(12, 7),
        nothing="no benchmark runs on these hosts",
    )


def waits() -> Panel:
    """Return the wait classes over time."""
    about = About(
        "How the benchmark's processes spend their time, over all selected hosts.",
        "Steady within a phase.",
        "`client`, `writeback`, `runqueue` and `lock` are limits of the hosts themselves, not of the cluster.",
        ("docs/verdict.md",),
    )
    found = wait_seconds("wait")
    return lines(
        "Waits over time",
        about,
        Query(f"{found} / on () group_left () (sum({found}) > 0)", "{{wait}}"),
        unit="percentunit",
        colours=WAIT_COLOURS,
        stack=True,
        most=1,
        size=(12, 7),
        nothing="no benchmark runs on these hosts",
    )


TARGETS = {"/^mds /": WAIT_COLOURS["mds"], "/^osd /": WAIT_COLOURS["osd"]}


def inflight() -> Panel:
    """Return the requests in flight."""
    about = About(
        "Average number of Ceph client requests waiting for an answer, by target.",
        "Steady. For OSDs in bandwidth phases: several per instance.",
        "1 per instance: synchronous I/O of an old kernel, or a benchmark with depth 1. Hundreds with a latency "
        "of 0.5 s: a queue that the client itself causes.",
        ("InflightCollapsed", "ClientOverloaded"),
    )
    query = Query(rate("inflight_seconds", "instance, client, target"), "{{target}} {{client}}$at")
    return lines("In flight", about, query, unit="short", colours=TARGETS, size=(8, 9))


def latency() -> Panel:
    """Return how long requests take."""
    about = About(
        "How long a request of a Ceph client to an MDS or an OSD takes on average.",
        "Steady; a millisecond or less on flash with 10 GbE or faster.",
        "It rises with the requests in flight while their rate does not: a queue. The dashed line appears when "
        "latency comes near it.",
        ("ClientOverloaded", "OsdSlowOps", "MdsSlowRequest"),
    )
    found = mean_latency("instance, client, target")
    # If it were always drawn, it would flatten the lines of a healthy cluster.
    threshold = limit_of_alert("ClientOverloaded")
    limit = f"{threshold} < 10 * max({found})"
    return lines(
        "Latency of requests",
        about,
        Query(found, "{{target}} {{client}}$at"),
        Query(limit, f"{FULL} (ClientOverloaded)"),
        unit="s",
        colours=TARGETS,
        size=(8, 9),
    )


def operations() -> Panel:
    """Return how long the client's operations take."""
    about = About(
        "Average time of an operation as the client's user sees it, including the client's queue, locks and cache.",
        "About as long as the requests in the neighbouring panel; far shorter where a cache answers.",
        "Far longer than the requests: the client itself is slow because of its lock, its threads or a full cache.",
        ("CephClientSaturated", "ClientOverloaded"),
    )
    labels = "instance, client, operation"
    query = Query(f"{rate('io_seconds', labels)} / ({rate('ios', labels)} > 0)", "{{operation}} {{client}}$at")
    return lines(
        "Latency of operations",
        about,
        query,
        unit="s",
        colours={
            "/^read/": WAIT_COLOURS["network"],
            "/^write/": WAIT_COLOURS["osd"],
            "/^f?sync/": WAIT_COLOURS["writeback"],
        },
        size=(8, 9),
        nothing="no client reports this",
    )


def threads() -> Panel:
    """Return the threads of clients and benchmark."""
    about = About(
        "How busy the serial threads and locks of Ceph clients are, and the busiest thread of the benchmark.",
        "Below the dashed lines.",
        "A thread of the client is full: use more processes or mounts. The benchmark's own thread is full: use "
        "more ranks.",
        ("CephClientSaturated", "BenchmarkThreadSaturated"),
    )
    found = f"{share('busy', CLIENT_THREADS)} or {share('busy', BENCHMARK_THREADS)}"
    return lines(
        "Threads of client and benchmark",
        about,
        Query(found, "{{resource}} of {{owner}}$at"),
        full("rados_client|benchmark"),
        unit="percentunit",
        most=1,
        size=(8, 9),
    )


def dirty() -> Panel:
    """Return the dirty page cache."""
    about = About(
        "Page cache waiting to be written and being written, as a share of the amount at which writers have to "
        "wait (vm.dirty_ratio and similar).",
        "Below 100 %, possibly as a sawtooth.",
        "At 100 %: writers wait for writeback. If a writeback worker is also full (next panel), it is the limit.",
        ("WritebackWorkerSaturated",),
    )

    def of(metric: str, legend: str) -> Query:
        threshold = f"(max by (instance) (pinchpoint_memory_dirty_threshold_bytes{{{HOST}}}) > 0)"
        share = f"max by (instance) (pinchpoint_memory_{metric}_bytes{{{HOST}}}) / on (instance) {threshold}"
        return Query(share, f"{legend}$at")

    return lines(
        "Dirty pages against their threshold",
        about,
        of("dirty", "dirty"),
        of("writeback", "written back"),
        unit="percentunit",
        colours={"/^dirty/": WAIT_COLOURS["writeback"], "/^written/": WAIT_COLOURS["disk"]},
        size=(8, 9),
    )


def reclaim() -> Panel:
    """Return the workers that write back and reclaim."""
    about = About(
        "How busy the workers are that write back each file system's pages or free memory.",
        "Below the dashed lines. kswapd may be at 100 %: it was never the limit in a public diary of 18 runs.",
        "A Ceph mount's writeback worker is above its line: it serves all processes of the mount. Mount several "
        "times (`noshare`).",
        ("WritebackWorkerSaturated", "KswapdSaturated"),
    )
    return lines(
        "Writeback and reclaim",
        about,
        Query(share("busy", 'resource=~"writeback_worker|kswapd|memory"'), "{{resource}} of {{owner}}$at"),
        full("writeback_worker|kswapd"),
        unit="percentunit",
        most=1,
        size=(8, 9),
    )


def busy() -> Panel:
    """Return how busy links and disks are."""
    about = About(
        "Share of the time in which a link has more to send than it can, a disk has requests, or the busiest CPU "
        "handles packets.",
        "Below the dashed lines, or at them if you want to measure the devices.",
        "A link or packet-handling CPU is full on one host only. A fast disk may always be busy without being "
        "full: a queue and a rising wait decide.",
        ("NicSaturated", "DiskSaturated", "SoftirqSaturated"),
    )
    return lines(
        "NIC and disk, busy",
        about,
        Query(share("busy", 'resource=~"link|disk|softirq_cpu"'), "{{resource}} of {{owner}}$at"),
        full("link|disk|softirq_cpu"),
        unit="percentunit",
        most=1,
        size=(8, 9),
    )


def network() -> Panel:
    """Return the bytes on the network."""
    about = About(
        "Bytes that each host's links receive (upwards) and send (downwards), from node_exporter.",
        "Similar on all hosts.",
        "A fixed ceiling: the speed of the link, or of a switch in between.",
        ("NicSaturated",),
    )
    return lines(
        "Network",
        about,
        Query(of_node("network_receive_bytes", "link"), "receives {{host}}", NODE_SCRAPE),
        Query(of_node("network_transmit_bytes", "link"), "sends {{host}}", NODE_SCRAPE),
        unit="binBps",
        colours={"/^receives/": WAIT_COLOURS["network"], "/^sends/": WAIT_COLOURS["osd"]},
        size=(8, 9),
        nothing="no node_exporter",
    )


def disks() -> Panel:
    """Return the bytes of the disks."""
    about = About(
        "Bytes that each host's disks read (upwards) and write (downwards), from node_exporter.",
        "Little on a client: its data goes over the network.",
        "High on a client that writes to the cluster: it swaps, it logs, or it is also a server.",
        ("DiskSaturated",),
    )
    return lines(
        "Disks",
        about,
        Query(of_node("disk_read_bytes", "disk"), "reads {{host}}", NODE_SCRAPE),
        Query(of_node("disk_written_bytes", "disk"), "writes {{host}}", NODE_SCRAPE),
        unit="binBps",
        colours={"/^reads/": WAIT_COLOURS["network"], "/^writes/": WAIT_COLOURS["osd"]},
        size=(8, 9),
        nothing="no node_exporter",
    )


def round_trip() -> Panel:
    """Return the TCP round trip."""
    about = About(
        "Smoothed TCP round-trip time of client and benchmark connections (median, weighted by what each sends), "
        "and the shortest of the last minutes. It includes the peer's delay before it acknowledges.",
        "0.05 to 0.2 ms within one network, close to the shortest.",
        "Far above the shortest: queues in the network, or CPUs that have to wake up (0.178 ms with deep idle states, "
        "0.054 ms without).",
        ("DeepIdleInLatencyPhase", "NicSaturated"),
    )

    def of(metric: str, legend: str) -> Query:
        clients = f'{HOST}, owner!~"(mon|mgr|mds|osd)[.].*"'
        expr = f"max by (instance, owner) (pinchpoint_tcp_{metric}_seconds{{{clients}}})"
        return Query(expr, f"{legend} {{{{owner}}}}$at")

    return lines(
        "TCP round trip",
        about,
        of("rtt", "now"),
        of("rtt_min", "shortest"),
        unit="s",
        colours={"/^now/": WAIT_COLOURS["network"], "/^shortest/": SERIES[7]},
        size=(8, 9),
        nothing="no connections of clients in user space",
    )


def hosts() -> Panel:
    """Return the hosts side by side."""
    about = About(
        "What each host that runs the benchmark, or has a Ceph client, contributes.",
        "All hosts contribute alike.",
        "A host with as many processes but fewer requests, or as many requests but higher latency, is slower than "
        "the others, and the whole phase waits for it.",
        ("HostsDiffer", "InflightCollapsed"),
    )
    processes = f"sum by (instance) (max by (benchmark, run, instance) (pinchpoint_workload_processes{{{OURS}}}))"
    mounts = f"sum by (instance) (pinchpoint_ceph_client_instances{{{HOST}}})"
    unseen = f"sum by (instance) (pinchpoint_ceph_client_blind_instances{{{HOST}}})"
    osd, mds = ', target="osd"', ', target="mds"'
    link = (
        f'max by (instance) (rate(pinchpoint_resource_busy_seconds_total{{{HOST}, resource="link"}}[$__rate_interval]))'
    )
    ours = f"and on (instance) ({processes} > 0 or {mounts})"
    return rows(
        "Hosts side by side",
        about,
        {
            "processes": Query(f"{processes} {ours}"),
            "mounts": Query(mounts),
            "unseen": Query(unseen),
            "mds": Query(rate("requests", "instance", mds)),
            "mds_latency": Query(mean_latency("instance", mds)),
            "osd": Query(rate("requests", "instance", osd)),
            "osd_latency": Query(mean_latency("instance", osd)),
            "depth": Query(rate("inflight_seconds", "instance", osd)),
            "link": Query(f"{link} {ours}"),
        },
        {
            "instance": Column(
                "host", width=150, link=board_link("threads", "var-host=${__value.raw}"), link_title="Its threads"
            ),
            "processes": Column("processes", width=90),
            "mounts": Column("instances", width=90),
            "unseen": Column("blind", width=70),
            "mds": Column("to MDS", unit="reqps", width=110),
            "mds_latency": Column("latency", unit="s", width=90),
            "osd": Column("to OSDs", unit="reqps", width=110),
            "osd_latency": Column("latency ", unit="s", width=90),
            "depth": Column("in flight", width=90, decimals=1),
            "link": Column("link busy", unit="percentunit", bar=WAIT_COLOURS["network"], decimals=0),
        },
        size=(24, 7),
        sort="osd",
        nothing="no host with a benchmark or a Ceph client",
    )
