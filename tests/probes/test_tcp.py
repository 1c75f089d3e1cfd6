from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from machine import Machine
from pinchpoint.host.procfs import Stat
from pinchpoint.host.sockdiag import Connection
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.tcp import MAX_COST_SHARE, Tcp, weighted_median
from pinchpoint.threads.processes import Process, Processes


def connection(
    inode: int,
    *,
    cookie: int | None = None,
    port: int = 6801,
    inside: bool = False,
    rtt: float | None = 100e-6,
    min_rtt: float | None = 50e-6,
    since_sent: float = 0.1,
    sent: int | None = 10,
    retransmits: int = 0,
    unsent: int | None = 0,
    arrived: int | None = 0,
) -> Connection:
    return Connection(
        cookie=cookie or inode,
        inode=inode,
        remote_port=port,
        inside=inside,
        rtt=rtt,
        min_rtt=min_rtt,
        since_sent=since_sent,
        sent=sent,
        retransmits=retransmits,
        unsent=unsent,
        arrived=arrived,
    )


class Bench:
    """A machine with processes that hold sockets, and the probe on it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        (machine.procfs / "self" / "ns").mkdir(parents=True)
        (machine.procfs / "self" / "ns" / "net").symlink_to("/proc/self/ns/net")
        machine.process(1, "systemd")
        self.connections: list[Connection] = []
        self.probe = Tcp(machine.host(), lambda: self.connections)
        self.now = 100.0

    def process(self, pid: int, comm: str, *inodes: int, argv: tuple[str, ...] = ()) -> None:
        self.machine.process(pid, comm, argv=argv)
        (self.machine.procfs / str(pid) / "fd").mkdir()
        for descriptor, inode in enumerate(inodes):
            self.machine.opens(pid, descriptor, f"socket:[{inode}]")

    def osd(self, pid: int, name: int, *inodes: int) -> None:
        self.process(pid, "ceph-osd", *inodes, argv=("ceph-osd", "-i", str(name)))

    def sample(self, *connections: Connection) -> None:
        """Sample once; samples are far enough apart for the probe to look for holders each time."""
        self.connections = list(connections)
        self.probe.sample(self.now)
        self.now += 5.0

    def value(self, what: str, owner: str) -> float | None:
        return Snapshot.of(0, self.probe.points()).value(f"pinchpoint_tcp_{what}", owner=owner)

    def owners(self) -> set[str]:
        found = Snapshot.of(0, self.probe.points())
        return {labels["owner"] for labels, _ in found.series("pinchpoint_tcp_connections")}


@pytest.fixture
def bench(machine: Machine) -> Bench:
    return Bench(machine)


def test_connections_belong_to_the_processes_that_hold_their_sockets(bench: Bench) -> None:
    bench.osd(10, 3, 501, 502)
    bench.process(11, "ceph-fuse", 601)
    bench.process(12, "nginx", 701)
    bench.sample(connection(501), connection(502, rtt=300e-6), connection(601, rtt=40e-6), connection(701))

    assert bench.owners() == {"osd.3", "ceph-fuse"}
    assert bench.value("connections", "osd.3") == 2
    assert bench.value("rtt_seconds", "ceph-fuse") == 40e-6
    assert bench.value("rtt_min_seconds", "osd.3") == 50e-6


def test_what_waits_in_the_sockets_of_an_owner_is_added_up(bench: Bench) -> None:
    bench.osd(10, 0, 1, 2, 3)
    bench.osd(11, 1, 4)
    bench.sample(
        connection(1, unsent=300), connection(2, unsent=40, inside=True), connection(3), connection(4, unsent=None)
    )
    assert bench.value("unsent_bytes", "osd.0") == 340
    assert bench.value("unsent_bytes", "osd.1") is None

    bench.sample(connection(1))
    assert bench.value("unsent_bytes", "osd.0") == 0


def test_the_median_is_weighted_by_what_each_has_just_sent(bench: Bench) -> None:
    bench.osd(10, 0, 1, 2, 3)
    idle = connection(1, rtt=0.04, since_sent=900.0)
    heartbeat = connection(2, rtt=0.02, sent=10)
    bench.sample(idle, heartbeat, connection(3, rtt=90e-6, sent=1000))
    bench.sample(idle, heartbeat._replace(sent=11), connection(3, rtt=90e-6, sent=2000))

    assert bench.value("rtt_seconds", "osd.0") == 90e-6


def test_where_all_connections_are_idle_no_round_trip_is_given(bench: Bench) -> None:
    bench.osd(10, 0, 1)
    bench.sample(connection(1, since_sent=900.0))
    assert bench.value("rtt_seconds", "osd.0") is None

    bench.sample(connection(1, since_sent=905.0))
    assert bench.value("rtt_seconds", "osd.0") is None
    assert bench.value("rtt_min_seconds", "osd.0") == 50e-6
    assert bench.value("connections", "osd.0") == 1


def test_an_old_kernel_tells_by_time_which_connections_are_idle(bench: Bench) -> None:
    bench.osd(10, 0, 1, 2)
    connections = (
        connection(1, rtt=0.04, since_sent=60.0, sent=None, min_rtt=None),
        connection(2, rtt=90e-6, sent=None, min_rtt=None),
    )
    bench.sample(*connections)
    bench.sample(*connections)

    assert bench.value("rtt_seconds", "osd.0") == 90e-6
    assert bench.value("rtt_min_seconds", "osd.0") is None


def test_connections_inside_of_the_host_say_nothing_of_the_network_where_there_are_others(bench: Bench) -> None:
    bench.osd(10, 0, 1, 2)
    bench.osd(11, 1, 3)
    local = {"inside": True, "rtt": 9e-6, "min_rtt": 5e-6}
    bench.sample(connection(1, **local), connection(2, rtt=80e-6), connection(3, **local))  # type: ignore[arg-type]

    assert bench.value("rtt_seconds", "osd.0") == 80e-6
    assert bench.value("rtt_min_seconds", "osd.0") == 50e-6
    assert bench.value("rtt_seconds", "osd.1") == 9e-6


def test_of_a_client_with_connections_to_ceph_only_these_count(bench: Bench) -> None:
    bench.process(10, "ganesha.nfsd", 1, 2, 3)
    bench.process(11, "iperf3", 4)
    bench.osd(12, 0, 5)
    bench.sample(
        connection(1, port=3300, rtt=70e-6),
        connection(2, port=6805, rtt=70e-6),
        connection(3, port=52000, rtt=0.01),  # an NFS client
        connection(4, port=5201),
        connection(5, port=52001),  # a client of the OSD
    )

    assert bench.value("connections", "ganesha.nfsd") == 2
    assert bench.value("rtt_seconds", "ganesha.nfsd") == 70e-6
    assert bench.value("connections", "iperf3") == 1
    assert bench.value("connections", "osd.0") == 1


@pytest.mark.parametrize(
    ("metric", "seen"),
    [
        ("retransmits_total", lambda inode, number: connection(inode, retransmits=number)),
        ("sent_bytes_total", lambda inode, number: connection(inode, arrived=number)),
    ],
    ids=["retransmits", "sent_bytes"],
)
def test_totals_count_from_the_first_look_and_never_go_back(
    bench: Bench, metric: str, seen: Callable[[int, int], Connection]
) -> None:
    bench.osd(10, 0, 1, 2)
    bench.sample(seen(1, 500))
    assert bench.value(metric, "osd.0") == 0

    bench.sample(seen(1, 503), seen(2, 4))
    assert bench.value(metric, "osd.0") == 7

    bench.sample(seen(2, 5))
    assert bench.value(metric, "osd.0") == 8


def test_retransmits_of_connections_that_have_ended_still_count(bench: Bench) -> None:
    bench.osd(10, 0, 1)
    bench.sample()
    bench.sample(connection(1, retransmits=8))
    bench.sample()

    assert bench.value("retransmits_total", "osd.0") == 8
    assert bench.value("connections", "osd.0") == 0


def test_a_socket_that_is_connected_anew_takes_nothing_back(bench: Bench) -> None:
    bench.osd(10, 0, 1)
    bench.sample(connection(1, retransmits=5, sent=1000))
    bench.sample(connection(1, retransmits=9, sent=2000))
    bench.sample(connection(1, retransmits=1, sent=3))
    bench.sample(connection(1, retransmits=2, sent=4))

    assert bench.value("retransmits_total", "osd.0") == 5
    assert bench.value("rtt_seconds", "osd.0") == 100e-6


def test_what_a_connection_sent_again_before_its_holder_was_found_counts(bench: Bench) -> None:
    bench.osd(10, 0)
    bench.sample()
    bench.sample(connection(0, cookie=7, retransmits=2))  # no process has accepted it yet
    assert bench.owners() == set()

    bench.machine.opens(10, 0, "socket:[31]")
    bench.sample(connection(31, cookie=7, retransmits=3))
    assert bench.value("retransmits_total", "osd.0") == 3


def test_an_owner_is_forgotten_long_after_its_last_connection(bench: Bench) -> None:
    bench.osd(10, 0, 1)
    bench.sample(connection(1))
    bench.now += KEEP_ENDED_SECONDS - 10
    bench.sample()
    assert bench.owners() == {"osd.0"}

    bench.now += 20
    bench.sample()
    assert bench.owners() == set()


def test_a_process_of_interest_that_begins_later_gets_the_connections_that_it_holds(bench: Bench) -> None:
    bench.process(12, "nginx", 5)
    bench.sample(connection(5))
    bench.sample(connection(5))
    bench.sample(connection(5))
    assert bench.owners() == set()

    bench.process(20, "fio", 5)
    bench.sample(connection(5))
    assert bench.owners() == {"fio"}


def test_a_pid_that_another_process_has_now_keeps_no_connections(bench: Bench) -> None:
    bench.osd(10, 0, 5)
    bench.sample(connection(5))
    bench.machine.end(10)
    bench.machine.process(10, "fio", start=999)
    bench.sample(connection(5), connection(6))
    bench.sample(connection(5), connection(6))

    assert bench.value("connections", "osd.0") == 0
    assert bench.owners() == {"osd.0"}


def test_descriptors_are_searched_only_for_new_connections_and_not_at_each_sample(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    search = Tcp._inodes

    def counted(probe: Tcp, pid: int) -> set[int]:
        looks.append(pid)
        return search(probe, pid)

    monkeypatch.setattr(Tcp, "_inodes", counted)
    bench.osd(10, 0, 1)
    bench.sample(connection(1))
    assert looks == [10]

    bench.sample(connection(1))
    assert looks == [10]

    bench.sample(connection(1), connection(2))
    assert looks == [10, 10]

    bench.now -= 4.9
    bench.sample(connection(1), connection(2), connection(3))
    assert looks == [10, 10]

    for _ in range(5):
        bench.sample(connection(1), connection(2), connection(3))
    assert looks == [10, 10, 10, 10]  # twice for sockets without a holder


def test_what_leads_to_ceph_and_is_nobodys_is_the_kernels_on_a_host_with_a_mount(bench: Bench) -> None:
    (bench.machine.sysfs / "class" / "bdi" / "ceph-1").mkdir(parents=True)
    bench.process(12, "python3", 7)
    connections = (connection(6, port=6789), connection(7, port=6800), connection(8, port=443))
    bench.sample(*connections)
    assert bench.owners() == set()  # the holder may be too young to be known

    bench.sample(*connections)
    assert bench.owners() == {"kernel"}
    assert bench.value("connections", "kernel") == 1


def test_without_a_mount_or_rbd_device_nothing_is_the_kernels(bench: Bench) -> None:
    (bench.machine.sysfs / "class" / "bdi" / "253:0").mkdir(parents=True)
    for _ in range(3):
        bench.sample(connection(6))
    assert bench.owners() == set()

    (bench.machine.sysfs / "bus" / "rbd" / "devices" / "0").mkdir(parents=True)
    for _ in range(2):
        bench.sample(connection(9))
    assert bench.owners() == {"kernel"}


def test_an_owner_may_get_another_name(bench: Bench) -> None:
    """Daemons of two clusters are renamed as soon as both clusters are known."""
    bench.osd(10, 0, 1)
    bench.osd(11, 0, 2)
    bench.sample(connection(1), connection(2))
    assert bench.value("connections", "osd.0") == 2

    processes = bench.probe.host.processes
    for pid, cluster in ((10, "aaaaaaaa-1"), (11, "bbbbbbbb-1")):
        processes.assign_cluster(processes.current(bench.now)[pid], cluster)
    bench.now += 10
    bench.sample(connection(1), connection(2))
    assert bench.value("connections", "osd.0@aaaaaaaa") == 1


def test_a_procfs_of_another_network_namespace_is_not_believed(machine: Machine) -> None:
    probe = Tcp(machine.host(), list)
    with pytest.raises(NotPresent, match="namespace"):
        probe.sample(1.0)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EPERM, errno.EPROTONOSUPPORT])
def test_a_kernel_that_does_not_tell_is_no_failure(bench: Bench, number: int) -> None:
    def refuse() -> list[Connection]:
        raise OSError(number, os.strerror(number))

    probe = Tcp(bench.machine.host(), refuse)
    with pytest.raises(NotPresent, match="does not list"):
        probe.sample(1.0)


def test_a_reading_that_fails_is_a_failure(bench: Bench) -> None:
    def fail() -> list[Connection]:
        raise OSError(errno.ENOBUFS, "no buffers")

    with pytest.raises(OSError, match="no buffers"):
        Tcp(bench.machine.host(), fail).sample(1.0)


def test_without_the_right_to_see_any_descriptor_nothing_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(probe: Tcp, pid: int) -> set[int]:
        raise PermissionError

    monkeypatch.setattr(Tcp, "_inodes", denied)
    bench.osd(10, 0, 1)
    with pytest.raises(NotPresent, match="descriptors"):
        bench.sample(connection(1))


def test_a_host_with_very_many_connections_is_looked_at_more_rarely(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    reads: list[float] = []
    monkeypatch.setattr("pinchpoint.probes.tcp.time.thread_time", lambda: clock[0])

    def slow() -> list[Connection]:
        clock[0] += 0.2
        reads.append(now)
        return []

    probe = Tcp(bench.machine.host(), slow)
    for step in range(100):
        now = 2.0 * step
        probe.sample(now)

    assert len(reads) > 10
    assert min(later - earlier for earlier, later in pairwise(reads)) >= 0.2 / MAX_COST_SHARE


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 1 << 32))))
def test_half_of_the_weight_is_on_either_side_of_the_median(values: list[tuple[float, int]]) -> None:
    found = weighted_median(values)

    total = sum(weight for _, weight in values)
    if found is None:
        assert total == 0
        return
    assert 2 * sum(weight for value, weight in values if value < found) <= total
    assert 2 * sum(weight for value, weight in values if value > found) <= total


class Table(Processes):
    """A table of only this process, with a given class and owner."""

    def __init__(self, host: Host, class_: str, owner: str) -> None:
        super().__init__(host.procfs, host.roles)
        self._me = Process(os.getpid(), 1, "python", class_, owner)

    def current(self, now: float) -> Mapping[int, Process]:
        return {self._me.pid: self._me}

    def everything(self, now: float) -> Mapping[int, Stat]:
        return {}


@pytest.fixture
def mine(this_host: Host) -> Callable[[str, str], Tcp]:
    """Return a function that makes a probe to which this process has the given class and owner."""

    def probe(class_: str, owner: str) -> Tcp:
        found = Tcp(replace(this_host, processes=Table(this_host, class_, owner)))
        try:
            found.sample(0.0)
        except NotPresent as absence:
            pytest.skip(f"this machine does not report connections: {absence}")
        return found

    return probe


def test_connections_of_this_process_are_found_in_this_machines_kernel(mine: Callable[[str, str], Tcp]) -> None:
    probe = mine("ceph-osd", "osd.7")
    before = Snapshot.of(0, probe.points()).value("pinchpoint_tcp_connections", owner="osd.7") or 0

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            for _ in range(20):
                here.sendall(b"question")
                there.recv(100)
                there.sendall(b"reply")
                here.recv(100)
            probe.sample(10.0)
            found = Snapshot.of(0, probe.points())
    probe.sample(20.0)

    assert found.value("pinchpoint_tcp_connections", owner="osd.7") == before + 2
    rtt = found.value("pinchpoint_tcp_rtt_seconds", owner="osd.7")
    least = found.value("pinchpoint_tcp_rtt_min_seconds", owner="osd.7")
    assert rtt is None or 0 < rtt < 1  # a round trip of less than a microsecond is not reported
    assert least is None or 0 < least < 1
    assert Snapshot.of(0, probe.points()).value("pinchpoint_tcp_connections", owner="osd.7") == before


def test_two_hundred_connections_of_this_process_are_all_found(mine: Callable[[str, str], Tcp]) -> None:
    """More than fit in one answer of the kernel."""
    probe = mine("benchmark", "iperf3")
    before = Snapshot.of(0, probe.points()).value("pinchpoint_tcp_connections", owner="iperf3") or 0
    ends: list[socket.socket] = []
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
            for _ in range(100):
                ends.append(socket.create_connection(server.getsockname()))
                ends.append(server.accept()[0])
            probe.sample(10.0)
    finally:
        for end in ends:
            end.close()

    assert Snapshot.of(0, probe.points()).value("pinchpoint_tcp_connections", owner="iperf3") == before + 200
