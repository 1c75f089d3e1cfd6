"""Alerts about metadata servers, and about a daemon that stands still, on a real cluster under real load."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable

from lab import loads
from lab.cluster import Cluster
from lab.observer import Observer, started
from pinchpoint.ceph import follower
from polling import until

Clusters = Callable[..., Cluster]

SECONDS = 90.0
"""Longest wait for one step; an idle machine needs a third of it."""
CACHE_LIMIT = 8 << 20
"""In bytes: about 2,500 open files."""
SLOW = 0.05
"""Seconds that an OSD waits before each operation. At 0.02 s it still keeps up with 28 new files a second."""


def wait_for_check(cluster: Cluster, check: str) -> float:
    """Return the Unix time at which the monitor said so, to the pace of asking."""
    assert until(SECONDS, lambda: check in cluster.health(), pause=0.2), f"no {check}: {cluster.health()}"
    return time.time()


def number(observer: Observer, expr: str) -> float:
    value = observer.value(expr)
    assert value is not None, expr
    return value


def test_a_full_cache_is_told_before_ceph_warns_and_the_command_of_the_alert_ends_it(
    clusters: Clusters, observer: Observer
) -> None:
    # The default before 2021; the one since, 262144, is reached by the same load, only later.
    cluster = clusters(options={"mds": {"mds_recall_warning_threshold": "32768"}})
    # By the monitor: a limit that was set through the admin socket would win over the alert's command.
    cluster.command("config set", who="mds", name="mds_cache_memory_limit", value=str(CACHE_LIMIT))
    observer.watch(cluster)
    observer.daemon(cluster, "mds.a")

    with loads.metadata(cluster, "hold", files=2200).wait_ready():
        began = time.time()
        with loads.metadata(cluster, "hold", files=15_000, ramp=1900, rate=50) as load:
            near = observer.wait_for_alert("MdsCacheNearLimit", SECONDS, cluster=cluster.fsid)
            assert "MDS_CACHE_OVERSIZED" not in cluster.health()
            warned = wait_for_check(cluster, "MDS_CACHE_OVERSIZED")
            print(f"MdsCacheNearLimit {started(near) - began:.1f} s, MDS_CACHE_OVERSIZED {warned - began:.1f} s")
            assert started(near) < warned

            load.wait_ready()
            recalled = wait_for_check(cluster, "MDS_CLIENT_RECALL")
            oversized = observer.wait_for_alert("MdsCacheOversized", SECONDS, cluster=cluster.fsid)
            recall = observer.wait_for_alert("MdsClientRecall", SECONDS)
            print(f"MdsCacheOversized {started(oversized) - began:.1f} s")
            print(f"MDS_CLIENT_RECALL {recalled - began:.1f} s, MdsClientRecall {started(recall) - began:.1f} s")

            oversized = observer.wait_for_alert("MdsCacheOversized", SECONDS, cluster=cluster.fsid)
            description = oversized["annotations"]["description"]
            command = re.search(r"ceph config set mds mds_cache_memory_limit (\d+)", description)
            assert command, description
            mds = observer.daemon(cluster, "mds.a")
            assert int(command[1]) >= 2 * number(observer, f'pinchpoint_mds_cache_peak_bytes{{daemon="{mds}"}}')
            environment = os.environ | cluster.environment()
            raised = time.time()
            subprocess.run(shlex.split(command[0]), env=environment, check=True, timeout=SECONDS)
            observer.wait_until_gone("MdsCacheOversized", SECONDS, cluster=cluster.fsid)
            assert until(
                SECONDS,
                lambda: not observer.alerts(alertname="MdsCacheOversized", name="MDS_CACHE_OVERSIZED"),
                pause=0.5,
            )
            observer.wait_until_gone("MdsCacheNearLimit", SECONDS, cluster=cluster.fsid)
            print(f"{command[0]}: both gone after {time.time() - raised:.1f} s")
            mds = observer.daemon(cluster, "mds.a")
            assert number(observer, f'pinchpoint_mds_caps{{daemon="{mds}"}}') > 17_000  # all files still are open

    # What was recalled is forgotten by half in 60 s (mds_recall_max_decay_rate), or with the session.
    ended = time.time()
    observer.wait_until_gone("MdsClientRecall", SECONDS)
    print(f"MdsClientRecall gone {time.time() - ended:.1f} s after the clients")
    assert until(SECONDS, lambda: not cluster.health(), pause=0.5), cluster.health()


def test_a_journal_that_grows_is_told_before_ceph_warns_and_ends_with_its_cause(
    clusters: Clusters, observer: Observer
) -> None:
    # Ceph's own limits: 128 segments, and a warning from 256 on. Only the segments are smaller than 1024 events, so
    # that a few clients fill them; the first one as many as the journal may keep, with an event for each file.
    cluster = clusters(options={"mds": {"mds_log_events_per_segment": "16"}})
    observer.watch(cluster)
    observer.daemon(cluster, "mds.a")
    with loads.metadata(cluster, "hold", files=2100).wait_ready():
        cluster.set_option("osd.0", "osd_debug_inject_dispatch_delay_duration", SLOW)
        cluster.set_option("osd.0", "osd_debug_inject_dispatch_delay_probability", 1)
        began = time.time()
        with loads.metadata(cluster, "create", processes=2, rate=12, keep=True):
            growing = observer.wait_for_alert("MdsJournalGrowing", SECONDS, cluster=cluster.fsid)
            assert "MDS_TRIM" not in cluster.health()
            warned = wait_for_check(cluster, "MDS_TRIM")
            print(f"MdsJournalGrowing {started(growing) - began:.1f} s, MDS_TRIM {warned - began:.1f} s")
            assert started(growing) < warned

            behind = observer.wait_for_alert("MdsTrimBehind", SECONDS, cluster=cluster.fsid)
            print(f"MdsTrimBehind {started(behind) - began:.1f} s: {behind['annotations']['description']}")
            mds = observer.daemon(cluster, "mds.a")
            added, trimmed = (
                number(observer, f'rate(pinchpoint_mds_log_segments_{what}_total{{daemon="{mds}"}}[15s])')
                for what in ("added", "trimmed")
            )
            assert added > 2 * trimmed
            cluster.set_option("osd.0", "osd_debug_inject_dispatch_delay_probability", 0)

    ended = time.time()
    observer.wait_until_gone("MdsTrimBehind", SECONDS, cluster=cluster.fsid)
    assert until(SECONDS, lambda: not observer.alerts(alertname="MdsTrimBehind", name="MDS_TRIM"), pause=0.5)
    observer.wait_until_gone("MdsJournalGrowing", SECONDS, cluster=cluster.fsid)
    print(f"both gone after {time.time() - ended:.1f} s")
    assert until(SECONDS, lambda: not cluster.health(), pause=0.5), cluster.health()


def test_a_frozen_osd_is_named_and_blinds_nobody_else(clusters: Clusters, observer: Observer) -> None:
    # Ceph's own default is 30 s: the same, 10 s later.
    cluster = clusters(osds=2, options={"mds": {"osd_op_complaint_time": "20"}})
    observer.watch(cluster)
    # Of two OSDs the one with the journal. The other one on the same host is no witness enough for the monitor to call
    # it down (mon_osd_min_down_reporters, mon_osd_reporter_subtree_level).
    identity = int(cluster.command("osd map", pool="cephfs.meta", object="200.00000001")["acting_primary"])
    osd = cluster.daemon(f"osd.{identity}")
    frozen = observer.daemon(cluster, osd.name)
    observer.daemon(cluster, f"osd.{1 - identity}")

    with loads.metadata(cluster, "create", processes=2, rate=20).wait_ready():
        observer.wait_for(f'pinchpoint_osd_ops_total{{daemon="{frozen}"}} > 0')
        osd.freeze()
        began = time.time()
        stuck = observer.wait_for_alert("DaemonStuck", SECONDS, cluster=cluster.fsid)
        assert "MDS_SLOW_METADATA_IO" not in cluster.health()
        slow = observer.wait_for_alert("MdsSlowMetadataIO", SECONDS)
        window = f"{time.time() - started(stuck):.0f}s"
        print(f"DaemonStuck {started(stuck) - began:.1f} s, MdsSlowMetadataIO {started(slow) - began:.1f} s")

        # Itself: blind, and nothing old is passed off as new.
        frozen = observer.daemon(cluster, osd.name)
        others = [observer.daemon(cluster, name) for name in (f"osd.{1 - identity}", "mds.a")]
        named = observer.alerts(alertname="DaemonStuck", cluster=cluster.fsid)
        assert {alert["labels"]["daemon"].partition("@")[0] for alert in named} == {osd.name}
        assert number(observer, f'pinchpoint_ceph_socket_up{{daemon="{frozen}"}}') == 0
        assert observer.query(f'pinchpoint_ceph_socket_problem_info{{daemon="{frozen}",reason="stopped"}} == 1')
        assert observer.query(f'{{__name__=~"pinchpoint_osd_.+",daemon="{frozen}"}}') == []

        # The others: how long their answers took is another number after each round, and each scrape saw a new one.
        for daemon in others:
            seen = f'pinchpoint_ceph_socket_duration_seconds{{daemon="{daemon}"}}[{window}]'
            share = number(observer, f"changes({seen}) / (count_over_time({seen}) - 1)")
            print(f"{daemon}: new answers in {share:.0%} of the scrapes of {window}")
            assert share > 0.8
            assert number(observer, f'min_over_time(pinchpoint_ceph_socket_up{{daemon="{daemon}"}}[{window}])') == 1
        assert observer.query(f'{{__name__=~"pinchpoint_osd_.+",daemon="{others[0]}"}}')
        lost, taken = (f"rate(pinchpoint_sampler_{what}samples_total[{window}])" for what in ("lost_", ""))
        share = number(observer, f"max({lost} / ({lost} + {taken}))")
        scrape = number(observer, f'quantile_over_time(0.5, scrape_duration_seconds{{job="pinchpoint"}}[{window}])')
        print(f"at most {share:.1%} of a probe's samples lost, a scrape takes {scrape * 1000:.0f} ms")
        assert share < 0.2
        assert scrape < follower.TIMEOUT  # it waits for no daemon
        assert number(observer, f'min_over_time(up{{job="pinchpoint"}}[{window}])') == 1

        osd.thaw()
        thawed = time.time()
        observer.wait_until_gone("DaemonStuck", SECONDS, cluster=cluster.fsid)
        observer.wait_for(f'pinchpoint_osd_ops_total{{daemon="{observer.daemon(cluster, osd.name)}"}}')
        observer.wait_until_gone("MdsSlowMetadataIO", SECONDS)
        print(f"all gone after {time.time() - thawed:.1f} s")
        # Ceph goes on to tell of slow pings between OSDs: it looks at means of up to 15 minutes.
        assert until(SECONDS, lambda: not any(check.startswith("MDS_") for check in cluster.health()), pause=0.5)
