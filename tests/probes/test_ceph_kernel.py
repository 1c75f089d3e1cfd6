from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.host.procfs import FormatError
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.ceph_kernel import (
    MAX_LABELLED_CLIENTS,
    CephKernel,
    KernelLatency,
    RunningSum,
    parse_latency,
    parse_mdsc,
    parse_osdc,
    parse_status,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ceph"
FSID = "9a972bfc-68cb-4d52-a610-7cd9a9adbbdd"
DEBUGFS = "sys/kernel/debug/ceph"
MOUNT = f"{DEBUGFS}/{FSID}.client4305"
PREFIX = "pinchpoint_ceph_client_"


class Kernel:
    """A machine whose kernel is a Ceph client."""

    def __init__(self, machine: Machine, version: str = "") -> None:
        self.machine = machine
        if version:
            machine.load((FIXTURES / f"debugfs_linux-{version}.txt").read_text())
        self.probe = CephKernel(machine.host())

    def sample(self, now: float) -> Snapshot:
        self.probe.sample(now)
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        return Snapshot.of(0.0, self.probe.points())

    def mount(self, number: int) -> None:
        directory = f"{DEBUGFS}/{FSID}.client{5000 + number}"
        self.machine.write(f"{directory}/osdc", "REQUESTS 1 homeless 0\nLINGER REQUESTS\nBACKOFFS\n")
        self.machine.write(
            f"{directory}/status", f"instance: x\nblocklisted: {str(number > MAX_LABELLED_CLIENTS).lower()}\n"
        )
        (self.machine.sysfs / f"kernel/debug/ceph/{FSID}.client{5000 + number}/bdi").symlink_to(
            f"../../bdi/ceph-{number}"
        )
        self.machine.write(f"sys/class/bdi/ceph-{number}/read_ahead_kb", "8192\n")

    def latency(self, item: str, *numbers: int) -> None:
        """Replace a line of the mount's latency table."""
        path = self.machine.procfs.parent / MOUNT / "metrics" / "latency"
        lines = [line for line in path.read_text().splitlines() if not line.startswith(item)]
        path.write_text("\n".join([*lines, " ".join(map(str, (item, *numbers)))]) + "\n")


@pytest.fixture
def kernel(machine: Machine) -> Kernel:
    return Kernel(machine, "6.6")


def test_a_mount_is_called_after_its_backing_device_and_rbd_devices_are_one_client(kernel: Kernel) -> None:
    found = kernel.sample(0.0)

    assert {labels["client"]: n for labels, n in found.series(f"{PREFIX}instances")} == {"ceph-1": 1, "krbd": 1}
    assert {labels["client"]: n for labels, n in found.series(f"{PREFIX}blind_instances")} == {"ceph-1": 0, "krbd": 0}


def test_requests_in_flight_are_counted_without_those_whose_caller_has_its_answer(kernel: Kernel) -> None:
    found = kernel.sample(0.0)

    def inflight(client: str, target: str) -> float | None:
        return found.value(f"{PREFIX}inflight_requests", client=client, target=target)

    assert inflight("ceph-1", "osd") == 3
    assert inflight("ceph-1", "mds") == 4
    assert inflight("krbd", "osd") == 2
    assert inflight("krbd", "mds") is None


def test_requests_in_flight_are_integrated_over_looks(kernel: Kernel) -> None:
    kernel.sample(0.0)
    kernel.machine.write(f"{MOUNT}/osdc", "REQUESTS 9 homeless 0\n")
    kernel.sample(1.0)
    found = kernel.sample(2.0)

    assert found.value(f"{PREFIX}inflight_seconds_total", client="ceph-1", target="osd") == 6 + 9
    assert found.value(f"{PREFIX}inflight_seconds_total", client="ceph-1", target="mds") == 8
    assert found.value(f"{PREFIX}inflight_seconds_total", client="krbd", target="osd") == 4


def test_requests_and_their_seconds_are_counted_from_the_first_look_on(kernel: Kernel) -> None:
    found = kernel.sample(0.0)
    assert found.value(f"{PREFIX}requests_total", client="ceph-1", target="osd") == 0

    kernel.latency("write", 2404, 590000, 28000, 4812000, 36673)
    kernel.latency("metadata", 179, 11000, 1572, 114572, 13262)
    kernel.latency("copyfrom", 5, 1500, 1000, 2000, 707)
    found = kernel.sample(1.0)

    assert found.value(f"{PREFIX}requests_total", client="ceph-1", target="osd") == 10 + 3
    assert found.value(f"{PREFIX}requests_total", client="ceph-1", target="mds") == 100
    assert found.value(f"{PREFIX}ios_total", client="ceph-1", operation="write") == 10
    seconds = 2404 * 0.59 - 2394 * 0.588
    assert found.value(f"{PREFIX}io_seconds_total", client="ceph-1", operation="write") == pytest.approx(seconds)
    seconds = 179 * 0.011 - 79 * 0.012856
    assert found.value(f"{PREFIX}io_seconds_total", client="ceph-1", operation="metadata") == pytest.approx(seconds)
    assert found.value(f"{PREFIX}ios_total", client="ceph-1", operation="copyfrom") is None
    assert found.value(f"{PREFIX}requests_total", client="krbd", target="osd") is None


def test_a_mount_that_the_cluster_has_shut_out_says_so(kernel: Kernel) -> None:
    assert kernel.sample(0.0).value(f"{PREFIX}blocklisted", client="ceph-1") == 0
    kernel.machine.write(f"{MOUNT}/status", "instance: client.4305 (2)192.0.2.57:0/1\nblocklisted: true\n")
    assert kernel.sample(1.0).value(f"{PREFIX}blocklisted", client="ceph-1") == 1


OPENED: set[str] = set()
WATCHING: list[bool] = []


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if WATCHING and event == "open":
        OPENED.add(os.fspath(arguments[0]) if not isinstance(arguments[0], int) else "")


def test_no_file_called_caps_is_ever_opened(kernel: Kernel) -> None:
    sys.addaudithook(watch)
    WATCHING.append(True)
    try:
        kernel.sample(0.0)
    finally:
        WATCHING.clear()

    names = {str(path).rpartition(".client4305/")[2] for path in OPENED if "client4305" in str(path)}
    assert names == {"osdc", "mdsc", "metrics/latency", "status"}


def test_before_linux_5_16_the_table_of_latencies_stands_among_others(machine: Machine) -> None:
    kernel = Kernel(machine, "5.10")
    kernel.sample(0.0)
    path = machine.procfs.parent / DEBUGFS / f"{FSID}.client52904" / "metrics"
    path.write_text(path.read_text().replace("79          12856 ", "89          12856 "))
    found = kernel.sample(1.0)

    assert found.value(f"{PREFIX}requests_total", client="ceph-2", target="mds") == 10
    assert found.value(f"{PREFIX}io_seconds_total", client="ceph-2", operation="metadata") == pytest.approx(0.12856)
    assert found.value(f"{PREFIX}ios_total", client="ceph-2", operation="read") == 0
    assert f"{PREFIX}blocklisted" not in found.values


def test_before_linux_5_8_there_are_only_requests_in_flight(machine: Machine) -> None:
    kernel = Kernel(machine, "4.19")
    kernel.sample(0.0)
    found = kernel.sample(1.0)

    assert found.value(f"{PREFIX}inflight_requests", client="ceph-2", target="mds") == 1
    assert found.value(f"{PREFIX}inflight_seconds_total", client="ceph-2", target="mds") == 1
    assert f"{PREFIX}requests_total" not in found.values
    assert f"{PREFIX}ios_total" not in found.values


def test_a_mount_that_ends_keeps_its_counters_and_is_no_instance_any_more(kernel: Kernel) -> None:
    kernel.sample(0.0)
    kernel.sample(1.0)
    for name in ("osdc", "mdsc", "bdi", "status", "metrics/latency"):
        (kernel.machine.procfs.parent / MOUNT / name).unlink()
    (kernel.machine.sysfs / "class/bdi/ceph-1/read_ahead_kb").unlink()
    (kernel.machine.sysfs / "class/bdi/ceph-1").rmdir()
    found = kernel.sample(2.0)

    assert found.value(f"{PREFIX}instances", client="ceph-1") == 0
    assert found.value(f"{PREFIX}inflight_requests", client="ceph-1", target="osd") is None
    assert found.value(f"{PREFIX}inflight_seconds_total", client="ceph-1", target="osd") == 3


def test_without_debugfs_clients_are_blind_and_still_known(machine: Machine) -> None:
    machine.write("sys/class/bdi/ceph-3/read_ahead_kb", "8192\n")
    machine.write("sys/class/bdi/0:44-fuseblk/read_ahead_kb", "8192\n")
    for device, client in (("0", "client4310"), ("1", "client4310"), ("2", "client4400")):
        machine.write(f"sys/bus/rbd/devices/{device}/client_id", f"{client}\n")
        machine.write(f"sys/bus/rbd/devices/{device}/cluster_fsid", f"{FSID}\n")
    found = Kernel(machine).sample(0.0)

    assert {labels["client"]: n for labels, n in found.series(f"{PREFIX}blind_instances")} == {"ceph-3": 1, "krbd": 2}
    assert {labels["client"]: n for labels, n in found.series(f"{PREFIX}instances")} == {"ceph-3": 1, "krbd": 2}


def test_a_mount_that_is_not_complete_yet_is_no_client(machine: Machine) -> None:
    machine.write(f"{MOUNT}/osdc", "REQUESTS 0 homeless 0\n")
    with pytest.raises(NotPresent):
        Kernel(machine).sample(0.0)


def test_a_kernel_without_ceph_clients_is_not_a_failure(machine: Machine) -> None:
    machine.write(f"{DEBUGFS}/meta/client_features/mount_syntax_v2", "")
    machine.write("sys/class/bdi/254:0/read_ahead_kb", "128\n")
    with pytest.raises(NotPresent):
        Kernel(machine).sample(0.0)


def test_an_unknown_format_is_an_error_that_blinds_its_own_client_only(kernel: Kernel) -> None:
    kernel.machine.write(f"{MOUNT}/osdc", "IN FLIGHT: 3\n")
    with pytest.raises(FormatError, match="not an osdc"):
        kernel.probe.sample(0.0)
    found = kernel.snapshot()

    assert found.value(f"{PREFIX}blind_instances", client="ceph-1") == 1
    assert found.value(f"{PREFIX}inflight_requests", client="krbd", target="osd") == 2


def test_mounts_beyond_the_limit_are_one_client(machine: Machine) -> None:
    kernel = Kernel(machine)
    for number in range(1, MAX_LABELLED_CLIENTS + 4):
        kernel.mount(number)
    found = kernel.sample(0.0)

    instances = {labels["client"]: n for labels, n in found.series(f"{PREFIX}instances")}
    assert len(instances) == MAX_LABELLED_CLIENTS + 1
    assert instances["ceph-more"] == 3
    assert found.value(f"{PREFIX}inflight_requests", client="ceph-more", target="osd") == 3


def test_labels_of_mounts_that_are_long_gone_are_free_again(machine: Machine) -> None:
    kernel = Kernel(machine)
    for number in range(1, MAX_LABELLED_CLIENTS + 4):
        kernel.mount(number)
    kernel.sample(0.0)
    for directory in (machine.sysfs / "kernel/debug/ceph", machine.sysfs / "class/bdi"):
        shutil.rmtree(directory)
    kernel.sample(1.0)
    kernel.mount(200)
    assert kernel.sample(2.0).value(f"{PREFIX}instances", client="ceph-more") == 1
    kernel.sample(2.0 + KEEP_ENDED_SECONDS)
    kernel.mount(300)
    found = kernel.sample(3.0 + KEEP_ENDED_SECONDS)

    assert {labels["client"]: n for labels, n in found.series(f"{PREFIX}instances")} == {"ceph-more": 1, "ceph-300": 1}


def test_this_kernel_answers_or_has_no_ceph_client(this_host: Host) -> None:
    probe = CephKernel(this_host)
    try:
        probe.sample(0.0)
    except NotPresent:
        pytest.skip("this kernel has no Ceph client")
    assert list(probe.points())


def test_lines_of_mdsc_are_told_from_names_with_newlines() -> None:
    assert parse_mdsc(b"") == 0
    assert parse_mdsc(b"1\tmds0\tcreate\t #1/a\nb (a\nb)\n2\tmds-1\tgetattr\t #3\n") == 2
    with pytest.raises(FormatError):
        parse_mdsc(b"mds0 create\n")


def test_a_table_of_sizes_is_not_taken_for_one_of_latencies() -> None:
    table = (FIXTURES / "debugfs_linux-6.6.txt").read_text().partition("metrics/size\n")[2].partition("==>")[0]
    with pytest.raises(FormatError):
        parse_latency(table.encode())
    header = b"item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)\n"
    assert parse_latency(header + b"read 2 3 1 5 1\nwrite x 3 1 5 1\n\n" + table.encode()) == {
        "read": KernelLatency(2, 3e-6, 1e-6, 5e-6)
    }


def test_a_sum_does_not_follow_the_rounding_of_a_mean() -> None:
    # A million requests of 100.6 us, then ten more per second; the mean is shown as 100 or 101.
    total = RunningSum(KernelLatency(10**6, 100e-6, 90e-6, 200e-6))
    for step, mean in enumerate((101e-6, 100e-6, 101e-6, 100e-6), 1):
        before = total.seconds
        total.look(KernelLatency(10**6 + 10 * step, mean, 90e-6, 200e-6))
        assert total.seconds - before == pytest.approx(10 * 145e-6, abs=10 * 56e-6)


def test_a_sum_is_as_exact_as_its_means() -> None:
    total = RunningSum(KernelLatency(0, 0.0, 0.0, 0.0))
    total.look(KernelLatency(3, 0.5, 0.25, 0.75))
    total.look(KernelLatency(3, 0.5, 0.25, 0.75))
    total.look(KernelLatency(4, 0.625, 0.25, 1.0))
    assert total.seconds == 2.5


PIECES = (
    b"REQUESTS ", b"homeless ", b"1", b"9" * 30, b"\tmds0\t", b"\tcreate\t", b"(unsafe)", b"\n", b" ", b"\xff",
    b"item ", b"total avg_lat(us) min_lat(us) max_lat(us) stdev(us)\n", b"read ", b"1 2 3 4 5", b"blocklisted: true\n",
)  # fmt: skip
WORDS = st.lists(st.sampled_from(PIECES)).map(b"".join)


@given(st.binary() | WORDS)
def test_any_bytes_give_numbers_or_a_format_error(raw: bytes) -> None:
    for parse in (parse_osdc, parse_mdsc, parse_status):
        try:
            assert parse(raw) >= 0
        except FormatError:
            pass
    try:
        table = parse_latency(raw)
    except FormatError:
        return
    assert all(item.isprintable() and min(latency) >= 0 for item, latency in table.items())


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 1e3))))
def test_a_sum_never_goes_back_whatever_the_kernel_says(looks: list[tuple[int, float, float, float]]) -> None:
    total = RunningSum(KernelLatency(0, 0.0, 0.0, 0.0))
    for number, *times in looks:
        before = total.seconds
        total.look(KernelLatency(number, times[0], *sorted(times[1:])))
        assert total.seconds >= before
