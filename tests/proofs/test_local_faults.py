"""Local faults: CPU, disk, writeback, cgroups, a link. The truth about each follows from how it is made."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from disks import device_of
from pinchpoint.diagnosis.verdict import Kind
from polling import until
from proofs import faults
from proofs.conftest import Check
from proofs.observed import Watch
from truth import Truth

GROUP = "Faults of a host"
SECONDS = 6
RESOURCE = (Kind.RESOURCE,)


@pytest.fixture(autouse=True)
def _programs() -> None:
    for program in ("fio", "losetup"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")


def fio(*options: str, seconds: int = SECONDS) -> list[str]:
    """Return a command that runs one job for so many seconds."""
    return ["fio", "--name=job", "--time_based", f"--runtime={seconds}", "--output-format=terse", *options]


def on(directory: Path, *options: str, size: str = "64m") -> list[str]:
    """Return a command that runs a job on a file."""
    return fio(f"--directory={directory}", f"--size={size}", "--overwrite=0", *options)


def test_one_thread_that_computes(watch: Watch, check: Check) -> None:
    check(Truth(RESOURCE, "benchmark fio"), watch.judge(fio("--ioengine=cpuio", "--cpuload=100")))


def test_more_runnable_processes_than_cpus(watch: Watch, check: Check) -> None:
    check(Truth(RESOURCE, "cpu host"), watch.judge(fio("--ioengine=cpuio", "--cpuload=100", "--numjobs=8")))


def test_a_benchmark_under_a_cpu_quota(watch: Watch, check: Check) -> None:
    with faults.cgroup("cpu", faults.quota(0.3)) as group:
        found = watch.judge([*faults.entering(group), *fio("--ioengine=cpuio", "--cpuload=100")])
    check(Truth(RESOURCE, "cpu_quota fio"), found)


def test_direct_writes_to_a_slow_disk_beside_a_disk_that_is_full_of_somebody_elses(
    watch: Watch, check: Check, tmp_path: Path
) -> None:
    with faults.slow_disk(tmp_path, {"write_bps": 20 << 20}) as disk, contextlib.ExitStack() as stack:
        other = tmp_path / "other"
        other.mkdir()
        second = stack.enter_context(faults.slow_disk(other, {"write_bps": 10 << 20}))
        dd = ["dd", "if=/dev/zero", f"of={second.mount}/x", "bs=4M", "oflag=direct", "conv=notrunc"]
        stack.enter_context(faults.beside(["/bin/sh", "-c", f"while :; do {' '.join(dd)}; done"]))
        found = watch.judge(on(disk.mount, "--rw=write", "--direct=1", "--ioengine=libaio", "--iodepth=8", "--bs=256k"))
        truth = Truth(RESOURCE, f"disk {disk.name}", cleared=f"disk of {second.name} ")
    check(truth, found)


def test_synchronous_writes_to_a_slow_disk(watch: Watch, check: Check, tmp_path: Path) -> None:
    with faults.slow_disk(tmp_path, {"write_iops": 60}) as disk:
        found = watch.judge(
            on(disk.mount, "--rw=randwrite", "--fsync=1", "--ioengine=psync", "--bs=4k", "--numjobs=4", size="4m")
        )
    check(Truth(RESOURCE, f"disk {disk.name}"), found)


def test_buffered_writes_that_wait_for_writeback_to_a_slow_disk(watch: Watch, check: Check, tmp_path: Path) -> None:
    with faults.slow_disk(tmp_path, {"write_bps": 20 << 20}) as disk:
        faults.limit_dirty(disk, 32 << 20)
        found = watch.judge(on(disk.mount, "--rw=write", "--ioengine=psync", "--bs=1m", size="160m"))
    check(Truth(RESOURCE, f"disk {disk.name}"), found)


def test_writeback_whose_worker_is_full(watch: Watch, check: Check, tmp_path: Path) -> None:
    # The worker compresses each page, so small random pages cost it more than they cost the writers.
    with faults.compressed_disk(tmp_path) as disk:
        faults.limit_dirty(disk, 16 << 20)
        writes = on(disk.mount, "--rw=randwrite", "--ioengine=psync", "--bs=4k", "--numjobs=2", size="32m")
        found = watch.judge(writes)
    check(Truth(RESOURCE, f"writeback_worker {disk.name}"), found)


def test_a_limit_of_a_cgroup_that_the_disks_statistics_do_not_show(watch: Watch, check: Check, tmp_path: Path) -> None:
    device = device_of(tmp_path)
    with faults.cgroup("blkio", {"blkio.throttle.write_bps_device": f"{device} {4 << 20}"}) as group:
        found = watch.judge(
            [
                *faults.entering(group),
                *on(tmp_path, "--rw=write", "--direct=1", "--ioengine=libaio", "--iodepth=4", "--bs=64k"),
            ]
        )
    check(Truth(RESOURCE, "io_quota fio"), found)


@pytest.mark.usefixtures("waits_for_memory")
def test_a_memory_limit_of_a_cgroup_on_a_host_with_memory_to_spare(watch: Watch, check: Check, tmp_path: Path) -> None:
    limit = {"memory.limit_in_bytes": str(64 << 20)}
    with faults.compressed_disk(tmp_path) as disk, faults.cgroup("memory", limit) as group:
        writes = on(disk.mount, "--rw=write", "--ioengine=psync", "--bs=1m", "--numjobs=4", size="64m")
        found = watch.judge([*faults.entering(group), *writes])
    check(Truth(RESOURCE, "memory_quota fio"), found)


def test_reads_at_depth_one_from_a_disk_that_only_takes_its_time(watch: Watch, check: Check, tmp_path: Path) -> None:
    with faults.slow_disk(tmp_path, {"read_iops": 100}) as disk:
        found = watch.judge(on(disk.mount, "--rw=randread", "--direct=1", "--ioengine=psync", "--bs=4k", size="16m"))
    check(Truth((Kind.LATENCY_BOUND,), ""), found)


def test_a_cpu_limit_and_a_disk_limit_at_once(watch: Watch, check: Check, tmp_path: Path) -> None:
    with faults.slow_disk(tmp_path, {"write_bps": 20 << 20}) as disk:
        writes = on(disk.mount, "--rw=write", "--direct=1", "--ioengine=libaio", "--iodepth=8", "--bs=256k")
        found = watch.judge([*fio("--ioengine=cpuio", "--cpuload=100"), "--name=second", *writes[2:]])
    check(Truth((Kind.SEVERAL,), f"benchmark fio|disk {disk.name}"), found)


def test_a_benchmark_that_sleeps_beside_busy_neighbours(watch: Watch, check: Check, tmp_path: Path) -> None:
    with faults.hogs(3):
        found = watch.judge(on(tmp_path, "--rw=write", "--ioengine=psync", "--bs=4k", "--thinktime=500ms", size="1m"))
    check(Truth((Kind.IDLE,), ""), found)


def test_a_link_of_100_megabits(watch: Watch, check: Check) -> None:
    if shutil.which("iperf3") is None:
        pytest.skip("no iperf3")
    with faults.shaped_namespace("100mbit") as (namespace, address, link), contextlib.ExitStack() as stack:
        stack.enter_context(faults.beside(["ip", "netns", "exec", namespace, "iperf3", "--server"]))
        assert until(10, lambda: faults.listens(namespace, 5201))
        assert until(20, lambda: watch.shows("pinchpoint_resource_busy_seconds_total", owner=link)), "it has no series"
        found = watch.judge(["iperf3", "--client", address, "--time", str(SECONDS)])
    check(Truth(RESOURCE, f"link {link}"), found)


def test_a_link_in_another_network_namespace(watch: Watch, check: Check) -> None:
    if shutil.which("iperf3") is None:
        pytest.skip("no iperf3")
    with faults.shaped_namespace("100mbit", within=True) as (namespace, _, link), contextlib.ExitStack() as stack:
        stack.enter_context(faults.beside(["iperf3", "--server"]))
        assert until(10, lambda: faults.listens("", 5201))
        client = ["iperf3", "--client", "10.215.0.1", "--time", str(SECONDS)]
        found = watch.judge(["ip", "netns", "exec", namespace, *client])
    check(Truth(RESOURCE, f"link {link}/.*"), found)


def test_the_parent_that_only_waits_does_not_halve_the_shares(watch: Watch, check: Check, tmp_path: Path) -> None:
    with faults.slow_disk(tmp_path, {"write_bps": 20 << 20}) as disk:
        command = on(disk.mount, "--rw=write", "--direct=1", "--ioengine=libaio", "--iodepth=8", "--bs=256k")
        found = watch.judge(["/bin/sh", "-c", 'sleep 100 & child=$!; "$@"; kill "$child"', "-", *command])
        assert found.verdict.waits.get("disk", 0.0) > 0.8
    check(Truth(RESOURCE, f"disk {disk.name}"), found)
