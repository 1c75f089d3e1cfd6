from __future__ import annotations

import os

import pytest

import pinchpoint.host.mount_tables as module
from machine import Machine
from pinchpoint.host.mount_tables import MOUNTS_INTERVAL_SECONDS, MountTables

LINE = "{} 1 0:{} / /m/{} rw - tmpfs x rw\n"


def mounts(machine: Machine, pid: int, namespace: int, number: int) -> None:
    """Give a process so many mounts in a mount namespace."""
    machine.write(f"proc/{pid}/mountinfo", "".join(LINE.format(100 + at, at, at) for at in range(number)))
    (machine.procfs / str(pid) / "ns").mkdir(exist_ok=True)
    os.symlink(f"mnt:[{namespace}]", machine.procfs / str(pid) / "ns/mnt")


def test_the_mounts_of_a_namespace_are_read_once_and_again_after_a_while(machine: Machine) -> None:
    mounts(machine, 10, 7, 1)
    mounts(machine, 11, 7, 2)
    tables = MountTables(machine.procfs)

    assert tables.of(10, 0.0) is tables.of(11, 1.0)
    assert list(tables.of(11, MOUNTS_INTERVAL_SECONDS).mounts) == [100, 101]
    assert not tables.of(12, 0.0).mounts, "it is gone"


def test_namespaces_of_untrusted_users_take_bounded_memory_together(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_USER_MOUNT_BYTES", 10 * len(LINE.format(100, 0, 0)))
    for pid in range(10, 16):
        mounts(machine, pid, pid, 6)
    tables = MountTables(machine.procfs)

    assert [len(tables.of(pid, 0.0, trusted=False).mounts) for pid in range(10, 16)] == [6, 4, 0, 0, 0, 0]
    assert len(tables.of(10, 0.0, trusted=False).mounts) == 6, "it is kept"
    assert len(tables.of(14, 0.0, trusted=True).mounts) == 6
    later = MOUNTS_INTERVAL_SECONDS
    assert [len(tables.of(pid, later, trusted=False).mounts) for pid in (12, 13)] == [6, 4]


def test_the_namespace_of_the_host_is_read_whole_whoever_lives_in_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_USER_MOUNT_BYTES", 1)
    for pid in (1, 20):
        mounts(machine, pid, 1, 30)

    assert len(MountTables(machine.procfs).of(20, 0.0, trusted=False).mounts) == 30
