"""The sizes of expositions; the reviewed ones are compared in tests/test_generate.py."""

from __future__ import annotations

import random

from ceph_answers import encoded, recorded
from goldens import exposition
from machine import Machine
from machines import add_xeon_cpus, ceph_host, slept, threads
from pinchpoint.ceph.follower import DaemonReader
from pinchpoint.probes.mds import MdsReader
from pinchpoint.probes.osd import OsdReader
from pinchpoint.threads.roles import load_roles
from workload import MDS, OSD

SERIES_BUDGET = 2000


def test_a_host_with_10000_threads_8_osds_and_4_mdss_stays_under_2000_series(machine: Machine) -> None:
    add_xeon_cpus(machine, 96)
    for cpu in range(96):
        for state in range(4):
            slept(machine, cpu, state, cpu * 1000, cpu * 10_000)
    machine.process(1, "systemd")
    machine.write("proc/stat", "".join(f"cpu{cpu} 1 0 0 1 0 0 0 0 0 0\n" for cpu in range(96)))
    machine.write("proc/1/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    for index in range(8):
        pid = 10_000 + 100 * index
        machine.process(pid, "ceph-osd", argv=("ceph-osd", "-i", str(index)), threads=threads(pid + 1, OSD))
        # Each with two disks, half of the CPUs, and its own limits.
        machine.write(f"proc/{pid}/task/{pid}/status", "Cpus_allowed_list:\t0-47\n")
        machine.write(f"proc/{pid}/mountinfo", f"5 1 259:{index} / /a rw - xfs a rw\n6 1 259:99 / /b rw - xfs b rw\n")
        machine.write(f"proc/{pid}/cgroup", f"0::/osd{index}\n")
        machine.write(f"sys/fs/cgroup/osd{index}/cpu.max", "400000 100000\n")
        machine.write(f"sys/fs/cgroup/osd{index}/io.max", f"259:{index} rbps=9 wbps=9 riops=9 wiops=9\n")
        for mount in (5, 6):
            machine.opens(pid, mount, f"/block{mount}", mount=mount)
    for index in range(4):
        pid = 20_000 + 100 * index
        machine.process(pid, "ceph-mds", argv=("ceph-mds", "-i", "abcd"[index]), threads=threads(pid + 1, MDS))
    names = random.Random(7)
    for index in range(20):
        pid = 30_000 + 1000 * index
        churn = {pid + n: f"worker-{names.randrange(10**6)}" for n in range(1, 471)}
        machine.process(pid, "ior" if index < 10 else "bystander", threads=churn)

    found = exposition(machine.host(), seconds=0.2)

    series = [line for line in found.splitlines() if not line.startswith("#")]
    threads_seen = sum(float(line.rpartition(" ")[2]) for line in series if line.startswith("pinchpoint_threads{"))
    assert threads_seen > 5000
    assert len(series) < SERIES_BUDGET


def test_what_8_osds_and_4_mdss_say_of_themselves_leaves_room_for_the_rest_of_the_host() -> None:
    readers: list[tuple[DaemonReader, str]] = [(OsdReader(load_roles()), "osd"), (MdsReader(load_roles()), "mds")]
    number = {}
    for reader, daemon in readers:
        reader.take(1.0, encoded(recorded(daemon, "20.2.4", "load")))
        number[daemon] = len(list(reader.points(f"{daemon}.0")))

    assert number["osd"] <= 81
    assert number["mds"] <= 50
    assert 8 * number["osd"] + 4 * number["mds"] < SERIES_BUDGET / 2


def test_the_ceph_host_has_20_daemons_and_more_than_2000_threads(machine: Machine) -> None:
    ceph_host(machine)

    assert len(list(machine.procfs.glob("[0-9]*/comm"))) >= 20
    assert len(list(machine.procfs.glob("[0-9]*/task/[0-9]*"))) > 2000
