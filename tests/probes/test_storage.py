from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from machine import Machine
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host
from pinchpoint.probes.storage import (
    KEEP_DISK_SECONDS,
    LONGEST_FILES_INTERVAL_SECONDS,
    MAX_FILES_PER_SAMPLE,
    Storage,
    whole_disk,
)
from pinchpoint.threads.processes import Processes
from polling import until

SDA, SDA1, NVME, DM, LOOP, BOOT = "8:0", "8:1", "259:0", "253:1", "7:3", "8:17"
MOUNTS = (
    "22 27 0:21 / /proc rw - proc proc rw\n"
    "24 27 0:6 / /dev rw - devtmpfs devtmpfs rw\n"
    f"27 1 {SDA1} / / rw - ext4 /dev/sda1 rw\n"
    f"30 27 {NVME} / /data rw - xfs /dev/nvme0n1 rw\n"
    f"31 27 {DM} / /lvm rw - ext4 /dev/mapper/vg-lv rw\n"
    f"32 27 {LOOP} / /loop rw - ext4 /dev/loop3 rw\n"
    "33 27 0:40 / /tmp rw - tmpfs tmpfs rw\n"
    "34 27 0:45 / /ceph rw - ceph 10.0.0.1:6789:/ rw\n"
    "35 27 0:50 / /nfs rw - nfs4 server:/export rw\n"
    "36 27 0:52 /sub /btrfs rw - btrfs /dev/sdb1 rw\n"
    "37 27 0:53 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/data/upper,workdir=/data/work\n"
    "38 27 0:54 / /fuse rw - fuse.sshfs /dev/sda1 rw\n"
)
PLACES = {
    SDA: "pci/block/sda",
    SDA1: "pci/block/sda/sda1",
    BOOT: "pci/block/sdb/sdb1",
    NVME: "pci/nvme/nvme0/nvme0n1",
    DM: "virtual/block/dm-1",
    LOOP: "virtual/block/loop3",
    "104:0": "pci/block/cciss!c0d0",
}


class Files:
    """A machine with disks, mounts and open files."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        for number, place in PLACES.items():
            directory = machine.sysfs / "devices" / place
            directory.mkdir(parents=True, exist_ok=True)
            if directory.name[-1].isdigit() and directory.parent.name.startswith("sd"):
                (directory / "partition").write_text("1\n")
            link = machine.sysfs / "dev" / "block" / number
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../devices/{place}")
        for bdi in ("8:0", "259:0", "ceph-2", "0:50", "btrfs-1"):
            (machine.sysfs / "class" / "bdi" / bdi).mkdir(parents=True)
        machine.write("proc/1/mountinfo", MOUNTS)
        self.nodes: dict[str, tuple[int, int]] = {}
        self.asked: list[str] = []
        self.probe = Storage(machine.host(), self.stat)

    def stat(self, path: str) -> os.stat_result:
        """Answer for device nodes, which a test may not create."""
        self.asked.append(path)
        target = os.readlink(path) if os.path.islink(path) else path.removeprefix(str(self.machine.procfs.parent))
        if target not in self.nodes:
            raise FileNotFoundError(path)
        fields = list(os.stat(self.machine.procfs))
        fields[0] = stat.S_IFBLK | 0o660
        return os.stat_result(fields, {"st_rdev": os.makedev(*self.nodes[target])})

    def process(self, pid: int, comm: str, *argv: str, mounts: str = MOUNTS) -> None:
        self.machine.process(pid, comm, argv=(comm, *argv))
        self.machine.write(f"proc/{pid}/mountinfo", mounts)

    def found(self, now: float = 1.0) -> set[tuple[str, str, str]]:
        self.probe.sample(now)
        return self.shown()

    def shown(self) -> set[tuple[str, str, str]]:
        points = Snapshot.of(0, self.probe.points()).series("pinchpoint_storage_device_info")
        return {(labels["owner"], labels["device"], labels["bdi"]) for labels, value in points if value == 1}


@pytest.fixture
def files(machine: Machine) -> Files:
    return Files(machine)


@pytest.mark.parametrize(
    ("mount", "device", "bdi"),
    [
        (27, "sda", "sda"),
        (30, "nvme0n1", "nvme0n1"),
        (31, "dm-1", "dm-1"),
        (32, "loop3", "loop3"),
        (34, "", "ceph-2"),
        (35, "", "0:50"),
        (37, "nvme0n1", "nvme0n1"),
    ],
    ids=["partition", "disk", "device-mapper", "loop", "cephfs", "nfs", "overlay"],
)
def test_the_disk_under_an_open_file_is_that_of_its_mount(files: Files, mount: int, device: str, bdi: str) -> None:
    files.process(50, "ior")
    files.machine.opens(50, 5, "/some/file", mount=mount, flags=os.O_DIRECT | os.O_RDWR)

    assert files.found() == {("ior", device, bdi)}
    assert files.asked == []


def test_a_file_system_of_several_devices_names_one_of_them(files: Files) -> None:
    files.process(50, "fio")
    files.machine.opens(50, 5, "/btrfs/file", mount=36)
    files.nodes["/dev/sdb1"] = (8, 17)

    assert files.found() == {("fio", "sdb", "btrfs-1")}


def test_of_several_cephfs_mounts_nobody_tells_which_backing_device_is_whose(files: Files) -> None:
    (files.machine.sysfs / "class" / "bdi" / "ceph-7").mkdir()
    files.process(50, "ior")
    files.machine.opens(50, 5, "/ceph/file", mount=34)

    assert files.found() == {("ior", "", "ceph-2"), ("ior", "", "ceph-7")}


def test_the_device_that_an_osd_has_open_counts_and_so_do_partitions(files: Files) -> None:
    files.process(50, "ceph-osd", "-i", "3")
    files.machine.opens(50, 25, "/dev/dm-1", mount=24, flags=os.O_DIRECT | os.O_RDWR)
    files.machine.opens(50, 26, "/dev/sda1", mount=24)
    files.machine.opens(50, 27, "/dev/urandom", mount=24)
    files.nodes = {"/dev/dm-1": (253, 1), "/dev/sda1": (8, 1)}

    assert files.found() == {("osd.3", "dm-1", "dm-1"), ("osd.3", "sda", "sda")}


def test_the_disks_of_osds_are_shown_however_many_others_are(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.probes.storage.MAX_DEVICES", 1)
    for pid, comm in ((50, "ior"), (51, "fio")):
        files.process(pid, comm)
        files.machine.opens(pid, 5, "/some/file", mount=30)
    files.found()
    files.process(60, "ceph-osd", "-i", "3")
    files.machine.opens(60, 25, "/dev/sda1", mount=24)
    files.nodes["/dev/sda1"] = (8, 1)

    assert files.found(2.0) == {("ior", "nvme0n1", "nvme0n1"), ("osd.3", "sda", "sda")}


def test_only_device_nodes_in_memory_are_looked_at_as_no_other_file_system_is_sure_to_answer(files: Files) -> None:
    files.process(50, "ior")
    for descriptor, mount in enumerate((22, 24, 27, 30, 31, 32, 33, 34, 35, 37, 38), 3):
        files.machine.opens(50, descriptor, f"/file/{mount}", mount=mount)
    files.found()

    fds = files.machine.procfs / "50" / "fd"
    assert sorted(files.asked) == sorted([f"{fds}/4", f"{fds}/9"])


def test_what_a_fuse_server_calls_its_source_is_not_believed(files: Files) -> None:
    files.process(50, "ior")
    files.nodes["/dev/sda1"] = (8, 1)
    files.machine.opens(50, 5, "/fuse/file", mount=38)

    assert files.found() == set()


def test_logs_sockets_and_standard_errors_are_no_data(files: Files) -> None:
    files.process(50, "ceph-osd", "-i", "3")
    files.machine.opens(50, 4, "/var/log/ceph/ceph-osd.3.log", mount=27, flags=os.O_APPEND | os.O_WRONLY)
    files.machine.opens(50, 5, "socket:[5]", mount=27)
    files.machine.opens(50, 6, "/loop/block", mount=32)
    files.process(60, "fio")
    for descriptor in (1, 2):
        files.machine.opens(60, descriptor, "/home/me/fio.out", mount=27)

    assert files.found() == {("osd.3", "loop3", "loop3")}


def test_dd_has_its_data_at_the_standard_streams(files: Files) -> None:
    files.process(50, "dd")
    files.machine.opens(50, 0, "/dev/zero", mount=24)
    files.machine.opens(50, 1, "/data/file", mount=30)
    files.machine.opens(50, 2, "/dev/pts/0", mount=27)

    assert files.found() == {("dd", "nvme0n1", "nvme0n1")}


def test_only_benchmarks_and_osds_are_looked_at(files: Files) -> None:
    for pid, comm in ((50, "ceph-mds"), (51, "ceph-fuse"), (52, "cron")):
        files.process(pid, comm)
        files.machine.opens(pid, 5, "/data/file", mount=30)

    assert files.found() == set()


def test_a_file_that_was_open_for_a_moment_counts_for_a_while(files: Files) -> None:
    files.process(50, "fio")
    files.machine.opens(50, 5, "/data/file", mount=30)
    assert files.found(1.0) == {("fio", "nvme0n1", "nvme0n1")}
    files.machine.end(50)

    assert files.found(1.0 + KEEP_DISK_SECONDS / 2) == {("fio", "nvme0n1", "nvme0n1")}
    assert files.found(1.0 + KEEP_DISK_SECONDS) == set()


def test_an_osd_is_looked_at_seldom_and_its_devices_stay(files: Files) -> None:
    files.process(50, "ceph-osd", "-i", "3")
    files.machine.opens(50, 5, "/loop/block", mount=32)
    files.found(1.0)
    files.machine.opens(50, 6, "/data/db", mount=30)

    assert files.found(2.0) == {("osd.3", "loop3", "loop3")}
    assert files.found(1.0 + LONGEST_FILES_INTERVAL_SECONDS) == {
        ("osd.3", "loop3", "loop3"),
        ("osd.3", "nvme0n1", "nvme0n1"),
    }


@pytest.mark.parametrize(("processes", "interval"), [(1, 1), (4, 1), (8, 2), (400, 10)])
def test_of_many_processes_each_is_looked_at_more_rarely(files: Files, processes: int, interval: int) -> None:
    for pid in range(50, 50 + processes):
        files.process(pid, "fio")
    assert files.found(1.0) == set()
    files.machine.opens(50, 5, "/data/file", mount=30)

    assert [bool(files.found(1.0 + second)) for second in range(1, 12)] == [
        second >= interval for second in range(1, 12)
    ]


def test_another_users_processes_delay_no_look_at_ours(files: Files) -> None:
    for pid in range(50, 90):
        files.process(pid, "fio")
        files.machine.process(pid, "fio", uid=1000)
    files.process(90, "ior")
    assert files.found(1.0) == set()
    files.machine.opens(90, 5, "/data/file", mount=30)

    assert files.found(2.0) == {("ior", "nvme0n1", "nvme0n1")}


def test_an_osd_rotates_if_one_of_its_disks_does(files: Files) -> None:
    files.nodes.update({"/dev/sda": (8, 0), "/dev/nvme0n1": (259, 0), "/dev/loop3": (7, 3)})
    for pid, (owner, nodes) in enumerate({"3": ["sda", "nvme0n1"], "4": ["nvme0n1"], "5": ["loop3"]}.items(), 50):
        files.process(pid, "ceph-osd", "-i", owner)
        for descriptor, node in enumerate(nodes, 10):
            files.machine.opens(pid, descriptor, f"/dev/{node}", mount=24)
    files.machine.write("sys/class/block/sda/queue/rotational", "1\n")
    files.machine.write("sys/class/block/nvme0n1/queue/rotational", "0\n")
    files.process(60, "fio")
    files.machine.opens(60, 5, "/data/file", mount=30)
    files.found(1.0)

    found = Snapshot.of(0, files.probe.points()).series("pinchpoint_storage_rotational")
    assert {labels["owner"]: value for labels, value in found} == {"osd.3": 1, "osd.4": 0}, "of osd.5 it is not known"


def test_more_files_than_are_looked_at_in_one_sample_have_their_turn_in_the_next_ones(files: Files) -> None:
    files.process(50, "fio")
    files.process(60, "ior")
    files.machine.opens(50, 3, "/lvm/file", mount=31)
    # As many as are looked at: which ones a listing has first, procfs sorts and a file system of the test does not.
    for descriptor in range(4, 3 + MAX_FILES_PER_SAMPLE):
        link = files.machine.procfs / "50" / "fd" / str(descriptor)
        link.symlink_to("socket:[1]")
    files.machine.opens(60, 5, "/data/file", mount=30)

    assert files.found(1.0) == {("fio", "dm-1", "dm-1")}
    assert files.found(2.0) == {("fio", "dm-1", "dm-1"), ("ior", "nvme0n1", "nvme0n1")}


def test_another_users_files_delay_no_look_at_ours(files: Files) -> None:
    for pid in range(50, 54):
        files.process(pid, "fio")
        files.machine.process(pid, "fio", uid=1000)
        for descriptor in range(4, 4 + MAX_FILES_PER_SAMPLE):
            link = files.machine.procfs / str(pid) / "fd" / str(descriptor)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to("socket:[1]")
    files.process(60, "ior")
    files.machine.opens(60, 5, "/data/file", mount=30)

    assert files.found(1.0) == {("ior", "nvme0n1", "nvme0n1")}


def test_a_process_in_a_container_sees_other_mounts_and_its_root_is_an_overlay_of_the_host(files: Files) -> None:
    inside = (
        "50 1 0:60 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/data/docker/x/diff,workdir=/data/docker/x/work\n"
        f"30 50 {LOOP} / /volume rw - ext4 /dev/loop3 rw\n"
    )
    files.process(50, "fio", mounts=inside)
    files.machine.opens(50, 5, "/job", mount=50)
    files.machine.opens(50, 6, "/volume/file", mount=30)

    assert files.found() == {("fio", "nvme0n1", "nvme0n1"), ("fio", "loop3", "loop3")}


def test_an_overlay_of_itself_ends(files: Files) -> None:
    loop = "50 1 0:60 / / rw - overlay overlay rw,upperdir=/x\n60 50 0:61 / /x rw - overlay overlay rw,upperdir=/\n"
    files.process(50, "fio", mounts=loop)
    files.machine.write("proc/1/mountinfo", loop)
    files.machine.opens(50, 5, "/job", mount=60)

    assert files.found() == set()


def test_a_mount_that_was_made_later_is_found_when_the_table_is_read_again(files: Files) -> None:
    files.process(50, "fio", mounts="")
    files.machine.opens(50, 5, "/data/file", mount=30)
    assert files.found(1.0) == set()
    files.machine.write("proc/50/mountinfo", MOUNTS)

    assert files.found(10.0) == {("fio", "nvme0n1", "nvme0n1")}


def test_a_damaged_or_missing_fdinfo_is_no_file(files: Files) -> None:
    files.process(50, "fio")
    files.machine.opens(50, 5, "/data/file", mount=30)
    files.machine.write("proc/50/fdinfo/5", "pos:\t0\nflags:\t02\n")
    files.machine.opens(50, 6, "/data/other", mount=30)
    (files.machine.procfs / "50" / "fdinfo" / "6").unlink()

    assert files.found() == set()


def test_a_host_without_benchmarks_and_osds_has_nothing_to_show(files: Files) -> None:
    assert files.found() == set()


class Refusing(Storage):
    """The files of the processes in `others`, as of another user, may not be listed."""

    others: frozenset[int] = frozenset()

    def _look(self, process, now, limit):  # type: ignore[no-untyped-def]
        if process.pid in self.others:
            raise PermissionError(13, "Permission denied", f"/proc/{process.pid}/fd")
        return super()._look(process, now, limit)


def test_a_probe_that_may_see_no_process_fails_and_one_that_sees_some_does_not(files: Files) -> None:
    files.process(50, "fio")
    files.process(60, "ior")
    files.machine.opens(60, 5, "/data/file", mount=30)
    probe = files.probe = Refusing(files.machine.host(), files.stat)
    probe.others = frozenset({50, 60})
    with pytest.raises(PermissionError):
        probe.sample(1.0)
    assert files.shown() == set()
    probe.others = frozenset({50})

    assert files.found(2.0) == {("ior", "nvme0n1", "nvme0n1")}


def test_descriptors_that_may_be_listed_but_not_followed_are_a_failure_too(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.process(50, "fio")
    files.machine.opens(50, 5, "/data/file", mount=30)

    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.readlink", refuse)
    with pytest.raises(PermissionError):
        files.probe.sample(1.0)


@pytest.mark.parametrize(
    ("number", "disk"),
    [(SDA1, "sda"), (SDA, "sda"), (NVME, "nvme0n1"), ("104:0", "cciss/c0d0"), ("9:9", "9:9")],
)
def test_a_partition_belongs_to_a_disk_whose_name_is_that_of_diskstats(files: Files, number: str, disk: str) -> None:
    assert whole_disk(files.machine.sysfs, number) == disk


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    mounts=st.binary(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                b"30 ",
                b"1 ",
                b"0:60 ",
                b"8:1 ",
                b"/ ",
                b"/x ",
                b"rw ",
                b"- ",
                b"overlay ",
                b"btrfs ",
                b"/dev/sda1 ",
                b"rw,upperdir=/x/y",
                b"upperdir=",
                b"\n",
                b"\xff",
            ]
        )
    ).map(b"".join)
)
def test_any_mount_table_gives_disks_or_nothing(files: Files, mounts: bytes) -> None:
    files.machine.process(50, "fio")
    files.machine.write("proc/50/mountinfo", mounts)
    files.machine.opens(50, 5, "/data/file", mount=30)

    assert all(owner == "fio" for owner, _, _ in files.found(float(time.monotonic_ns())))


@pytest.fixture
def open_file(disk_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Give a process that has a file in the temporary directory open, for direct I/O if possible."""
    path = disk_path / "data"
    script = (
        "import os, sys\n"
        "try: file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.O_DIRECT)\n"
        "except OSError: file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    yield process, path
    process.communicate()


def test_the_disk_of_a_real_file_is_that_of_its_device_number(
    this_host: Host, open_file: tuple[subprocess.Popen[bytes], Path]
) -> None:
    process, path = open_file
    number = os.stat(path).st_dev
    if not os.major(number):
        pytest.skip(f"{path} is not on a disk")
    disk = whole_disk(this_host.sysfs, f"{os.major(number)}:{os.minor(number)}")
    host = replace(this_host, processes=Processes(this_host.procfs, this_host.roles, adopted=lambda: (process.pid,)))
    probe = Storage(host)

    def devices() -> set[str]:
        probe.sample(time.monotonic())
        return {labels["device"] for labels, _ in Snapshot.of(0, probe.points()).series(probe.metrics[0].name)}

    assert until(10, lambda: disk in devices(), pause=0.3)
    assert disk in {line.split()[2] for line in (this_host.procfs / "diskstats").read_text().splitlines()}


def test_children_that_live_for_a_moment_leave_their_disk(this_host: Host, disk_path: Path) -> None:
    number = os.stat(disk_path).st_dev
    if not os.major(number):
        pytest.skip(f"{disk_path} is not on a disk")
    # One process that forks a child for each short job, as fio does.
    script = (
        "import os, sys, time\n"
        "while True:\n"
        "    if not (pid := os.fork()):\n"
        "        file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); time.sleep(0.1); os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(disk_path / "job")], start_new_session=True)
    try:
        processes = Processes(this_host.procfs, this_host.roles, adopted=lambda: (parent.pid,))
        probe = Storage(replace(this_host, processes=processes))
        disk = whole_disk(this_host.sysfs, f"{os.major(number)}:{os.minor(number)}")

        def devices() -> set[str]:
            probe.sample(time.monotonic())
            return {labels["device"] for labels, _ in Snapshot.of(0, probe.points()).series(probe.metrics[0].name)}

        assert until(30, lambda: disk in devices(), pause=0.1)
    finally:
        os.killpg(parent.pid, 9)
        parent.wait()
