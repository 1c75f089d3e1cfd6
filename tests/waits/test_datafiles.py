from __future__ import annotations

import os

import pytest

from machine import Machine
from pinchpoint.host.mount_tables import MOUNTS_INTERVAL_SECONDS
from pinchpoint.waits.datafiles import DataFiles, DataPlace
from pinchpoint.waits.stack_rules import FUSE, load_waits

MOUNTS = """\
20 1 254:0 / / rw - ext4 /dev/vda rw
21 20 0:30 / /mnt/ceph rw - ceph 10.0.0.1:/ rw
22 20 0:31 / /mnt/fuse rw - fuse.ceph-fuse ceph-fuse rw
23 20 0:32 / /tmp rw - tmpfs tmpfs rw
24 20 0:33 / /net rw - nfs4 server:/ rw
"""


@pytest.fixture
def files(machine: Machine) -> DataFiles:
    machine.process(10, "ior")
    machine.write("proc/10/mountinfo", MOUNTS)
    return DataFiles(machine.procfs, load_waits())


def opened(machine: Machine, descriptor: int, path: str, mount: int, *, flags: int = os.O_RDWR) -> None:
    machine.opens(10, descriptor, path)
    machine.write(f"proc/10/fdinfo/{descriptor}", f"pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t1\n")


def test_the_file_system_of_an_open_file_says_what_is_waited_for(machine: Machine, files: DataFiles) -> None:
    opened(machine, 5, "/mnt/ceph/data", 21)

    assert files.place(10, 0.0) == DataPlace("osd", "ceph", "/mnt/ceph")


def test_output_pipes_and_files_in_memory_are_no_data(machine: Machine, files: DataFiles) -> None:
    opened(machine, 1, "/var/log/out", 20)
    opened(machine, 4, "pipe:[7]", 20)
    opened(machine, 5, "/tmp/x", 23)

    assert files.place(10, 0.0) is None


def test_a_log_on_a_disk_does_not_hide_data_on_a_network_file_system(machine: Machine, files: DataFiles) -> None:
    opened(machine, 3, "/var/log/bench.log", 20)
    opened(machine, 9, "/net/data", 24)
    place = files.place(10, 0.0)

    assert place is not None
    assert place.wait == "network"


def test_what_bypasses_the_page_cache_is_data_before_anything_else(machine: Machine, files: DataFiles) -> None:
    opened(machine, 3, "/net/config", 24)
    opened(machine, 9, "/data/file", 20, flags=os.O_RDWR | os.O_DIRECT)
    place = files.place(10, 0.0)

    assert place is not None
    assert place.wait == "disk"


def test_a_process_that_cannot_be_seen_has_no_place(machine: Machine, files: DataFiles) -> None:
    assert files.place(99, 0.0) is None
    machine.write("proc/10/mountinfo", "nonsense\n")
    opened(machine, 5, "/mnt/ceph/data", 21)
    assert files.place(10, 0.0) is None


def test_mounts_are_read_again_now_and_then(machine: Machine, files: DataFiles) -> None:
    opened(machine, 5, "/new/data", 25)
    assert files.place(10, 0.0) is None

    machine.write("proc/10/mountinfo", MOUNTS + "25 20 0:34 / /new rw - ceph x:/ rw\n")
    assert files.place(10, MOUNTS_INTERVAL_SECONDS / 2) is None
    place = files.place(10, MOUNTS_INTERVAL_SECONDS)
    assert place is not None
    assert place.wait == "osd"


def test_the_only_fuse_mount_is_known_without_an_open_file(machine: Machine, files: DataFiles) -> None:
    assert files.fuse_mount(10, 0.0) == DataPlace(FUSE, "fuse.ceph-fuse", "/mnt/fuse")


def test_one_of_several_fuse_mounts_is_not_guessed(machine: Machine, files: DataFiles) -> None:
    machine.write("proc/10/mountinfo", MOUNTS + "26 20 0:35 / /other rw - fuse.ceph-fuse ceph-fuse rw\n")
    assert files.fuse_mount(10, 0.0) == DataPlace(FUSE, "fuse.ceph-fuse", "")

    machine.write("proc/10/mountinfo", MOUNTS + "26 20 0:35 / /home rw - fuse.sshfs host:/ rw\n")
    assert files.fuse_mount(10, MOUNTS_INTERVAL_SECONDS) is None
