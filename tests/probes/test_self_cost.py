from __future__ import annotations

import os
import platform
import time

from machine import Machine
from pinchpoint import __version__
from pinchpoint.model import Snapshot
from pinchpoint.probes.self_cost import SelfCost


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


def test_the_build_names_both_versions(machine: Machine) -> None:
    labels = {"version": __version__, "python": platform.python_version()}

    assert read(SelfCost(machine.host())).value("pinchpoint_build_info", **labels) == 1


def test_there_is_nothing_to_see_before_the_first_sample(machine: Machine) -> None:
    assert list(SelfCost(machine.host()).points()) == []
