from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from machine import Machine
from pinchpoint import __version__
from pinchpoint.benchmarks.nursery import Nursery
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.model import Snapshot
from pinchpoint.probes.self_cost import SelfCost
from polling import until


def read(probe: SelfCost) -> Snapshot:
    probe.sample(1.0)
    return Snapshot.of(0, probe.points())


def test_cpu_time_is_that_of_this_process(machine: Machine) -> None:
    probe = SelfCost(machine.host())
    tick = 1 / os.sysconf("SC_CLK_TCK")
    before = time.process_time()
    found = read(probe).value("pinchpoint_self_cpu_seconds_total") or 0

    assert before - 2 * tick <= found <= time.process_time() + 2 * tick


def test_memory_and_descriptors_are_those_of_this_process(machine: Machine) -> None:
    probe = SelfCost(machine.host())
    files = read(probe).value("pinchpoint_self_open_files") or 0
    with open(os.devnull):
        found = read(probe)

    assert found.value("pinchpoint_self_open_files") == files + 1
    assert 1 << 20 < (found.value("pinchpoint_self_resident_bytes") or 0) < 1 << 40


WORKER = """
import time

while time.process_time() < 0.2:
    pass
print(flush=True)
input()
"""
NURSERY = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}]); sys.stdin.read()"


def test_helper_processes_count_also_when_they_have_ended(machine: Machine) -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", NURSERY]
    with ours, theirs, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as nursery:
        assert nursery.stdout is not None
        assert nursery.stdin is not None
        probe = SelfCost(replace(machine.host(), nursery=Nursery(nursery.pid, ours)))
        nursery.stdout.readline()
        alone = read(SelfCost(machine.host()))
        found = read(probe)
        nursery.stdin.write(b"\n")
        nursery.stdin.flush()
        assert until(20, lambda: len(Tree.below(Path("/proc"), nursery.pid).processes) == 1)
        later = read(probe)
        nursery.kill()

    for name, more in (("cpu_seconds_total", 0.2), ("resident_bytes", 2 << 20)):
        own = alone.value(f"pinchpoint_self_{name}") or 0
        assert own + more <= (found.value(f"pinchpoint_self_{name}") or 0)
    cpu = "pinchpoint_self_cpu_seconds_total"
    assert (found.value(cpu) or 0) <= (later.value(cpu) or 0)


def test_the_build_names_both_versions(machine: Machine) -> None:
    labels = {"version": __version__, "python": platform.python_version()}

    assert read(SelfCost(machine.host())).value("pinchpoint_build_info", **labels) == 1


def test_cpu_time_is_that_of_the_moment_and_not_of_the_last_sample(machine: Machine) -> None:
    probe = SelfCost(machine.host())
    before = read(probe).value("pinchpoint_self_cpu_seconds_total") or 0
    until_used = time.process_time() + 0.01
    while time.process_time() < until_used:
        pass

    after = Snapshot.of(0, probe.points()).value("pinchpoint_self_cpu_seconds_total") or 0
    assert after >= before + 0.01
