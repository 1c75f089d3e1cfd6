from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from machine import Machine
from patience import Deadline
from pinchpoint.host.procfs import parse_mounts, read_mounts
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.cgroups import Cgroups
from pinchpoint.probes.storage import whole_disk
from pinchpoint.threads.processes import Processes

V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n"
    "39 31 0:36 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
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
        """Write a cgroup of version 1; its quota is in us per 100 ms."""
        directory = f"sys/fs/cgroup/cpu,cpuacct{path}"
        self.machine.write(f"{directory}/cpu.cfs_quota_us", f"{quota}\n")
        self.machine.write(f"{directory}/cpu.cfs_period_us", "100000\n")
        stat = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {int(seconds * 1e9)}\n"
        self.machine.write(f"{directory}/cpu.stat", stat)

    def v2(self, path: str, *, quota: str, periods: int, throttled: int, seconds: float = 0.0) -> None:
        """Write a cgroup of version 2; its quota is the first word of cpu.max."""
        directory = f"sys/fs/cgroup{path}"
        self.machine.write(f"{directory}/cpu.max", f"{quota} 100000\n")
        stat = f"usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {int(seconds * 1e6)}\n"
        self.machine.write(f"{directory}/cpu.stat", stat)

    def process(self, pid: int, comm: str, cgroup: str, *argv: str) -> None:
        self.machine.process(pid, comm, argv=(comm, *argv))
        self.machine.write(f"proc/{pid}/cgroup", cgroup)

    def io_v1(self, path: str, read_bytes: int = 0, write_bytes: int = 0, reads: int = 0, writes: int = 0) -> None:
        """Write what the processes of a version 1 cgroup have read and written on 254:0."""
        directory = f"sys/fs/cgroup/blkio{path}/blkio.throttle"
        self.machine.write(f"{directory}.io_service_bytes", f"254:0 Read {read_bytes}\n254:0 Write {write_bytes}\n")
        self.machine.write(f"{directory}.io_serviced", f"254:0 Read {reads}\n254:0 Write {writes}\nTotal 1\n")

    def io_used(self, owner: str) -> float | None:
        """Return the busy seconds of an owner's block I/O limit."""
        found = Snapshot.of(0, self.probe.points())
        labels = {"resource": "io_quota", "serves": "disk,writeback", "owner": owner}
        return found.value("pinchpoint_resource_busy_seconds_total", **labels)

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


def test_a_limit_of_block_io_of_version_1_is_busy_by_what_its_group_uses_of_it(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:blkio:/job\n")
    machine.write("sys/fs/cgroup/blkio/job/blkio.throttle.write_bps_device", "254:0 1000\n")
    machine.write("sys/fs/cgroup/blkio/job/blkio.throttle.write_iops_device", "254:0 10\n")
    groups.io_v1("/job", write_bytes=50_000, writes=7)
    groups.probe.sample(1.0)
    assert groups.io_used("fio") == 0
    groups.io_v1("/job", write_bytes=50_600, writes=16)  # 600 of 1000 bytes, 9 of 10 operations
    groups.probe.sample(2.0)
    assert groups.io_used("fio") == pytest.approx(0.9)
    groups.io_v1("/job", write_bytes=51_400, writes=16)  # within two seconds
    groups.probe.sample(4.0)
    assert groups.io_used("fio") == pytest.approx(0.9 + 2 * 0.4)
    groups.io_v1("/job", write_bytes=60_000, writes=16)  # a burst that exceeds the limit
    groups.probe.sample(5.0)

    assert groups.io_used("fio") == pytest.approx(0.9 + 0.8 + 1.0)
    labels = {"resource": "io_quota", "serves": "disk,writeback", "owner": "fio"}
    found = Snapshot.of(0, groups.probe.points())
    assert found.value("pinchpoint_resource_saturated_seconds_total", **labels) == 2.0


@pytest.mark.parametrize("version", [1, 2])
def test_a_memory_limit_is_busy_while_the_group_meets_it(machine: Machine, version: int) -> None:
    groups = Groups(machine, V1 if version == 1 else V2)
    groups.process(50, "fio", "3:memory:/job/step\n" if version == 1 else "0::/job/step\n")

    def met(times: int) -> None:
        if version == 1:
            directory = "sys/fs/cgroup/memory/job"
            machine.write(f"{directory}/memory.limit_in_bytes", "67108864\n")
            machine.write(f"{directory}/memory.failcnt", f"{times}\n")
            machine.write(f"{directory}/step/memory.limit_in_bytes", "9223372036854771712\n")
        else:
            directory = "sys/fs/cgroup/job"
            machine.write(f"{directory}/memory.max", "max\n")
            machine.write(f"{directory}/memory.high", "67108864\n")
            machine.write(f"{directory}/memory.events", f"low 0\nhigh {times}\nmax 0\noom 0\n")
            machine.write(f"{directory}/step/memory.max", "max\n")

    for now, times in ((1.0, 7), (2.0, 7), (3.0, 9), (4.0, 30), (6.0, 30), (9.0, 30), (10.0, 30)):
        met(times)
        groups.probe.sample(now)

    found = Snapshot.of(0, groups.probe.points())
    labels = {"resource": "memory_quota", "serves": "memory", "owner": "fio"}
    # It is met from 3.0 to 4.0; a task may reclaim for seconds after that.
    assert found.value("pinchpoint_resource_busy_seconds_total", **labels) == 4.0
    assert found.value("pinchpoint_resource_saturated_seconds_total", **labels) == 4.0
    assert found.value("pinchpoint_cgroup_memory_limit_bytes", owner="fio") == 67108864


def test_a_memory_limit_that_is_changed_or_lifted_is_seen(machine: Machine) -> None:
    groups = Groups(machine, V2)
    groups.process(50, "fio", "0::/job\n")
    seen = []
    for now, limit in ((1.0, "1000000"), (10.0, "2000000"), (20.0, "max")):
        machine.write("sys/fs/cgroup/job/memory.max", f"{limit}\n")
        groups.probe.sample(now)
        seen.append(groups.value("cgroup_memory_limit_bytes", "fio"))

    assert seen == [1000000, 2000000, None]


def test_what_is_read_does_not_count_against_a_limit_of_writes(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:blkio:/job\n")
    machine.write("sys/fs/cgroup/blkio/job/blkio.throttle.write_bps_device", "254:0 1000\n")
    for step in (0, 1):
        groups.io_v1("/job", read_bytes=10**6 * step, reads=100 * step)
        groups.probe.sample(1.0 + step)

    assert groups.io_used("fio") == 0


def test_a_limit_on_the_root_group_of_version_1_is_the_speed_of_the_device_and_nobodys_quota(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:blkio:/\n")
    machine.write("sys/fs/cgroup/blkio/blkio.throttle.read_iops_device", "254:0 100\n")
    for step in (0, 1):
        groups.io_v1("/", reads=50 * step)
        groups.probe.sample(1.0 + step)

    assert groups.io_used("fio") is None


def test_the_tightest_of_all_limits_of_version_2_above_a_process_counts(machine: Machine) -> None:
    groups = Groups(machine, V2)
    groups.process(50, "ceph-osd", "0::/a/b\n", "-i", "3")
    machine.write("sys/fs/cgroup/a/io.max", "8:16 rbps=1000 wbps=max riops=max wiops=max\n8:0 rbps=5 wiops=max\n")
    machine.write("sys/fs/cgroup/a/b/io.max", "8:16 rbps=4000 wbps=max riops=max wiops=100\n")
    for step in (0, 1):
        # The group above also counts the I/O of all groups below it.
        machine.write("sys/fs/cgroup/a/io.stat", f"8:16 rbytes={700 * step} wbytes=0 rios={step} wios={60 * step}\n")
        machine.write("sys/fs/cgroup/a/b/io.stat", f"8:16 rbytes={400 * step} wbytes=0 rios={step} wios={20 * step}\n")
        groups.probe.sample(1.0 + step)

    assert groups.io_used("osd.3") == pytest.approx(0.7)


def test_the_first_io_on_a_limited_device_counts_from_zero(machine: Machine) -> None:
    groups = Groups(machine, V2)
    groups.process(50, "fio", "0::/a\n")
    machine.write("sys/fs/cgroup/a/io.max", "8:16 rbps=max wbps=1000 riops=max wiops=max\n")
    machine.write("sys/fs/cgroup/a/io.stat", "8:0 rbytes=5\n")
    groups.probe.sample(1.0)
    machine.write("sys/fs/cgroup/a/io.stat", "8:0 rbytes=5\n8:16 rbytes=0 wbytes=500 rios=0 wios=5\n")
    groups.probe.sample(2.0)

    assert groups.io_used("fio") == pytest.approx(0.5)


def test_without_a_limit_of_block_io_nothing_is_said_of_its_use(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:blkio:/job\n")
    groups.io_v1("/job", write_bytes=50_000)
    groups.probe.sample(1.0)
    groups.probe.sample(2.0)
    assert groups.io_used("fio") is None


def test_an_io_limit_that_is_lifted_stays_a_while_and_is_no_more_busy(machine: Machine) -> None:
    groups = Groups(machine, V1)
    groups.process(50, "fio", "3:blkio:/job\n")
    file = "sys/fs/cgroup/blkio/job/blkio.throttle.write_bps_device"
    machine.write(file, "254:0 1000\n")
    for step in (0, 1):
        groups.io_v1("/job", write_bytes=1000 * step)
        groups.probe.sample(1.0 + step)
    machine.write(file, "")
    groups.io_v1("/job", write_bytes=10**6)
    groups.probe.sample(7.0)
    assert groups.io_used("fio") == 1.0
    groups.probe.sample(1000.0)
    assert groups.io_used("fio") is None


def test_a_machine_without_cgroups_is_not_a_failure(machine: Machine) -> None:
    with pytest.raises(NotPresent):
        Groups(machine, "41 31 0:38 / /proc rw - proc proc rw\n").probe.sample(1.0)


@pytest.fixture
def limited_group(this_host: Host) -> Iterator[Path]:
    """Make a cgroup on this machine that may use a fifth of a CPU."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a cgroup with a quota")
    for mount in parse_mounts(read_mounts(this_host.procfs)):
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
        # A process leaves its cgroup shortly after its end.
        deadline = Deadline(5)
        while directory.exists() and not deadline.over:
            with suppress(OSError):
                directory.rmdir()
        return
    pytest.skip("no cgroup hierarchy with the cpu controller is writable here")


def test_a_busy_loop_in_a_real_group_with_a_fifth_of_a_cpu_is_throttled(limited_group: Path, this_host: Host) -> None:
    script = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); print(flush=True)\nwhile True: pass"
    loop = subprocess.Popen([sys.executable, "-c", script, str(limited_group / "cgroup.procs")], stdout=subprocess.PIPE)
    try:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"\n"
        host = replace(this_host, processes=Processes(this_host.procfs, this_host.roles, adopted=lambda: (loop.pid,)))
        probe = Cgroups(host)
        deadline = Deadline(20)
        busy: dict[str, float] = {}
        while sum(busy.values()) <= 0 and not deadline.over:
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


@pytest.fixture
def slow_group(this_host: Host, disk_path: Path) -> Iterator[Path]:
    """Make a cgroup on this machine that may write 2 MiB/s to the disk under the temporary directory."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a cgroup with a limit")
    number = os.stat(disk_path).st_dev
    disk = whole_disk(this_host.sysfs, f"{os.major(number)}:{os.minor(number)}")
    try:
        device = (this_host.sysfs / "block" / disk / "dev").read_text().strip()
    except OSError:
        pytest.skip(f"{disk_path} is not on a disk")
    for mount in parse_mounts(read_mounts(this_host.procfs)):
        directory = Path(mount.point, f"pinchpoint-test-io-{os.getpid()}")
        unified = mount.fstype == "cgroup2"
        if not unified and (mount.fstype != "cgroup" or "blkio" not in mount.options):
            continue
        try:
            directory.mkdir()
        except OSError:
            continue
        try:
            if unified:
                (directory / "io.max").write_text(f"{device} wbps={2 << 20}")
            else:
                (directory / "blkio.throttle.write_bps_device").write_text(f"{device} {2 << 20}")
        except OSError:
            directory.rmdir()
            continue
        yield directory
        deadline = Deadline(5)
        while directory.exists() and not deadline.over:
            with suppress(OSError):
                directory.rmdir()
        return
    pytest.skip("no cgroup hierarchy with limits of block I/O is writable here")


def test_direct_writes_in_a_real_group_with_a_limit_use_all_of_it(
    slow_group: Path, this_host: Host, disk_path: Path
) -> None:
    script = (
        "import mmap, os, sys\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "file = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY | os.O_DIRECT)\n"
        "block = mmap.mmap(-1, 1 << 16)\n"
        "while True: os.pwrite(file, block, 0)\n"
    )
    file = disk_path / "direct"
    writer = subprocess.Popen([sys.executable, "-c", script, str(slow_group / "cgroup.procs"), str(file)])
    try:
        host = replace(
            this_host, processes=Processes(this_host.procfs, this_host.roles, adopted=lambda: (writer.pid,))
        )  # fmt: skip
        probe = Cgroups(host)
        deadline = Deadline(30)
        full = 0.0
        while full < 2 and not deadline.over:
            probe.sample(time.monotonic())
            found = Snapshot.of(0, probe.points())
            full = sum(
                value
                for labels, value in found.series("pinchpoint_resource_saturated_seconds_total")
                if labels["resource"] == "io_quota"
            )
            time.sleep(0.5)
        if writer.poll() is not None:
            pytest.skip("the file system of the temporary directory has no direct I/O")
    finally:
        writer.kill()
        writer.communicate()

    assert full >= 2
    assert 2 << 20 in [value for _, value in found.series("pinchpoint_cgroup_io_limit")]
