from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.ceph import sockets as module
from pinchpoint.ceph.sockets import (
    TABLE_TIMES,
    AdminSocket,
    SocketTables,
    is_ceph_client,
    listening_sockets,
    resolve_in_root,
)
from pinchpoint.ceph.sockets import admin_sockets as sockets_of
from pinchpoint.threads.processes import Process

TABLE = b"""\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 101 /var/run/ceph/ceph-osd.0.asok
0000000000000000: 00000003 00000000 00000000 0001 03 102 /var/run/ceph/ceph-osd.0.asok
0000000000000000: 00000002 00000000 00010000 0001 01 103 @/tmp/abstract.asok
0000000000000000: 00000002 00000000 00010000 0001 01 104 /run/a name with blanks.asok
0000000000000000: 00000002 00000000 00010000 0001 01 105
0000000000000000: 00000002 00000000 00010000 0001 01 106 /run/qemu-monitor.sock
"""
"""In the format of unix_seq_show (net/unix/af_unix.c, Linux 6.18)."""
OSD = Process(10, 100, "ceph-osd", "ceph-osd", "osd.0")
CLIENT = Process(10, 100, "ceph-fuse", "ceph-client", "ceph-fuse")


def admin_sockets(procfs: Path, rootfs: Path, process: Process) -> list[AdminSocket]:
    return sockets_of(SocketTables(procfs), procfs, rootfs, process, 0.0)


def listens(machine: Machine, pid: int, table: bytes, *inodes: int) -> None:
    """Make a process listen on sockets of a table."""
    machine.write(f"proc/{pid}/net/unix", table)
    directory = machine.procfs / str(pid) / "fd"
    directory.mkdir(exist_ok=True)
    for number, inode in enumerate(inodes):
        (directory / str(number)).symlink_to(f"socket:[{inode}]")
    root = machine.procfs / str(pid) / "root"
    for path in listening_sockets(table).values():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_only_sockets_with_a_path_that_accept_connections_are_listed() -> None:
    assert listening_sockets(TABLE) == {
        101: "/var/run/ceph/ceph-osd.0.asok",
        104: "/run/a name with blanks.asok",
        106: "/run/qemu-monitor.sock",
    }


def test_the_kernels_own_table_lists_a_socket_of_ours(tmp_path: Path) -> None:
    path = str(tmp_path / "x.asok")
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(path)
        ours.listen()
        assert listening_sockets(Path("/proc/self/net/unix").read_bytes())[os.fstat(ours.fileno()).st_ino] == path
        me = Process(os.getpid(), 1, "x", "ceph-client", "x")
        assert Path(path).resolve() in [
            found.resolve().resolve() for found in admin_sockets(Path("/proc"), Path("/"), me)
        ]


def test_a_table_is_read_once_for_a_namespace_and_kept_for_longer_the_longer_it_takes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "namespace_of", lambda procfs, pid: {10: 1, 11: 1, 12: 2}[pid])
    times = iter([0.0, 0.5, 0.5, 0.5, 1.0, 1.0])
    for pid in (10, 11, 12):
        machine.write(f"proc/{pid}/net/unix", TABLE)
    tables = SocketTables(machine.procfs, lambda: next(times))

    first = tables.named(10, 100.0)
    machine.write("proc/11/net/unix", "")
    assert list(first) == ["socket:[101]", "socket:[104]"]
    assert tables.named(11, 100.0 + 0.5 * TABLE_TIMES) is first
    assert tables.named(12, 100.0) == first
    assert tables.named(11, 100.1 + 0.5 * TABLE_TIMES) == {}


@given(st.binary())
def test_any_table_gives_paths_or_nothing(raw: bytes) -> None:
    assert all(path.startswith("/") for path in listening_sockets(raw).values())


def test_two_daemons_of_one_name_each_have_their_own_socket(machine: Machine) -> None:
    first = TABLE.replace(b"/var/run/ceph/ceph-osd.0", b"/var/run/ceph/1111/ceph-osd.0")
    machine.process(10, "ceph-osd")
    machine.process(11, "ceph-osd")
    listens(machine, 10, first + TABLE.replace(b" 10", b" 20"), 101)
    listens(machine, 11, first + TABLE.replace(b" 10", b" 20"), 201)

    (one,) = admin_sockets(machine.procfs, machine.procfs.parent, OSD)
    (other,) = admin_sockets(
        machine.procfs, machine.procfs.parent, OSD.__class__(11, 100, "ceph-osd", "ceph-osd", "osd.0")
    )

    assert one.resolve() == machine.procfs / "10/root/var/run/ceph/1111/ceph-osd.0.asok"
    assert other.resolve() == machine.procfs / "11/root/var/run/ceph/ceph-osd.0.asok"


def test_a_socket_that_is_not_ceph_s_own_is_never_spoken_to(machine: Machine) -> None:
    machine.process(10, "qemu-system-x86")
    listens(machine, 10, TABLE, 106)

    assert admin_sockets(machine.procfs, machine.procfs.parent, CLIENT) == []


def test_a_process_that_is_gone_or_half_gone_has_none(machine: Machine) -> None:
    assert admin_sockets(machine.procfs, machine.procfs.parent, OSD) == []
    machine.process(10, "ceph-osd")
    machine.write("proc/10/net/unix", TABLE)
    assert admin_sockets(machine.procfs, machine.procfs.parent, OSD) == []


def test_without_rights_a_daemon_s_socket_is_found_by_name_and_a_client_s_is_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rootfs = machine.procfs.parent
    for path in ("run/ceph/ceph-osd.0.asok", "run/ceph/0f-11/ceph-osd.0.asok", "run/ceph/ceph-osd.10.asok"):
        machine.write(path, "")
    (rootfs / "var").mkdir()
    (rootfs / "var/run").symlink_to("../run")

    def denied(*_: object) -> bytes:
        raise PermissionError

    monkeypatch.setattr(SocketTables, "named", denied)

    assert sorted(found.resolve() for found in admin_sockets(machine.procfs, rootfs, OSD)) == sorted(
        [rootfs / "run/ceph/ceph-osd.0.asok", rootfs / "run/ceph/0f-11/ceph-osd.0.asok"]
    )
    with pytest.raises(PermissionError):
        admin_sockets(machine.procfs, rootfs, CLIENT)


def test_want_of_descriptors_of_our_own_does_not_mean_that_a_process_has_no_socket(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(SocketTables, "named", too_many)

    with pytest.raises(OSError, match="Too many open files"):
        admin_sockets(machine.procfs, machine.procfs.parent, OSD)


def test_links_of_a_container_lead_to_where_they_lead_inside_of_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "run/ceph").mkdir(parents=True)
    (root / "run/ceph/x.asok").touch()
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")

    assert resolve_in_root(root, "/var/run/ceph/x.asok") == root / "run/ceph/x.asok"


@pytest.mark.parametrize("link", ["/etc/passwd", "../../../../../../etc/passwd", "/../etc/passwd"])
def test_a_hostile_link_does_not_lead_out_of_its_container(tmp_path: Path, link: str) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").touch()
    (root / "x.asok").symlink_to(link)

    assert resolve_in_root(root, "/x.asok") == root / "etc/passwd"


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="symbolic links"):
        resolve_in_root(tmp_path, "/a")


def test_a_ceph_client_is_known_by_its_messenger_threads(machine: Machine) -> None:
    machine.process(10, "fio", threads={11: "msgr-worker-0"})
    machine.process(20, "fio")

    assert is_ceph_client(machine.procfs, 10)
    assert not is_ceph_client(machine.procfs, 20)
    assert not is_ceph_client(machine.procfs, 30)
