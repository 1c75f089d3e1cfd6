from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from machine import Machine
from pinchpoint.waits.datafiles import DataPlace
from pinchpoint.waits.fuse import FuseMounts
from pinchpoint.waits.stack_rules import FUSE


@pytest.fixture
def mounts(machine: Machine) -> Iterator[FuseMounts]:
    machine.process(1, "systemd", ppid=0)
    found = FuseMounts(machine.procfs, Path("/"), machine.host().processes)
    yield found
    found.close()


def at(point: str) -> DataPlace:
    return DataPlace(FUSE, "fuse.ceph-fuse", point)


def test_the_only_ceph_fuse_serves_every_mount(machine: Machine, mounts: FuseMounts) -> None:
    machine.process(10, "ceph-fuse", argv=("ceph-fuse", "--id", "x", "relative/point"))

    assert mounts.serving(at("/mnt/a"), 1.0) == 10


def test_of_several_the_one_whose_command_line_names_the_mount_serves_it(machine: Machine, mounts: FuseMounts) -> None:
    machine.process(10, "ceph-fuse", argv=("ceph-fuse", "/mnt/a/"))
    machine.process(11, "ceph-fuse", argv=("ceph-fuse", "-o", "nonempty", "/mnt/b"))

    assert mounts.serving(at("/mnt/a"), 1.0) == 10
    assert mounts.serving(at("/mnt/b"), 1.0) == 11


def test_one_of_several_is_not_guessed(machine: Machine, mounts: FuseMounts) -> None:
    machine.process(10, "ceph-fuse", argv=("ceph-fuse", "/mnt/a"))
    machine.process(11, "ceph-fuse", argv=("ceph-fuse", "/mnt/b"))

    assert mounts.serving(at("/mnt/c"), 1.0) is None
    assert mounts.serving(at(""), 1.0) is None


def test_a_users_process_of_that_name_serves_no_mount_and_hides_none_that_does(
    machine: Machine, mounts: FuseMounts
) -> None:
    machine.process(11, "ceph-fuse", argv=("ceph-fuse", "/mnt/a"), uid=1000)
    assert mounts.serving(at("/mnt/a"), 1.0) is None
    machine.process(10, "ceph-fuse", argv=("ceph-fuse", "/mnt/a"))

    assert mounts.serving(at("/mnt/a"), 2.0) == 10


def test_a_mount_of_another_host_is_served_by_nobody_here(mounts: FuseMounts) -> None:
    assert mounts.serving(at("/mnt/a"), 1.0) is None


def test_a_mount_without_a_socket_is_blind_after_a_moment(machine: Machine, mounts: FuseMounts) -> None:
    machine.process(10, "ceph-fuse", argv=("ceph-fuse", "/mnt/a"))
    mounts.follow([10], 1.0)
    assert mounts.shares({10: 0.5}, 0.5, 1.0) == {}

    mounts.follow([10], 4.0)
    assert mounts.shares({10: 0.5}, 0.5, 4.0) == {10: {"ceph": 1.0}}


def test_what_has_gone_is_not_followed(machine: Machine, mounts: FuseMounts) -> None:
    mounts.follow([99], 1.0)

    assert mounts.shares({99: 0.5}, 0.5, 5.0) == {}
