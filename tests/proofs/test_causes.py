"""Alerts on what is behind a slow OSD or MDS, where no thread, disk or lock has to be full."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path

import pytest

from lab import loads
from lab.cluster import Cluster
from lab.observer import Observer, started
from native import Stack
from polling import until
from ports import stack_ports
from proofs.faults import own_network, shaped_loopback

GROUP = "Alerts on causes"
Clusters = Callable[..., Cluster]
Measured = MutableMapping[str, str]

SECONDS = 90.0
"""Longest wait for one step; an idle machine needs a third of it."""
SMALL_BUFFERS = (
    "compression=kNoCompression,max_write_buffer_number=2,min_write_buffer_number_to_merge=1,write_buffer_size=4194304,"
    "level0_file_num_compaction_trigger=2,level0_slowdown_writes_trigger=4,level0_stop_writes_trigger=6,"
    "max_background_compactions=1"
)
"""RocksDB that compacts far more often than with Ceph's defaults, and holds writes back early."""
SMALL_CACHES = {
    "bluestore_cache_autotune": "false",
    "bluestore_cache_size": str(4 << 20),
    "rocksdb_cache_size": str(1 << 20),
    "bluefs_buffered_io": "false",
}
"""Caches that cannot hold the metadata of a pool which is written in seconds: osd_memory_target leaves 128 MiB at least
(osd_memory_cache_min), and the page cache holds what BlueFS reads. An OSD takes them at its start."""


@pytest.mark.long
def test_a_database_that_compacts_all_the_time_is_named_with_the_writes_that_it_holds_back(
    clusters: Clusters, observer: Observer, measured: Measured
) -> None:
    options = {"bluestore_rocksdb_options": SMALL_BUFFERS, "rocksdb_perf": "true"}
    cluster = clusters(store="bluestore", options={"osd": options})
    daemon = observer.daemon(cluster, "osd.0")

    began = time.time()
    with loads.omap(cluster).wait_ready():
        stall = observer.wait_for_alert("RocksdbWriteStall", SECONDS, daemon=daemon)
        compaction = observer.wait_for_alert("CompactionSaturated", SECONDS, owner=daemon)
        share = observer.number(f'rate(pinchpoint_osd_rocksdb_delay_seconds_total{{daemon="{daemon}"}}[15s])')
    measured["RocksdbWriteStall after"] = f"{started(stall) - began:.1f} s"
    measured["CompactionSaturated after"] = f"{started(compaction) - began:.1f} s"
    measured["held back"] = f"{share:.0%} of the time"
    observer.wait_until_gone("RocksdbWriteStall", SECONDS, daemon=daemon)


@pytest.mark.long
def test_a_slow_link_is_seen_in_what_an_osd_cannot_send(tmp_path: Path, measured: Measured) -> None:
    with own_network(), contextlib.ExitStack() as running:
        cluster = running.enter_context(Cluster(store="bluestore"))
        stack = running.enter_context(Stack(tmp_path / "stack", stack_ports(), runs=tmp_path / "runs"))
        observer = Observer(stack)
        daemon = observer.daemon(cluster, "osd.0")
        osd = f'{{owner="{daemon}"}}[15s]'
        waits = f"avg_over_time(pinchpoint_tcp_unsent_bytes{osd}) / rate(pinchpoint_tcp_sent_bytes_total{osd})"
        with loads.rados_bench(cluster, seconds=3, block=64 << 10) as written:
            written.wait(SECONDS)

        with loads.rados_bench(cluster, "rand"):
            window = f'count_over_time(pinchpoint_tcp_unsent_bytes{{owner="{daemon}"}}[30s])'
            assert until(SECONDS, lambda: (observer.value(window) or 0) > 12, pause=0.5)
            measured["waits on a quick link"] = f"{observer.number(waits) * 1000:.1f} ms"
            assert observer.alerts(alertname="MessagesQueued") == []
            with shaped_loopback("50mbit"):
                began = time.time()
                alert = observer.wait_for_alert("MessagesQueued", SECONDS, owner=daemon)
                measured["on one of 50 Mbit/s"] = f"{observer.number(waits) * 1000:.0f} ms"
                measured["MessagesQueued after"] = f"{started(alert) - began:.1f} s"
            observer.wait_until_gone("MessagesQueued", SECONDS)


@pytest.mark.long
def test_two_ranks_that_pass_directories_to_and_fro_are_told_by_what_they_forward(
    clusters: Clusters, observer: Observer, measured: Measured
) -> None:
    cluster = clusters(mdss=2, max_mds=2, options={"mds": {"mds_bal_interval": "3"}})
    observer.daemon(cluster, "mds.a")
    by_cluster = f"on (instance, daemon) group_left () pinchpoint_ceph_daemon_info{{cluster='{cluster.fsid}'}}"

    began = time.time()
    with loads.metadata(cluster, "storm", processes=4):
        alert = observer.wait_for_alert("MdsForwarding", 2 * SECONDS, cluster=cluster.fsid)
        forwards, requests, moved = (
            observer.number(f"sum(rate(pinchpoint_mds_{what}_total[30s]) * {by_cluster})")
            for what in ("forwards", "requests", "inodes_exported")
        )
    measured["MdsForwarding after"] = f"{started(alert) - began:.1f} s"
    measured["forwarded"] = f"{forwards / requests:.0%} of the requests"
    measured["moved"] = f"{moved:.0f} inodes/s"
    observer.wait_until_gone("MdsForwarding", SECONDS)


def test_a_throttle_that_is_set_too_low_is_named(clusters: Clusters, observer: Observer, measured: Measured) -> None:
    cluster = clusters(store="bluestore")
    daemon = observer.daemon(cluster, "osd.0")
    throttle = f'{{daemon="{daemon}",throttle="bluestore_throttle_bytes"}}'
    wait = f"rate(pinchpoint_osd_throttle_wait_seconds_total{throttle}[15s])"
    operations = f'sum(rate(pinchpoint_osd_step_seconds_total{{daemon="{daemon}",step="write_process"}}[15s]))'

    with loads.rados_bench(cluster, block=16 << 10, threads=32):
        observer.wait_for(f"{operations} > 1", SECONDS)
        measured["waits at the default"] = f"{observer.number(f'sum({wait}) / {operations}'):.1%} of the time"
        assert observer.alerts(alertname="OsdThrottleFull") == []
        began = time.time()
        cluster.command("config set", who="osd", name="bluestore_throttle_bytes", value="65536")
        alert = observer.wait_for_alert("OsdThrottleFull", SECONDS, daemon=daemon, throttle="bluestore_throttle_bytes")
        measured["at 64 KiB"] = f"{observer.number(f'sum({wait}) / {operations}'):.0%} of the time"
        measured["OsdThrottleFull after"] = f"{started(alert) - began:.1f} s"
        cluster.command("config rm", who="osd", name="bluestore_throttle_bytes")
        observer.wait_until_gone("OsdThrottleFull", SECONDS, daemon=daemon)


@pytest.mark.long
def test_a_database_that_outgrows_its_device_is_named(
    clusters: Clusters, observer: Observer, measured: Measured
) -> None:
    device = {"bluestore_block_db_create": "true", "bluestore_block_db_size": str(1 << 30)}
    options = {"osd": device | {"bluestore_rocksdb_options": SMALL_BUFFERS}}
    cluster = clusters(store="bluestore", options=options)
    daemon = observer.daemon(cluster, "osd.0")
    used = f'pinchpoint_osd_bluefs_used_bytes{{daemon="{daemon}",device="%s"}}'
    assert observer.wait_for(f"{used % 'slow'} == 0", SECONDS)

    began = time.time()
    with loads.omap(cluster).wait_ready():
        alert = observer.wait_for_alert("BluefsSpillover", SECONDS, daemon=daemon)
    measured["BluefsSpillover after"] = f"{started(alert) - began:.1f} s"
    for name in ("db", "slow"):
        measured[name] = f"{observer.number(used % name) / (1 << 20):.0f} MiB"


@pytest.mark.long
def test_metadata_that_the_cache_does_not_hold_is_named_where_reading_it_costs_time(
    clusters: Clusters, observer: Observer, measured: Measured
) -> None:
    cluster = clusters(store="bluestore")
    daemon = observer.daemon(cluster, "osd.0")
    lookups = f'sum(rate(pinchpoint_osd_step_seconds_total{{daemon="{daemon}",step="rocksdb_get"}}[15s]))'
    operations = f'sum(rate(pinchpoint_osd_step_seconds_total{{daemon="{daemon}",step="read_process"}}[15s]))'
    share = f"{lookups} / ({operations} > 0.1)"
    with loads.rados_bench(cluster, seconds=20, threads=32) as written:
        written.wait(SECONDS)
    cluster.daemon("osd.0").ask("compact", timeout=SECONDS)

    with loads.rados_bench(cluster, "rand", threads=4):
        observer.wait_for(f"count_over_time(({share})[15s:1s]) > 14", SECONDS)
        measured["lookups with a large cache"] = f"{observer.number(share):.0%} of the time"
        assert observer.alerts(alertname="OnodeCacheMisses") == []
    for name, value in SMALL_CACHES.items():
        cluster.command("config set", who="osd", name=name, value=value)
    cluster.daemon("osd.0").restart()
    began = time.time()
    with loads.rados_bench(cluster, "rand", threads=4):
        alert = observer.wait_for_alert("OnodeCacheMisses", SECONDS, daemon=daemon)
        measured["with a small one"] = f"{observer.number(share):.0%} of the time"
    measured["OnodeCacheMisses after"] = f"{started(alert) - began:.1f} s"
    observer.wait_until_gone("OnodeCacheMisses", SECONDS, daemon=daemon)


@pytest.mark.long
def test_an_osd_that_dies_in_a_phase_is_named_and_voids_the_run(
    clusters: Clusters, observer: Observer, measured: Measured
) -> None:
    cluster = clusters(osds=2, replicas=2)
    observer.watch(cluster)
    with loads.rados_bench(cluster) as load:
        observer.wait_for('pinchpoint_phase_active{benchmark="rados_bench"} == 1', SECONDS)
        assert observer.alerts(alertname="ClusterDegradedDuringRun") == []
        began = time.time()
        cluster.daemon("osd.1").kill()
        degraded = observer.wait_for_alert("ClusterDegradedDuringRun", SECONDS)
        measured["ClusterDegradedDuringRun after"] = f"{started(degraded) - began:.1f} s"
        assert "osd.1 is down" in degraded["annotations"]["description"]
        invalid = observer.wait_for_alert("RunInvalid", SECONDS)
        measured["RunInvalid after"] = f"{started(invalid) - began:.1f} s"
        assert load.running
