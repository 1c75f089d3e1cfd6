from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from patience import Deadline
from pinchpoint.host.procfs import FormatError
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.devices import (
    MAX_DEVICE_OWNERS,
    Devices,
    Disk,
    Link,
    LinkCounts,
    Lookout,
    ThreadedLookout,
    find_links,
    parse_disk,
    parse_link,
)
from polling import until

SERVES = {"disk": "disk,writeback", "link": "network,mds,osd"}
HEAD = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier\n"
)


class Waiting:
    """Queues of links that a test sets."""

    def __init__(self, waiting: Mapping[int, int] | None = None) -> None:
        self.waiting = waiting
        self.closed = False
        self.reads = 0

    def read(self) -> Mapping[int, int] | None:
        self.reads += 1
        return self.waiting

    def close(self) -> None:
        self.closed = True


class Bench:
    """A machine with disks and links, and the probe on it, sampled every 100 ms."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.queues = Waiting()
        self.probe = Devices(machine.host(), Lookout(machine.sysfs, self.queues))
        self.now = 100.0

    def disks(self, **disks: tuple[int, int, int, int]) -> None:
        """Write the completed I/Os, I/Os in flight, busy ms and weighted ms of disks."""
        lines = []
        for name, (ios, in_flight, ticks, weighted) in disks.items():
            (self.machine.sysfs / "block" / name).mkdir(parents=True, exist_ok=True)
            lines.append(f" 8 0 {name} 0 0 0 0 {ios} 0 0 0 {in_flight} {ticks} {weighted} 0 0 0 0 0 0\n")
        self.machine.write("proc/diskstats", "".join(lines))

    def link(self, name: str, index: int, speed: int | None, *, state: str = "up", real: bool = True) -> None:
        """Add an interface with a speed in Mbit/s."""
        files: dict[str, object] = {"ifindex": index, "flags": "0x1003", "operstate": state}
        if speed is not None:
            files["speed"] = speed
        if real:
            files["device/vendor"] = "0x15b3"
        for file, content in files.items():
            self.machine.write(f"sys/class/net/{name}/{file}", f"{content}\n")

    def bytes(self, **links: tuple[int, int]) -> None:
        """Write the received and sent bytes of links."""
        lines = [f"  {name}: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0\n" for name, (rx, tx) in links.items()]
        self.machine.write("proc/net/dev", HEAD + "".join(lines))

    def sample(self, step: float = 0.1) -> None:
        self.probe.sample(self.now)
        self.now += step

    def value(self, kind: str, owner: str, what: str = "busy") -> float | None:
        found = Snapshot.of(0, self.probe.points())
        name = f"pinchpoint_resource_{what}_seconds_total"
        return found.value(name, resource=kind, owner=owner, serves=SERVES[kind])

    def owners(self, kind: str) -> set[str]:
        found = Snapshot.of(0, self.probe.points())
        return {
            labels["owner"]
            for labels, _ in found.series("pinchpoint_resource_busy_seconds_total")
            if labels["resource"] == kind
        }


@pytest.fixture
def bench(machine: Machine) -> Bench:
    return Bench(machine)


def test_a_busy_disk_with_a_queue_is_full_after_half_a_second(bench: Bench) -> None:
    for n in range(11):
        bench.disks(sda=(10 + n * 20, 4, n * 95, n * 400))
        bench.sample()

    assert bench.value("disk", "sda") == pytest.approx(0.95)
    assert bench.value("disk", "sda", "saturated") == pytest.approx(0.6)  # the window is full at its fifth sample


def test_a_busy_disk_without_a_queue_is_not_full(bench: Bench) -> None:
    for n in range(21):
        bench.disks(sda=(10 + n * 20, 1, n * 100, n * 100))
        bench.sample()

    assert bench.value("disk", "sda") == pytest.approx(2.0)
    assert bench.value("disk", "sda", "saturated") == 0


def test_a_full_disk_stays_full_over_samples_in_which_jiffies_hide_its_work(bench: Bench) -> None:
    ticks = 0
    for n in range(21):
        ticks += (60, 120)[n % 2]
        bench.disks(sda=(10 + n * 20, 4, ticks, n * 400))
        bench.sample()

    assert bench.value("disk", "sda", "saturated") == pytest.approx(1.6, abs=0.11)


def test_busy_time_that_shows_late_is_added_and_no_interval_is_busier_than_it_is_long(bench: Bench) -> None:
    seen = []
    for ticks in (0, 0, 0, 300, 300, 300, 300):
        bench.disks(sda=(1 + ticks, 1, ticks, ticks))
        bench.sample()
        seen.append(bench.value("disk", "sda") or 0.0)

    assert seen[-1] == pytest.approx(0.3)
    assert all(after - before <= 0.1 + 1e-9 for before, after in pairwise(seen))


def test_long_single_ios_are_no_queue(bench: Bench) -> None:
    for n in range(50):
        ended = n // 20  # one I/O of 2 s after another: the kernel adds its time when it ends
        bench.disks(sda=(5 + ended, 1, n * 100, ended * 2000))
        bench.sample()

    assert bench.value("disk", "sda", "saturated") == 0


def test_a_disk_that_ends_nothing_is_full_by_what_is_in_flight(bench: Bench) -> None:
    for n in range(11):
        bench.disks(sda=(7, 32, n * 100, 50))
        bench.sample()

    assert bench.value("disk", "sda", "saturated") == pytest.approx(0.6)


def test_disks_that_wrap_their_millisecond_counters_go_on(bench: Bench) -> None:
    for n in range(-5, 6):
        bench.disks(sda=(100 + n, 4, n * 90 % 2**32, n * 400 % 2**32))
        bench.sample()

    assert bench.value("disk", "sda") == pytest.approx(0.9)


def test_partitions_ram_disks_and_unused_disks_are_left_out(bench: Bench) -> None:
    bench.disks(nvme0n1=(5, 0, 1, 1), ram0=(5, 0, 1, 1), loop0=(0, 0, 0, 0), md0=(5, 0, 1, 1))
    table = (bench.machine.procfs / "diskstats").read_text()
    bench.machine.write("proc/diskstats", table + table.replace("nvme0n1", "nvme0n1p1") + "8 0 sdz 1 2\n8 1 sd")
    bench.sample()
    assert bench.owners("disk") == {"nvme0n1", "md0"}

    bench.disks(nvme0n1=(5, 0, 1, 1), md0=(5, 0, 1, 1), loop0=(1, 0, 30, 30))
    bench.sample()
    assert bench.value("disk", "loop0") == pytest.approx(0.03)  # a previously idle device counts from its first I/O


def test_a_disk_that_went_and_came_back_counts_from_zero(bench: Bench) -> None:
    bench.disks(sda=(1000, 0, 50_000, 50_000))
    bench.sample()
    bench.disks(sda=(1001, 0, 50_010, 50_010))
    bench.sample()
    bench.disks(sdb=(1, 0, 5, 5))
    bench.sample()
    bench.disks(sda=(90_000, 0, 900_000, 900_000))
    bench.sample()
    bench.disks(sda=(90_001, 0, 900_020, 900_020))
    bench.sample()
    bench.disks(sda=(3, 0, 7, 7))
    bench.sample()

    assert bench.value("disk", "sda") == pytest.approx(0.03)


def test_more_disks_than_the_limit_are_one_owner_and_the_busiest_ones_are_not(bench: Bench) -> None:
    count = MAX_DEVICE_OWNERS + 10
    for round_ in (0, 1):
        bench.disks(**{f"sd{n}": (1000 * n + 1 + round_, 0, 20 * round_ * (n < 5), 0) for n in range(count)})
        bench.sample()

    assert len(bench.owners("disk")) == MAX_DEVICE_OWNERS + 1
    assert f"sd{count - 1}" in bench.owners("disk")
    assert "sd0" not in bench.owners("disk")
    assert bench.value("disk", "more") == pytest.approx(0.02)


def test_a_new_disk_takes_the_place_of_one_that_has_gone(bench: Bench) -> None:
    bench.disks(**{f"sd{n}": (1, 0, 0, 0) for n in range(MAX_DEVICE_OWNERS)})
    bench.sample()
    bench.disks(**{f"sd{n}": (1, 0, 0, 0) for n in range(1, MAX_DEVICE_OWNERS)}, rbd0=(1, 0, 0, 0))
    bench.sample()
    bench.sample()

    assert "rbd0" in bench.owners("disk")
    assert len(bench.owners("disk")) <= MAX_DEVICE_OWNERS + 1


def test_a_link_is_busy_by_its_fuller_direction_against_its_speed(bench: Bench) -> None:
    bench.link("eth0", 2, 1000)
    for n in range(21):
        bench.bytes(eth0=(n * 1_000_000, n * 11_900_000))
        bench.sample()

    assert bench.value("link", "eth0") == pytest.approx(2 * 0.952)
    assert bench.value("link", "eth0", "saturated") == pytest.approx(1.1)


def test_a_card_that_counts_once_a_second_is_not_full_at_half_its_speed(bench: Bench) -> None:
    bench.link("eth0", 2, 1000)
    for n in range(61):
        bench.bytes(eth0=(n // 10 * 62_500_000, 0))
        bench.sample()

    assert bench.value("link", "eth0") == pytest.approx(3.0, rel=0.2)
    assert bench.value("link", "eth0", "saturated") == 0


@pytest.mark.parametrize("speed", [None, -1, 0, 10_000])
def test_where_the_speed_is_unknown_or_made_up_only_the_queue_counts(bench: Bench, speed: int | None) -> None:
    bench.link("tap0", 7, speed, real=False)
    for n in range(21):
        bench.queues.waiting = {7: 1500 if n // 2 % 2 else 0}  # as often as it is looked at
        bench.bytes(tap0=(n * 10**9, 0))
        bench.sample()

    assert bench.value("link", "tap0") == pytest.approx(1.0)
    assert bench.value("link", "tap0", "saturated") == 0


def test_a_link_with_a_standing_queue_is_full(bench: Bench) -> None:
    bench.link("lo", 1, None, state="unknown", real=False)
    bench.queues.waiting = {1: 20_000}
    for n in range(16):
        bench.bytes(lo=(n, n))
        bench.sample()

    assert bench.value("link", "lo") == pytest.approx(1.5)
    assert bench.value("link", "lo", "saturated") == pytest.approx(0.6)


def test_queues_are_looked_at_less_often_while_nothing_moves_and_at_once_when_something_does(bench: Bench) -> None:
    bench.link("lo", 1, None, state="unknown", real=False)
    bench.queues.waiting = {1: 0}
    for _ in range(40):
        bench.bytes(lo=(5, 5))
        bench.sample()
    quiet = bench.queues.reads
    for n in range(40):
        bench.bytes(lo=(6 + n, 6))
        bench.sample()

    assert quiet < (bench.queues.reads - quiet) / 2


def test_links_that_are_down_or_can_tell_nothing_are_left_out(bench: Bench) -> None:
    bench.link("lo", 1, None, state="unknown", real=False)
    bench.link("eth0", 2, 25_000)
    bench.link("eth1", 3, 25_000, state="down")
    bench.link("veth1", 4, 10_000, real=False)
    bench.machine.write("sys/class/net/bonding_masters", "bond0\n")
    bench.queues.waiting = {2: 0}
    bench.bytes(lo=(1, 1), eth0=(1, 1), eth1=(1, 1), veth1=(1, 1))
    bench.sample()

    assert bench.owners("link") == {"eth0"}


def test_where_queues_are_unknown_the_speed_counts(bench: Bench) -> None:
    bench.link("eth0", 2, 1000)
    bench.queues.waiting = None
    for n in range(3):
        bench.bytes(eth0=(n * 12_500_000, 0))
        bench.sample()

    assert bench.value("link", "eth0") == pytest.approx(0.2)


def test_one_table_alone_is_enough_and_none_is_absence(bench: Bench) -> None:
    with pytest.raises(NotPresent):
        bench.sample()
    bench.disks(sda=(1, 0, 0, 0))
    bench.sample()
    assert bench.owners("disk") == {"sda"}


def test_a_table_that_can_not_be_read_is_a_failure_and_the_other_one_is_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.disks(sda=(1, 0, 0, 0))
    bench.bytes(eth0=(1, 1))
    opened = os.open

    def full(path: Path, flags: int) -> int:
        if path.name == "dev":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, flags)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="Too many open files"):
        bench.sample()

    assert bench.owners("disk") == {"sda"}


def test_a_busy_disk_keeps_the_host_from_resting_and_an_idle_one_does_not(bench: Bench) -> None:
    for n in range(21):
        bench.disks(sda=(10 + n, 0, n, n))
        bench.sample()
    assert bench.probe.host.activity.rests(bench.now)

    for n in range(21):
        bench.disks(sda=(31 + n * 20, 1, 20 + n * 50, 20 + n * 50))
        bench.sample()
    assert not bench.probe.host.activity.rests(bench.now)


def test_a_lookout_on_a_thread_keeps_nobody_waiting(machine: Machine) -> None:
    release, looked = threading.Event(), threading.Event()

    class Blocked(Waiting):
        def read(self) -> Mapping[int, int] | None:
            if threading.current_thread() is not threading.main_thread():
                looked.set()
                release.wait(10)
            return {1: 5}

    queues = Blocked()
    lookout = ThreadedLookout(machine.sysfs, queues)
    lookout.ask(1.0)
    assert lookout.seen.waiting == {1: 5}
    lookout.ask(2.0)
    assert looked.wait(10)
    lookout.ask(3.0)
    assert lookout.seen.time == 1.0
    release.set()
    deadline = Deadline(10)
    while lookout.seen.time < 2.0 and not deadline.over:
        time.sleep(0.001)
    assert lookout.seen.time >= 2.0
    lookout.close()
    while not queues.closed and not deadline.over:
        time.sleep(0.001)
    assert queues.closed


class Failing(Waiting):
    """Queues that cannot be read at every second look."""

    def __init__(self) -> None:
        super().__init__({1: 5})
        self.looks = 0

    def read(self) -> Mapping[int, int] | None:
        self.looks += 1
        if self.looks % 2 == 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().read()


def test_a_lookout_on_a_thread_goes_on_after_a_look_that_failed(machine: Machine) -> None:
    queues = Failing()
    lookout = ThreadedLookout(machine.sysfs, queues)
    lookout.ask(1.0)
    lookout.ask(2.0)
    assert until(10, lambda: queues.looks == 2)
    assert lookout.seen.time == 1.0
    lookout.ask(3.0)

    assert until(10, lambda: lookout.seen.time == 3.0)
    lookout.close()
    assert until(10, lambda: queues.closed)


def test_a_lookout_that_gets_no_thread_asks_for_one_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    lookout = ThreadedLookout(machine.sysfs, Waiting({1: 5}))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raise_no_thread)
        with pytest.raises(RuntimeError):
            lookout.ask(1.0)
    lookout.ask(2.0)
    lookout.ask(3.0)

    assert until(10, lambda: lookout.seen.time == 3.0)
    lookout.close()


def raise_no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_bonds_have_a_speed_of_their_own(machine: Machine) -> None:
    for file, content in {"ifindex": "9", "flags": "0x1403", "operstate": "up", "speed": "50000"}.items():
        machine.write(f"sys/class/net/bond0/{file}", content)
    machine.write("sys/class/net/bond0/bonding/slaves", "eth0 eth1\n")
    assert find_links(machine.sysfs) == {"bond0": Link(9, 6.25e9)}


@pytest.mark.parametrize(
    ("line", "disk"),
    [
        (b" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11", Disk("sda", 6, 9, 10, 11)),
        (b" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", Disk("sda", 18, 9, 10, 11)),
        (b"259 1 nvme0n1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", Disk("nvme0n1", 34, 9, 10, 11)),
    ],
    ids=["before Linux 4.18", "with discards", "with flushes, Linux 5.5"],
)
def test_diskstats_of_every_kernel_are_understood(line: bytes, disk: Disk) -> None:
    assert parse_disk(line) == disk


def test_counters_of_links_are_understood_with_and_without_a_blank() -> None:
    fields = b" ".join(b"%d" % n for n in range(1, 17))
    assert parse_link(b"  eth0: " + fields) == parse_link(b"eth0:" + fields) == LinkCounts("eth0", 1, 9)


@given(st.binary() | st.lists(st.sampled_from([b"eth0:", b"sda", b" ", b"7 ", b"-1 ", b"9" * 30])).map(b"".join))
def test_any_line_gives_counters_or_a_format_error(line: bytes) -> None:
    try:
        assert parse_disk(line).ios >= 0
    except FormatError:
        pass
    try:
        assert parse_link(line).received >= 0
    except FormatError:
        pass


@given(
    st.lists(
        st.tuples(st.floats(0.01, 3), st.integers(0, 2**33), st.integers(0, 2**33), st.integers(0, 2**33)), max_size=12
    )
)
def test_whatever_a_disk_counts_it_is_busy_for_no_more_time_than_has_passed(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[float, int, int, int]]
) -> None:
    bench = Bench(Machine(tmp_path_factory.mktemp("machine")))
    bench.disks(sda=(1, 0, 0, 0))
    bench.sample(0.0)
    busy = 0.0
    for step, ios, ticks, weighted in samples:
        bench.disks(sda=(ios, 1, ticks, weighted))
        bench.now += step
        bench.sample(0.0)
        before, busy = busy, bench.value("disk", "sda") or 0.0
        assert before <= busy <= before + step + 1e-6
    assert (bench.value("disk", "sda", "saturated") or 0.0) <= sum(step for step, *_ in samples) + 1e-6
    bench.probe.close()


def test_a_disk_of_this_machine_gets_busy_by_writing_and_syncing(this_host: Host, disk_path: Path) -> None:
    number = os.stat(disk_path).st_dev
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not block.exists():
        pytest.skip("the temporary directory is not on a block device of its own")
    block = block.resolve()
    name = block.parent.name if (block / "partition").exists() else block.name
    probe = Devices(this_host)
    serves = SERVES["disk"]

    def busy() -> float:
        found = Snapshot.of(0, probe.points())
        name_ = "pinchpoint_resource_busy_seconds_total"
        return found.value(name_, resource="disk", owner=name, serves=serves) or 0.0

    probe.sample(time.monotonic())
    before, deadline = busy(), Deadline(20)
    with open(disk_path / "data", "wb", buffering=0) as file:
        while busy() <= before and not deadline.over:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
            probe.sample(time.monotonic())
    assert busy() > before
    probe.close()
