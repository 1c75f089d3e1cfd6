"""Faults on a real Ceph cluster. The truth about each follows from how it is made.

All but one share a cluster and leave it as it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from disks import device_of
from lab import loads
from lab.cluster import PYTHON, Cluster, Daemon, lacking
from pinchpoint.diagnosis.verdict import Kind
from pinchpoint.wire.sources import TargetSource
from polling import runs, until
from proofs import faults
from proofs.conftest import Check
from proofs.observed import Watch, watching
from truth import Truth

QUIET_PERCENT = 30.0
"""CPU time of the host below which a cluster has settled."""
GROUP = "Faults of a Ceph cluster"
SECONDS = 7
PATIENCE = 30.0
RESOURCE = (Kind.RESOURCE,)
LATENCY = Truth((Kind.LATENCY_BOUND,), "")
FEW_CPUS = len(os.sched_getaffinity(0)) < 4
"""Whether a load that fills the lock of an MDS also fills the CPUs: then both are true."""
SLOW = 0.02
"""Seconds of delay injected into an OSD operation or a message."""
CACHE = 4 << 20
"""Bytes: the cache of an MDS with about 1,400 files in it."""
PER_DIRECTORY = 20
FILES = 12_000

WALK = """
import os, random, sys, cephfs
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"])
fs.conf_set("client_cache_size", "16")
fs.mount()
while True:
    fs.stat(f"{sys.argv[1]}/{random.randrange(int(sys.argv[2]))}/{random.randrange(int(sys.argv[3]))}")
"""
"""A libcephfs client that queries files in random directories, and caches hardly any of the answers."""

pytestmark = pytest.mark.usefixtures("rested")


@pytest.fixture(scope="module")
def shared(watch: Watch) -> Iterator[Cluster]:
    if reason := lacking():
        pytest.skip(reason)
    with Cluster(store="bluestore") as cluster:
        yield cluster


@pytest.fixture
def rested(shared: Cluster) -> Iterator[None]:
    """After a scenario, end the sessions of killed clients: they would keep their capabilities for 300 s."""
    yield
    quiet = 0
    while quiet < 2:  # a daemon that was frozen still finds requests of dead clients
        sessions = shared.tell("mds.a", "session ls", timeout=PATIENCE)
        dead = [pid for one in sessions if not runs(pid := int(one["client_metadata"].get("pid", 0)))]
        for pid in dead:
            shared.evict(pid)
        quiet = 0 if dead else quiet + 1
        time.sleep(0.3)


def name_of(watch: Watch, cluster: Cluster, daemon: str) -> str:
    """Return the exporter's name for a daemon: "mds.a", and with other clusters on this host "mds.a@0123abcd"."""

    def known() -> str:
        for labels, _ in source.snapshot().series("pinchpoint_ceph_daemon_info"):
            if labels["cluster"] == cluster.fsid and labels["daemon"].partition("@")[0] == daemon:
                return labels["daemon"]
        return ""

    source = TargetSource(f"127.0.0.1:{watch.port}")
    found = until(PATIENCE, known, pause=0.2)
    assert found, f"the exporter never saw {daemon}"
    return str(found)


def wait_for(watch: Watch, metric: str, **labels: str) -> None:
    """Wait until the exporter has a series."""
    shown = until(PATIENCE, lambda: watch.shows(metric, **labels), pause=0.2)
    assert shown, f"the exporter never saw {metric} {labels}"


def for_a_while(*command: str) -> list[str]:
    """Return a command that is killed after the usual time, however long an orderly end would take under the fault."""
    return ["timeout", "--foreground", "--signal=KILL", str(SECONDS), *command]


def storm(**parameters: Any) -> list[str]:
    """Return the command of clients that create, stat and unlink files."""
    return for_a_while(*loads.metadata_command("storm", **parameters))


def rados(*, threads: int = 16, block: int = 4096) -> list[str]:
    """Return the command of a benchmark that writes objects."""
    size = ["-t", str(threads), "-b", str(block)]
    return for_a_while("rados", "bench", "-p", "rbd", str(10 * SECONDS), "write", *size, "--no-cleanup")


@contextlib.contextmanager
def options(cluster: Cluster, daemon: str, **values: str | float) -> Iterator[None]:
    """Change options of a running daemon."""
    before = {name: cluster.tell(daemon, "config get", var=name)[name] for name in values}
    try:
        for name, value in values.items():
            cluster.set_option(daemon, name, value)
        yield
    finally:
        for name, value in before.items():
            cluster.set_option(daemon, name, value)


def slow_osd(cluster: Cluster, seconds: float) -> contextlib.AbstractContextManager[None]:
    """Make the OSD wait before each operation."""
    return options(
        cluster,
        "osd.0",
        osd_debug_inject_dispatch_delay_duration=seconds,
        osd_debug_inject_dispatch_delay_probability=1,
    )


@contextlib.contextmanager
def quotas(watch: Watch, cluster: Cluster, cpus: Mapping[str, float]) -> Iterator[list[str]]:
    """Give each of these daemons a CPU quota; give the exporter's names for them once it has some."""
    owners = [name_of(watch, cluster, daemon) for daemon in cpus]
    with contextlib.ExitStack() as stack:
        for daemon, number in cpus.items():
            group = stack.enter_context(faults.cgroup("cpu", faults.quota(number)))
            (group / "cgroup.procs").write_text(str(cluster.daemon(daemon).pid))
        yield owners


@contextlib.contextmanager
def frozen_under_load(daemon: Daemon, logger: str, counter: str) -> Iterator[None]:
    """Freeze a daemon once it works for the load that the block starts, until the block ends."""

    def count() -> int:
        return int(daemon.ask("perf dump")[logger][counter])

    def freeze() -> None:
        if until(PATIENCE, lambda: ended.is_set() or count() > before + 100):
            daemon.freeze()

    before, ended = count(), threading.Event()
    thread = threading.Thread(target=freeze)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        daemon.thaw()
        assert until(PATIENCE, lambda: count() >= before)


def test_many_clients_on_one_mds_lock(watch: Watch, shared: Cluster, check: Check) -> None:
    mds = name_of(watch, shared, "mds.a")
    with options(shared, "mds.a", debug_mds="0/20"):  # this makes the MDS's work under its lock take longer
        found = watch.judge(storm(processes=8), environment=shared.environment())
    lock = f"mds_lock {mds}"
    check(Truth((Kind.RESOURCE, Kind.SEVERAL), f"{lock}|cpu host" if FEW_CPUS else lock), found)


def test_neighbours_that_take_the_cpus_of_the_mds(watch: Watch, shared: Cluster, check: Check) -> None:
    with faults.hogs(3 * len(os.sched_getaffinity(0))):
        found = watch.judge(storm(processes=2), environment=shared.environment())
    check(Truth(RESOURCE, "cpu host"), found)


def test_an_mds_cache_that_reads_again_what_it_dropped(watch: Watch, shared: Cluster, check: Check) -> None:
    mds = shared.daemon("mds.a")
    tree = loads.metadata_command("scan", files=FILES)
    with loads.Load(shared, "tree", [*tree, f"--per-directory={PER_DIRECTORY}"]) as load:
        load.wait_ready()
        (client,) = psutil.Process(load.pid).children()
        # Its directory is named after the PID of the process that made it.
        root = f"/scan.{client.pid}"
    mds.ask("flush journal")  # a directory that is dirty in the journal cannot be dropped

    def dropped() -> bool:
        return bool(mds.ask("dump_mempools")["mempool"]["by_pool"]["mds_co"]["bytes"] < CACHE)

    walk = [PYTHON, "-c", WALK, root, str(FILES // PER_DIRECTORY), str(PER_DIRECTORY)]
    three = ["/bin/sh", "-c", '"$@" & "$@" & "$@"; wait', "-", *for_a_while(*walk)]
    with options(shared, "mds.a", mds_cache_memory_limit=CACHE):
        assert until(PATIENCE, dropped), "the MDS keeps its cache"
        with slow_osd(shared, 2 * SLOW):
            found = watch.judge(three, environment=shared.environment())
    check(Truth(RESOURCE, f"mds_cache {name_of(watch, shared, 'mds.a')}"), found)


def test_an_mds_cache_at_many_times_its_limit_that_costs_nothing(watch: Watch, shared: Cluster, check: Check) -> None:
    mds = name_of(watch, shared, "mds.a")
    with loads.metadata(shared, "hold", files=2500) as files:
        files.wait_ready()
        with options(shared, "mds.a", mds_cache_memory_limit=CACHE // 4):
            found = watch.judge(storm(), environment=shared.environment())
    kinds = (Kind.LATENCY_BOUND, Kind.RESOURCE, Kind.SEVERAL)
    check(Truth(kinds, r"(?!mds_cache).*", cleared=f"the cache of {mds} "), found)
    assert not any(limit.resource == "mds_cache" for limit in found.verdict.limits)


def test_small_writes_to_an_osd(watch: Watch, shared: Cluster, check: Check) -> None:
    osd = name_of(watch, shared, "osd.0")
    found = watch.judge(rados(), environment=shared.environment())
    check(Truth((Kind.RESOURCE, Kind.SEVERAL), f"(kv_sync|osd_op) {osd}|cpu host|disk .*"), found)


def test_an_osd_that_is_frozen(watch: Watch, shared: Cluster, check: Check) -> None:
    osd = name_of(watch, shared, "osd.0")
    with frozen_under_load(shared.daemon("osd.0"), "osd", "op_w"):
        found = watch.judge(rados(), environment=shared.environment())
    check(Truth((Kind.STUCK,), f"stuck {osd}"), found)


def test_an_mds_that_is_frozen(watch: Watch, shared: Cluster, check: Check) -> None:
    mds = name_of(watch, shared, "mds.a")
    with frozen_under_load(shared.daemon("mds.a"), "mds", "request"):
        found = watch.judge(storm(processes=2), environment=shared.environment())
    check(Truth((Kind.STUCK,), f"stuck {mds}"), found)


def test_a_metadata_pool_that_takes_its_time(watch: Watch, shared: Cluster, check: Check) -> None:
    # Otherwise the MDS answers before the change is in its journal, and a client waits for that only much later.
    with options(shared, "mds.a", mds_early_reply="false"), slow_osd(shared, SLOW):
        found = watch.judge(storm(processes=2), environment=shared.environment())
    check(LATENCY, found)


def test_messages_that_arrive_late(watch: Watch, shared: Cluster, check: Check) -> None:
    late = {"ms_inject_delay_max": 2 * SLOW, "ms_inject_delay_probability": 1.0}
    with options(shared, "osd.0", ms_inject_delay_type="client", **late):
        found = watch.judge(rados(threads=4), environment=shared.environment())
    check(LATENCY, found)


def test_one_request_at_a_time(watch: Watch, shared: Cluster, check: Check) -> None:
    environment = shared.environment()
    rbd = ["rbd", "-p", "rbd"]
    for command in (["create", "single", "--size=64M"], ["config", "image", "set", "rbd/single", "rbd_cache", "false"]):
        subprocess.run([*rbd, *command], env=environment, capture_output=True, check=True)
    fio = ["fio", "--name=job", "--ioengine=rbd", "--clientname=admin", "--pool=rbd", "--rbdname=single"]
    fio += ["--rw=randwrite", "--bs=4k", "--iodepth=1", "--time_based", f"--runtime={SECONDS}"]
    with slow_osd(shared, SLOW / 10):
        found = watch.judge(fio, environment=environment)
    subprocess.run([*rbd, "rm", "single", "--no-progress"], env=environment, capture_output=True, check=True)
    check(LATENCY, found)
    assert found.verdict.latency


def test_small_writes_through_one_ceph_fuse(watch: Watch, shared: Cluster, check: Check) -> None:
    with shared.mount() as mount:
        wait_for(watch, "pinchpoint_ceph_client_instances", client="ceph-fuse")
        fio = ["fio", "--name=job", f"--directory={mount.path}", "--numjobs=2", "--ioengine=psync", "--rw=write"]
        fio += ["--bs=4k", "--size=64m", "--time_based", f"--runtime={SECONDS}"]
        found = watch.judge(fio, environment=shared.environment())
    lock = "client_lock ceph-fuse"
    check(Truth((Kind.RESOURCE, Kind.SEVERAL), f"{lock}|cpu host" if FEW_CPUS else lock), found)


def test_an_mds_under_a_cpu_quota(watch: Watch, shared: Cluster, check: Check) -> None:
    with quotas(watch, shared, {"mds.a": 0.2}) as (mds,):
        found = watch.judge(storm(processes=2), environment=shared.environment())
    check(Truth(RESOURCE, f"cpu_quota {mds}"), found)


def test_an_osd_under_a_cpu_quota(watch: Watch, shared: Cluster, check: Check) -> None:
    with quotas(watch, shared, {"osd.0": 0.15}) as (osd,):
        found = watch.judge(rados(), environment=shared.environment())
    check(Truth(RESOURCE, f"cpu_quota {osd}"), found)


def test_quotas_of_the_mds_and_of_an_osd_at_once(watch: Watch, shared: Cluster, check: Check) -> None:
    both = ["/bin/sh", "-c", f'"$@" & {" ".join(rados())}; wait', "-", *storm()]
    with quotas(watch, shared, {"mds.a": 0.1, "osd.0": 0.15}) as (mds, osd):
        found = watch.judge(both, environment=shared.environment())
    check(Truth((Kind.SEVERAL,), f"cpu_quota ({mds}|{osd})"), found)
    assert {limit.owner for limit in found.verdict.limits} == {mds, osd}


def test_a_limit_of_block_io_on_an_osd_that_its_disk_does_not_show(watch: Watch, shared: Cluster, check: Check) -> None:
    osd = shared.daemon("osd.0")
    device = device_of(shared.directory / "data" / "osd.0" / "block")
    with faults.cgroup("blkio", {"blkio.throttle.write_bps_device": f"{device} {1 << 20}"}) as group:
        (group / "cgroup.procs").write_text(str(osd.pid))
        owner = name_of(watch, shared, "osd.0")
        found = watch.judge(rados(), environment=shared.environment())
    check(Truth(RESOURCE, f"io_quota {owner}"), found)


def test_a_benchmark_that_idles_while_its_neighbours_load_the_mds(watch: Watch, shared: Cluster, check: Check) -> None:
    with loads.metadata(shared, "storm", processes=4) as neighbours:
        neighbours.wait_ready()
        found = watch.judge(storm(rate=1), environment=shared.environment())
    check(Truth((Kind.IDLE,), ""), found)


def test_an_osd_on_a_host_without_an_exporter(shared: Cluster, check: Check, tmp_path: Path) -> None:
    # In its own PID namespace an exporter sees the benchmark, but none of the daemons.
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not make a PID namespace")
    with watching(tmp_path, prefix=apart) as watch:
        # The first one: it has forked a process that starts helpers.
        exporter = next(
            process
            for process in psutil.Process().children(recursive=True)
            if f"127.0.0.1:{watch.port}" in process.cmdline() and process.exe() != shutil.which("unshare")
        )
        enter = ["nsenter", f"--target={exporter.pid}", "--pid", "--mount"]
        try:
            with slow_osd(shared, SLOW):
                found = watch.judge(rados(), environment=shared.environment(), prefix=enter)
        finally:
            exporter.terminate()  # unshare does not pass the signal on
    check(Truth((Kind.BLIND,), ""), found)


@pytest.fixture(scope="module")
def six() -> Iterator[Cluster]:
    """A cluster with six OSDs that has nothing to do any more."""
    if reason := lacking():
        pytest.skip(reason)
    with Cluster(store="bluestore", osds=6, pgs=64) as cluster:
        assert until(PATIENCE, lambda: psutil.cpu_percent(1.0) < QUIET_PERCENT)
        yield cluster


def test_one_of_six_osds_that_is_slower_than_its_peers(watch: Watch, six: Cluster, check: Check) -> None:
    with quotas(watch, six, {"osd.3": 0.05}) as (owner,):
        found = watch.judge(rados(), environment=six.environment())
    check(Truth(RESOURCE, f"cpu_quota {owner}"), found)
    named = [line for line in found.verdict.peers if "is slower than its peers" in line]
    assert [line.partition(" on ")[0] for line in named] == [owner], found.story()


def test_a_network_that_is_slower_than_the_osd(check: Check, tmp_path: Path) -> None:
    with faults.own_network(), Cluster(store="bluestore") as cluster, watching(tmp_path) as watch:
        name_of(watch, cluster, "osd.0")
        with faults.shaped_loopback("40mbit"):
            found = watch.judge(rados(block=64 << 10), environment=cluster.environment())
    check(Truth(RESOURCE, "link lo"), found)
