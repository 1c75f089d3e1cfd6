"""Alerts about a frozen daemon, on a real cluster under real load."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping

from lab import loads
from lab.cluster import Cluster
from lab.observer import Observer, started
from pinchpoint.ceph import follower
from polling import until

GROUP = "Alerts before Ceph's own"
Clusters = Callable[..., Cluster]

SECONDS = 90.0
"""Longest wait for one step; an idle machine needs a third of it."""


def test_a_frozen_osd_is_named_and_blinds_nobody_else(
    clusters: Clusters, observer: Observer, measured: MutableMapping[str, str]
) -> None:
    # Ceph's default is 30 s: the effect is the same, 10 s later.
    cluster = clusters(osds=2, options={"mds": {"osd_op_complaint_time": "20"}})
    observer.watch(cluster)
    # Freezes the one of the two OSDs that has the journal. The other, on the same host, is not enough of a witness for
    # the monitor to mark it down (mon_osd_min_down_reporters, mon_osd_reporter_subtree_level).
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
        measured["DaemonStuck after"] = f"{started(stuck) - began:.1f} s"
        measured["before MdsSlowMetadataIO by"] = f"{started(slow) - started(stuck):.1f} s"

        # The frozen OSD: blind, and no old data is passed off as new.
        frozen = observer.daemon(cluster, osd.name)
        others = [observer.daemon(cluster, name) for name in (f"osd.{1 - identity}", "mds.a")]
        named = observer.alerts(alertname="DaemonStuck", cluster=cluster.fsid)
        assert {alert["labels"]["daemon"].partition("@")[0] for alert in named} == {osd.name}
        assert observer.number(f'pinchpoint_ceph_socket_up{{daemon="{frozen}"}}') == 0
        assert observer.query(f'pinchpoint_ceph_socket_problem_info{{daemon="{frozen}",reason="stopped"}} == 1')
        assert observer.query(f'{{__name__=~"pinchpoint_osd_.+",daemon="{frozen}"}}') == []

        # The others: the duration of their answers changes with each round, and each scrape saw a new value.
        for daemon in others:
            seen = f'pinchpoint_ceph_socket_duration_seconds{{daemon="{daemon}"}}[{window}]'
            share = observer.number(f"changes({seen}) / (count_over_time({seen}) - 1)")
            measured["new answers of the others"] = f"{share:.0%} of the scrapes"
            assert share > 0.8
            assert observer.number(f'min_over_time(pinchpoint_ceph_socket_up{{daemon="{daemon}"}}[{window}])') == 1
        assert observer.query(f'{{__name__=~"pinchpoint_osd_.+",daemon="{others[0]}"}}')
        lost, taken = (f"rate(pinchpoint_sampler_{what}samples_total[{window}])" for what in ("lost_", ""))
        share = observer.number(f"max({lost} / ({lost} + {taken}))")
        scrape = observer.number(f'quantile_over_time(0.5, scrape_duration_seconds{{job="pinchpoint"}}[{window}])')
        measured["samples lost"] = f"{share:.1%}"
        assert share < 0.2
        assert scrape < follower.ROUND_TIMEOUT_SECONDS  # no scrape waits for a daemon
        assert observer.number(f'min_over_time(up{{job="pinchpoint"}}[{window}])') == 1

        osd.thaw()
        observer.wait_until_gone("DaemonStuck", SECONDS, cluster=cluster.fsid)
        observer.wait_for(f'pinchpoint_osd_ops_total{{daemon="{observer.daemon(cluster, osd.name)}"}}')
        observer.wait_until_gone("MdsSlowMetadataIO", SECONDS)
        # Ceph keeps reporting slow pings between OSDs: it uses means over up to 15 minutes.
        assert until(SECONDS, lambda: not any(check.startswith("MDS_") for check in cluster.health()), pause=0.5)
