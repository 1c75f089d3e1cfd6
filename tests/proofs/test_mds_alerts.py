"""Alerts about metadata servers on a real cluster under real load."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, MutableMapping

import pytest

from lab import loads
from lab.cluster import Cluster
from lab.observer import Observer, started
from polling import until

GROUP = "Alerts before Ceph's own"
Clusters = Callable[..., Cluster]
Measured = MutableMapping[str, str]

SECONDS = 90.0
"""Longest wait for one step; an idle machine needs a third of it."""
CACHE_LIMIT = 8 << 20
"""In bytes: about 2,500 open files."""
SLOW = 0.05
"""Seconds that an OSD waits before each operation. At 0.02 s it still keeps up with 28 new files a second."""


def wait_for_check(cluster: Cluster, check: str) -> float:
    """Return the Unix time at which the monitor first reported the check, to the polling interval."""
    assert until(SECONDS, lambda: check in cluster.health(), pause=0.2), f"no {check}: {cluster.health()}"
    return time.time()


@pytest.mark.long
def test_a_full_cache_is_told_before_ceph_warns_and_the_command_of_the_alert_ends_it(
    clusters: Clusters, observer: Observer, measured: Measured
) -> None:
    # The default before 2021; the same load also reaches the current one, 262144, only later.
    cluster = clusters(options={"mds": {"mds_recall_warning_threshold": "32768"}})
    # Set through the monitor: a limit set through the admin socket would override the alert's command.
    cluster.command("config set", who="mds", name="mds_cache_memory_limit", value=str(CACHE_LIMIT))
    observer.watch(cluster)
    observer.daemon(cluster, "mds.a")

    with contextlib.ExitStack() as running:
        running.enter_context(loads.metadata(cluster, "hold", files=2200)).wait_ready()
        load = running.enter_context(loads.metadata(cluster, "hold", files=15_000, ramp=1900, rate=50))
        near = observer.wait_for_alert("MdsCacheNearLimit", SECONDS, cluster=cluster.fsid)
        assert "MDS_CACHE_OVERSIZED" not in cluster.health()
        warned = wait_for_check(cluster, "MDS_CACHE_OVERSIZED")
        measured["before MDS_CACHE_OVERSIZED by"] = f"{warned - started(near):.1f} s"
        assert started(near) < warned

        load.wait_ready()
        recalled = wait_for_check(cluster, "MDS_CLIENT_RECALL")
        oversized = observer.wait_for_alert("MdsCacheOversized", SECONDS, cluster=cluster.fsid)
        recall = observer.wait_for_alert("MdsClientRecall", SECONDS)
        measured["MdsClientRecall after MDS_CLIENT_RECALL"] = f"{started(recall) - recalled:.1f} s"

        oversized = observer.wait_for_alert("MdsCacheOversized", SECONDS, cluster=cluster.fsid)
        description = oversized["annotations"]["description"]
        command = re.search(r"ceph config set mds mds_cache_memory_limit (\d+)", description)
        assert command, description
        mds = observer.daemon(cluster, "mds.a")
        assert int(command[1]) >= 2 * observer.number(f'pinchpoint_mds_cache_peak_bytes{{daemon="{mds}"}}')
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
        measured["gone after the command"] = f"{time.time() - raised:.1f} s"
        mds = observer.daemon(cluster, "mds.a")
        assert observer.number(f'pinchpoint_mds_caps{{daemon="{mds}"}}') > 17_000  # all files are still open

    # The counter of recalled capabilities halves in 60 s (mds_recall_max_decay_rate), or ends with the session.
    observer.wait_until_gone("MdsClientRecall", SECONDS)
    assert until(SECONDS, lambda: not cluster.health(), pause=0.5), cluster.health()


@pytest.mark.long
def test_a_journal_that_grows_is_told_before_ceph_warns_and_ends_with_its_cause(
    clusters: Clusters, observer: Observer, measured: Measured
) -> None:
    # Ceph's own limits: 128 segments, and a warning from 256 on. Only the segments have fewer than 1024 events, so that
    # a few clients fill them. The first load creates as many as the journal may keep, with an event for each file.
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
            measured["before MDS_TRIM by"] = f"{warned - started(growing):.1f} s"
            assert started(growing) < warned

            behind = observer.wait_for_alert("MdsTrimBehind", SECONDS, cluster=cluster.fsid)
            measured["MdsTrimBehind after"] = f"{started(behind) - began:.1f} s"
            mds = observer.daemon(cluster, "mds.a")
            added, trimmed = (
                observer.number(f'rate(pinchpoint_mds_log_segments_{what}_total{{daemon="{mds}"}}[15s])')
                for what in ("added", "trimmed")
            )
            assert added > 2 * trimmed
            cluster.set_option("osd.0", "osd_debug_inject_dispatch_delay_probability", 0)

    ended = time.time()
    observer.wait_until_gone("MdsTrimBehind", SECONDS, cluster=cluster.fsid)
    assert until(SECONDS, lambda: not observer.alerts(alertname="MdsTrimBehind", name="MDS_TRIM"), pause=0.5)
    observer.wait_until_gone("MdsJournalGrowing", SECONDS, cluster=cluster.fsid)
    measured["gone after its cause"] = f"{time.time() - ended:.1f} s"
    assert until(SECONDS, lambda: not cluster.health(), pause=0.5), cluster.health()
