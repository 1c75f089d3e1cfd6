from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.cgroups import (
    Cgroups,
    IoLimit,
    Throttling,
    parse_cgroup,
    parse_cpu_max,
    parse_cpu_stat,
    parse_io_max,
    parse_throttle,
)
from pinchpoint.processes import Processes
from pinchpoint.procfs import FormatError, read_mounts

V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n"
)
V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = V1 + V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ")


class Groups:
    """A machine with cgroups."""

    def __init__(self, machine: Machine, mounts: str) -> None:
        self.machine = machine
        machine.write("proc/1/mountinfo", mounts)
        self.probe = Cgroups(machine.host())

    def v1(self, path: str, *, quota: int, periods: int, throttled: int, seconds: float = 0.0) -> None:
        """Write a cgroup of version 1; its quota in us per 100 ms."""
        directory = f"sys/fs/cgroup/cpu,cpuacct{path}"
        self.machine.write(f"{directory}/cpu.cfs_quota_us", f"{quota}\n")
        self.machine.write(f"{directory}/cpu.cfs_period_us", "100000\n")
        stat = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {int(seconds * 1e9)}\n"
        self.machine.write(f"{directory}/cpu.stat", stat)

    def v2(self, path: str, *, quota: str, periods: int, throttled: int, seconds: float = 0.0) -> None:
        """Write a cgroup of version 2; its quota as the first word of cpu.max."""
        directory = f"sys/fs/cgroup{path}"
        self.machine.write(f"{directory}/cpu.max", f"{quota} 100000\n")
        stat = f"usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {int(seconds * 1e6)}\n"
        self.machine.write(f"{directory}/cpu.stat", stat)

    def process(self, pid: int, comm: str, cgroup: str, *argv: str) -> None:
        self.machine.process(pid, comm, argv=(comm, *argv))
        self.machine.write(f"proc/{pid}/cgroup", cgroup)

    def value(self, name: str, owner: str, **labels: str) -> float | None:
        found = Snapshot.of(0, self.probe.points())
        if name.startswith("resource"):
            labels |= {"resource": "cpu_quota", "serves": "cpu,runqueue"}
        return found.value(f"pinchpoint_{name}", owner=owner, **labels)


def test_a_quota_of_version_1_is_busy_by_its_throttled_periods(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "ceph-mds", "3:cpu,cpuacct:/mds\n2:blkio:/\n", "-i", "a")
    groups.v1("/mds", quota=20_000, periods=100, throttled=40, seconds=8.0)
    groups.probe.sample(1.0)
    groups.v1("/mds", quota=20_000, periods=110, throttled=48, seconds=8.75)
    groups.probe.sample(2.0)

    assert groups.value("resource_busy_seconds_total", "mds.a") == pytest.approx(0.8)
    assert groups.value("resource_saturated_seconds_total", "mds.a") == 1.0
    assert groups.value("cgroup_cpu_periods_total", "mds.a") == 10
    assert groups.value("cgroup_cpu_throttled_periods_total", "mds.a") == 8
    assert groups.value("cgroup_cpu_throttled_seconds_total", "mds.a") == pytest.approx(0.75)
    assert groups.value("cgroup_cpu_quota_cpus", "mds.a") == 0.2


def test_a_quota_of_version_2_is_busy_by_its_throttled_periods(machine: Machine) -> None:
    groups = Groups(machine, V2)
    groups.process(50, "fio", "0::/bench.slice/fio.scope\n")
    groups.v2("/bench.slice/fio.scope", quota="150000", periods=10, throttled=0)
    groups.probe.sample(1.0)
    groups.v2("/bench.slice/fio.scope", quota="150000", periods=20, throttled=4, seconds=0.3)
    groups.probe.sample(2.0)

    assert groups.value("resource_busy_seconds_total", "fio") == pytest.approx(0.4)
    assert groups.value("resource_saturated_seconds_total", "fio") == 0
    assert groups.value("cgroup_cpu_throttled_seconds_total", "fio") == pytest.approx(0.3)
    assert groups.value("cgroup_cpu_quota_cpus", "fio") == 1.5


def test_the_most_throttled_of_all_groups_above_a_process_counts(machine: Machine) -> None:
    groups = Groups(machine, V2)
    groups.process(50, "fio", "0::/a/b/c\n")
    for step in (0, 1):
        groups.v2("/a", quota="100000", periods=10 * step, throttled=9 * step)
        groups.v2("/a/b", quota="max", periods=10 * step, throttled=10 * step)
        groups.v2("/a/b/c", quota="50000", periods=10 * step, throttled=1 * step)
        groups.probe.sample(1.0 + step)

    assert groups.value("resource_busy_seconds_total", "fio") == pytest.approx(0.9)
    assert groups.value("cgroup_cpu_throttled_periods_total", "fio") == 9
    assert groups.value("cgroup_cpu_quota_cpus", "fio") == 0.5


def test_on_a_hybrid_machine_the_quota_is_found_where_the_controller_is(machine: Machine) -> None:
    groups = Groups(machine, HYBRID)
    groups.process(50, "fio", "3:cpuacct,cpu:/x\n1:name=systemd:/y\n0::/z\n")
    machine.write("sys/fs/cgroup/unified/z/cpu.stat", "usage_usec 5\n")
    for step in (0, 1):
        groups.v1("/x", quota=10_000, periods=10 * step, throttled=10 * step)
        groups.probe.sample(1.0 + step)

    assert groups.value("resource_busy_seconds_total", "fio") == 1.0


def test_without_a_quota_there_is_nothing_to_show(machine: Machine) -> None:
    groups = Groups(machine, HYBRID)
    groups.process(50, "fio", "3:cpu,cpuacct:/\n0::/\n")
    groups.v1("/", quota=-1, periods=0, throttled=0)
    groups.probe.sample(1.0)

    assert list(groups.probe.points()) == []


def test_a_quota_that_is_set_later_or_lifted_again_is_seen(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:cpu,cpuacct:/x\n")
    groups.v1("/x", quota=-1, periods=0, throttled=0)
    groups.probe.sample(1.0)
    groups.v1("/x", quota=30_000, periods=0, throttled=0)
    groups.probe.sample(7.0)
    assert groups.value("cgroup_cpu_quota_cpus", "fio") == pytest.approx(0.3)
    groups.v1("/x", quota=-1, periods=9, throttled=9)
    groups.probe.sample(13.0)
    assert groups.value("cgroup_cpu_quota_cpus", "fio") is None
    assert groups.value("cgroup_cpu_periods_total", "fio") == 0


def test_a_process_that_starts_between_two_looks_is_found_at_once(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(40, "fio", "3:cpu,cpuacct:/\n")
    groups.probe.sample(1.0)
    groups.v1("/x", quota=30_000, periods=0, throttled=0)
    groups.process(50, "ior", "3:cpu,cpuacct:/x\n")
    groups.probe.sample(2.0)

    assert groups.value("cgroup_cpu_quota_cpus", "ior") == pytest.approx(0.3)


def test_a_group_that_vanishes_and_comes_back_counts_from_zero(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:cpu,cpuacct:/x\n")
    groups.v1("/x", quota=30_000, periods=100, throttled=50)
    groups.probe.sample(1.0)
    (machine.sysfs / "fs/cgroup/cpu,cpuacct/x/cpu.stat").unlink()
    groups.probe.sample(2.0)
    groups.v1("/x", quota=30_000, periods=500, throttled=400)
    groups.probe.sample(3.0)
    groups.v1("/x", quota=30_000, periods=5, throttled=5)
    groups.probe.sample(4.0)
    groups.v1("/x", quota=30_000, periods=7, throttled=6)
    groups.probe.sample(5.0)

    assert groups.value("cgroup_cpu_periods_total", "fio") == 2
    assert groups.value("cgroup_cpu_throttled_periods_total", "fio") == 1


def test_an_owner_is_shown_a_while_after_its_end_and_then_no_more(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:cpu,cpuacct:/x\n")
    for step in (0, 1):
        groups.v1("/x", quota=30_000, periods=10 * step, throttled=5 * step)
        groups.probe.sample(1.0 + step)
    for file in (machine.procfs / "50").glob("*"):
        if file.is_file():
            file.unlink()
    groups.probe.sample(20.0)
    assert groups.value("cgroup_cpu_throttled_periods_total", "fio") == 5
    groups.probe.sample(1000.0)
    assert groups.value("cgroup_cpu_throttled_periods_total", "fio") is None


def test_paths_are_taken_from_the_group_that_is_mounted(machine: Machine) -> None:
    groups = Groups(machine, V2.replace("0:38 / ", "0:38 /docker/abc "))
    groups.process(50, "fio", "0::/docker/abc/job\n")
    groups.process(51, "ior", "0::/elsewhere\n")
    groups.process(52, "dd", "0::/../../up\n")
    groups.v2("/job", quota="50000", periods=0, throttled=0)
    groups.probe.sample(1.0)

    assert groups.value("cgroup_cpu_quota_cpus", "fio") == 0.5
    assert groups.value("cgroup_cpu_quota_cpus", "ior") is None


def test_limits_of_block_io_of_version_2_hold_from_every_group_above(machine: Machine) -> None:
    groups = Groups(machine, V2)
    groups.process(50, "fio", "0::/a/b\n")
    machine.write("sys/fs/cgroup/a/io.max", "8:16 rbps=2097152 wbps=max riops=max wiops=120\n259:0 rbps=5\n")
    machine.write("sys/fs/cgroup/a/b/io.max", "8:16 rbps=max wbps=max riops=max wiops=200\n")
    links = machine.sysfs / "dev" / "block"
    links.mkdir(parents=True)
    (links / "8:16").symlink_to("../../devices/pci/block/sdb")
    groups.probe.sample(1.0)

    def limit(device: str, name: str) -> float | None:
        return groups.value("cgroup_io_limit", "fio", device=device, limit=name)

    assert limit("sdb", "read_bytes_per_second") == 2097152
    assert limit("sdb", "write_operations_per_second") == 120
    assert limit("sdb", "write_bytes_per_second") is None
    assert limit("259:0", "read_bytes_per_second") == 5


def test_limits_of_block_io_of_version_1_are_those_of_the_group_itself(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:blkio:/a/b\n")
    machine.write("sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device", "254:0 100\n")
    machine.write("sys/fs/cgroup/blkio/a/b/blkio.throttle.write_iops_device", "254:0 150\n")
    groups.probe.sample(1.0)

    found = {
        (labels["device"], labels["limit"]): value
        for labels, value in Snapshot.of(0, groups.probe.points()).series("pinchpoint_cgroup_io_limit")
    }
    assert found == {("254:0", "write_operations_per_second"): 150}


def test_a_machine_without_cgroups_is_not_a_failure(machine: Machine) -> None:
    with pytest.raises(NotPresent):
        Groups(machine, "41 31 0:38 / /proc rw - proc proc rw\n").probe.sample(1.0)


def test_formats_of_both_versions_are_understood() -> None:
    assert parse_cgroup(b"4:cpu,cpuacct:/a:b\n0::/c\nbad\n7:x:relative") == {
        "cpu": "/a:b",
        "cpuacct": "/a:b",
        "": "/c",
    }
    assert parse_cpu_max(b"20000 100000\n") == 0.2
    assert parse_cpu_max(b"max 100000\n") is None
    assert parse_cpu_stat(b"nr_periods 5\nnr_throttled 2\nthrottled_time 3000000000\n") == Throttling(5, 2, 3.0)
    assert parse_cpu_stat(b"usage_usec 1\nnr_periods 5\nnr_throttled 2\nthrottled_usec 3\n") == Throttling(5, 2, 3e-6)
    assert list(parse_io_max(b"8:0 rbps=7 riops=max x=1\n")) == [IoLimit("8:0", "rbps", 7)]
    assert list(parse_throttle(b"8:0 7\n8:1\nTotal 9\n", "wbps")) == [IoLimit("8:0", "wbps", 7)]


WORDS = st.lists(
    st.sampled_from(
        [
            b"8:0 ",
            b"rbps=",
            b"nr_periods ",
            b"nr_throttled ",
            b"7",
            b"max ",
            b"\n",
            b" ",
            b":",
            b"/",
            b"9" * 30,
            b"\xff",
        ]
    )
).map(b"".join)


@given(st.binary() | WORDS)
def test_any_bytes_give_limits_or_a_format_error(raw: bytes) -> None:
    assert all(path.isprintable() for path in parse_cgroup(raw).values())
    assert all(limit.value >= 0 for limit in (*parse_io_max(raw), *parse_throttle(raw, "rbps")))
    for parse in (parse_cpu_max, parse_cpu_stat):
        try:
            parse(raw)
        except FormatError:
            pass


@pytest.fixture
def limited_group(this_host: Host) -> Iterator[Path]:
    """Make a cgroup on this machine that may use a fifth of a CPU."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a cgroup with a quota")
    for mount in read_mounts(this_host.procfs):
        directory = Path(mount.point, f"pinchpoint-test-{os.getpid()}")
        unified = mount.fstype == "cgroup2"
        if not unified and (mount.fstype != "cgroup" or "cpu" not in mount.options):
            continue
        try:
            directory.mkdir()
        except OSError:
            continue
        try:
            if unified:
                (directory / "cpu.max").write_text("20000 100000")
            else:
                (directory / "cpu.cfs_period_us").write_text("100000")
                (directory / "cpu.cfs_quota_us").write_text("20000")
        except OSError:
            directory.rmdir()
            continue
        yield directory
        # A process leaves its cgroup a moment after it has ended.
        deadline = time.monotonic() + 5
        while directory.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                directory.rmdir()
        return
    pytest.skip("no cgroup hierarchy with the cpu controller may be written here")


def test_a_busy_loop_in_a_real_group_with_a_fifth_of_a_cpu_is_throttled(limited_group: Path, this_host: Host) -> None:
    script = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); print(flush=True)\nwhile True: pass"
    loop = subprocess.Popen([sys.executable, "-c", script, str(limited_group / "cgroup.procs")], stdout=subprocess.PIPE)
    try:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"\n"
        host = replace(this_host, processes=Processes(this_host.procfs, this_host.roles, adopted=lambda: (loop.pid,)))
        probe = Cgroups(host)
        deadline = time.monotonic() + 20
        busy: dict[str, float] = {}
        while sum(busy.values()) <= 0 and time.monotonic() < deadline:
            probe.sample(time.monotonic())
            found = Snapshot.of(0, probe.points())
            busy = {labels["owner"]: n for labels, n in found.series("pinchpoint_resource_busy_seconds_total")}
            time.sleep(0.02)
    finally:
        loop.kill()
        loop.communicate()

    assert sum(busy.values()) > 0
    assert [value for _, value in found.series("pinchpoint_cgroup_cpu_quota_cpus")] == [0.2]
    assert sum(value for _, value in found.series("pinchpoint_cgroup_cpu_throttled_periods_total")) >= 1
