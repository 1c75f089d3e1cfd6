"""Pinchpoint on a cluster in trouble: it keeps its pace, blocks nothing else, and does not grow."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from typing import NamedTuple

import httpx
import pytest

from lab import loads
from lab.cluster import Cluster, Daemon
from lab.locks import freeze_lock_holder
from lab.observer import Observer
from pinchpoint.ceph.asok import LOCK_FREE
from polling import until

GROUP = "Harmlessness"
PATIENCE = 120.0
SERIES = 2000
WINDOW = 12.0
"""Seconds of each observation; the MDS must not be frozen for longer than mds_heartbeat_grace, 15 s."""
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
COMMAND = re.compile(r"execute_command cmdvec='\[(.*)\]'$", re.MULTILINE)


Measured = MutableMapping[str, str]


class Probes(NamedTuple):
    """What the exporter reports about its own pace, by probe."""

    when: float
    interval: dict[str, float]
    taken: dict[str, float]
    lost: dict[str, float]


class Pace(NamedTuple):
    """Samples of a probe between two readings."""

    due: float
    taken: float
    lost: float


def exposition(observer: Observer) -> str:
    url = f"{observer.stack.urls['pinchpoint']}/metrics"
    return httpx.get(url, timeout=10.0, trust_env=False).raise_for_status().text


def probes(observer: Observer) -> Probes:
    """Query the exporter itself: through Prometheus the time of a value is known only to 2 s."""
    text = exposition(observer)

    def by_probe(metric: str) -> dict[str, float]:
        found = {labels: float(value) for name, labels, value in SAMPLE.findall(text) if name == metric}
        return {labels.removeprefix('probe="').rstrip('"'): value for labels, value in found.items()}

    return Probes(
        time.monotonic(),
        by_probe("pinchpoint_probe_interval_seconds"),
        by_probe("pinchpoint_sampler_samples_total"),
        by_probe("pinchpoint_sampler_lost_samples_total"),
    )


def paces(before: Probes, after: Probes) -> dict[str, Pace]:
    """Return the pace of every probe that was due several times.

    Without anything that works the exporter rests: the longer interval of both moments counts.
    """
    return {
        probe: Pace(
            (after.when - before.when) / max(interval, after.interval[probe]),
            after.taken[probe] - before.taken[probe],
            after.lost[probe] - before.lost[probe],
        )
        for probe, interval in before.interval.items()
        if interval <= WINDOW / 4
    }


@pytest.fixture(scope="module")
def shared(module_clusters: Callable[..., Cluster]) -> Cluster:
    # The tests freeze the lock to observe the exporter: the rank must not be taken away meanwhile.
    return module_clusters(options={"global": {"mds_beacon_grace": "60", "mds_heartbeat_grace": "60"}})


@pytest.mark.long
def test_a_host_with_8_osds_and_4_active_mdss_has_fewer_than_2000_series(
    clusters: Callable[..., Cluster], observer: Observer, measured: Measured
) -> None:
    cluster = clusters(osds=8, mdss=4, max_mds=4)
    with ExitStack() as stack:
        stack.enter_context(loads.metadata(cluster, "storm", processes=2, rate=20)).wait_ready()
        stack.enter_context(loads.fio_rbd(cluster, rw="randrw", size="16M", iodepth=4, extra=["--rate_iops=50"]))
        stack.enter_context(cluster.mount())
        mine = f'pinchpoint_ceph_daemon_info{{cluster="{cluster.fsid}"}}'
        observer.wait_for(f"count({mine}) == 14", PATIENCE)
        observer.wait_for('pinchpoint_ceph_client_instances{client=~"fio|ceph-fuse"}', PATIENCE)
        observer.wait_for(f"count(pinchpoint_mds_rank_held * on (daemon) group_left () {mine} == 1) == 4", PATIENCE)
        text = exposition(observer)

    series = [labels for _, labels, _ in SAMPLE.findall(text)]
    (claimed,) = (float(value) for name, _, value in SAMPLE.findall(text) if name == "pinchpoint_self_series")
    # Daemons of clusters that have ended are shown for a quarter of an hour; of several clusters each name has its own,
    # but those of the first, which are from a time when it was the only one.
    daemons = [re.findall(r'="((?:mds|osd|mon|mgr)\.[^"]*)"', labels) for labels in series]
    ours = f"@{cluster.fsid[:8]}"
    several = any(name.endswith(ours) for names in daemons for name in names)
    foreign = [names for names in daemons if several and not all(name.endswith(ours) for name in names)]
    measured["series"] = f"{len(series) - len(foreign)}"
    assert claimed == len(series)
    assert len(series) - len(foreign) < SERIES


def test_a_frozen_mds_lock_delays_no_probe_and_blocks_no_operator(
    shared: Cluster, observer: Observer, measured: Measured
) -> None:
    mds = shared.daemon("mds.a")
    daemon = observer.daemon(shared, "mds.a")
    up = f'pinchpoint_ceph_socket_up{{daemon="{daemon}"}}'

    with loads.metadata(shared, "storm", processes=6) as load:
        load.wait_ready()
        # Before it has seen the load, the exporter rests.
        assert until(PATIENCE, lambda: probes(observer).interval["waits"] <= WINDOW / 4)
        free = probes(observer)
        began = load.operations()
        time.sleep(WINDOW)
        usual = load.operations() - began
        before = paces(free, probes(observer))
        with freeze_lock_holder(mds):
            frozen, answers = probes(observer), []
            began = load.operations()
            while time.monotonic() - frozen.when < WINDOW:
                asked = time.monotonic()
                assert "mds" in mds.ask("perf dump", timeout=5.0)
                answers.append(time.monotonic() - asked)
                time.sleep(0.2)
            during = paces(frozen, probes(observer))
            done = load.operations() - began
            lowest = observer.value(f"min_over_time({up}[{WINDOW:.0f}s])")
            scraped = observer.value(f'min_over_time(up{{job="pinchpoint"}}[{WINDOW:.0f}s])')
            # A command that Pinchpoint never sends does hang, and so does every later command to the socket.
            with pytest.raises(TimeoutError):
                mds.ask("session ls", timeout=1.0)
            with pytest.raises(TimeoutError):
                mds.ask("perf dump", timeout=1.0)
        assert until(PATIENCE, lambda: load.operations() > began + done, pause=0.5), "the MDS does not continue"

    measured["slowest answer of the MDS"] = f"{max(answers) * 1000:.1f} ms of {len(answers)}"
    measured["samples lost"] = f"{sum(pace.lost for pace in during.values()):.0f}"
    assert done < 0.5 * usual  # operations of the second before the freeze are counted a second later
    assert lowest == 1
    assert scraped == 1
    assert max(answers) < 1.0
    for probe in during.keys() & before.keys():  # one that was sampled seldom before the freeze has no pace
        pace = during[probe]
        # On a host that is busy for other reasons samples are lost in both windows.
        assert pace.taken + 1 >= 0.8 * pace.due * min(1.0, before[probe].taken / before[probe].due), probe
        assert pace.lost <= before[probe].lost + 0.1 * pace.due, probe
    observer.wait_for(f"{up} == 1", PATIENCE)


def commands(log: str) -> list[str]:
    """Return the commands in a daemon's log, without the option of `config get`."""
    return [json.loads(text)["prefix"] for text in COMMAND.findall(log)]


def test_only_commands_that_take_no_lock_ever_arrive_at_a_daemon(
    shared: Cluster, observer: Observer, measured: Measured
) -> None:
    with shared.mount() as mount:
        client = Daemon(shared, "client.admin")
        (client.socket,) = (shared.directory / "run").glob(f"ceph-client.admin.{mount.pid}.*.asok")
        followed = [shared.daemon(name) for name in ("mds.a", "osd.0", "mon.a", "mgr.a")] + [client]
        observer.wait_for('pinchpoint_ceph_client_instances{client="ceph-fuse"} > 0', PATIENCE)
        offsets = []
        for daemon in followed:
            daemon.ask("config set", var="debug_asok", val=["10/10"])
            offsets.append(daemon.log.stat().st_size)

        def arrived(number: int) -> list[str]:
            with followed[number].log.open(errors="replace") as log:
                log.seek(offsets[number])
                return commands(log.read())

        try:
            time.sleep(2 * WINDOW)
            found = {daemon.name: arrived(number) for number, daemon in enumerate(followed)}
        finally:
            for daemon in followed:
                daemon.ask("config set", var="debug_asok", val=["0/0"])

    measured["commands"] = ", ".join(sorted({prefix for prefixes in found.values() for prefix in prefixes}))
    for prefixes in found.values():
        assert set(prefixes) <= LOCK_FREE
        assert "version" in prefixes or "perf dump" in prefixes
    for name in ("mds.a", "osd.0", "client.admin"):
        assert found[name].count("perf dump") > WINDOW
