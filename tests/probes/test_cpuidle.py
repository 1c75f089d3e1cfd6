from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.cpuidle import CpuIdle
from pinchpoint.threads.task_source import KeptFile

STATES = (("POLL", 0), ("C1", 2), ("C6", 133))
"""Names and exit latencies in microseconds from intel_idle for Cascade Lake (skx_cstates)."""


def idle(machine: Machine, cpu: int, state: int, *, usage: int, time: int, disable: int = 0) -> None:
    """Write one idle state of a CPU, with `time` in microseconds."""
    name, latency = STATES[state]
    files = {"name": name, "latency": latency, "usage": usage, "time": time, "disable": disable}
    for file, content in files.items():
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/{file}", f"{content}\n")


def read(probe: CpuIdle) -> Snapshot:
    return Snapshot.of(0, probe.points())


def test_residency_and_entries_start_at_those_since_boot_and_follow(machine: Machine) -> None:
    idle(machine, 0, 2, usage=10, time=2_000_000)
    probe = CpuIdle(machine.host())
    probe.sample(1.0)
    idle(machine, 0, 2, usage=15, time=2_500_000)
    probe.sample(2.0)

    found = read(probe)
    assert found.value("pinchpoint_cpu_idle_state_seconds_total", cpu="0", state="C6") == 2.5
    assert found.value("pinchpoint_cpu_idle_state_entries_total", cpu="0", state="C6") == 15


def test_cost_of_exits_is_entries_times_latency_over_all_states(machine: Machine) -> None:
    idle(machine, 3, 0, usage=1000, time=50)
    idle(machine, 3, 1, usage=500, time=60)
    idle(machine, 3, 2, usage=100, time=70)
    probe = CpuIdle(machine.host())
    probe.sample(1.0)

    assert read(probe).value("pinchpoint_cpu_idle_exit_seconds_total", cpu="3") == pytest.approx(
        (500 * 2 + 100 * 133) / 1e6
    )
    assert read(probe).value("pinchpoint_cpu_idle_state_exit_latency_seconds", state="C6") == pytest.approx(133e-6)


def test_states_that_are_switched_off_are_counted_over_cpus(machine: Machine) -> None:
    idle(machine, 0, 1, usage=0, time=0, disable=0)
    idle(machine, 0, 2, usage=0, time=0, disable=1)
    idle(machine, 1, 2, usage=0, time=0, disable=1)
    probe = CpuIdle(machine.host())
    probe.sample(1.0)

    disabled = {labels["state"]: n for labels, n in read(probe).series("pinchpoint_cpu_idle_state_disabled_cpus")}
    assert disabled == {"C1": 0, "C6": 2}

    idle(machine, 1, 2, usage=0, time=0, disable=0)
    probe.sample(5.0)
    probe.sample(12.0)
    assert read(probe).value("pinchpoint_cpu_idle_state_disabled_cpus", state="C6") == 1


def test_a_cpu_that_goes_offline_and_comes_back_never_counts_backwards(machine: Machine) -> None:
    idle(machine, 1, 2, usage=100, time=9_000_000)
    probe = CpuIdle(machine.host())
    probe.sample(1.0)
    shutil.rmtree(machine.sysfs / "devices/system/cpu/cpu1/cpuidle")
    probe.sample(20.0)
    idle(machine, 1, 2, usage=3, time=1_000_000)
    probe.sample(40.0)
    idle(machine, 1, 2, usage=5, time=1_500_000)
    probe.sample(41.0)

    assert read(probe).value("pinchpoint_cpu_idle_state_entries_total", cpu="1", state="C6") == 102
    assert read(probe).value("pinchpoint_cpu_idle_state_seconds_total", cpu="1", state="C6") == 9.5


def test_a_cpu_with_a_missing_file_does_not_hide_the_others(machine: Machine) -> None:
    idle(machine, 0, 1, usage=7, time=8)
    idle(machine, 1, 1, usage=7, time=8)
    (machine.sysfs / "devices/system/cpu/cpu1/cpuidle/state1/time").unlink()
    probe = CpuIdle(machine.host())
    probe.sample(1.0)

    assert read(probe).value("pinchpoint_cpu_idle_state_entries_total", cpu="0", state="C1") == 7
    assert read(probe).value("pinchpoint_cpu_idle_state_entries_total", cpu="1", state="C1") == 0


def test_two_states_of_one_name_stay_apart(machine: Machine) -> None:
    idle(machine, 0, 1, usage=1, time=1)
    idle(machine, 0, 2, usage=2, time=2)
    machine.write("sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C1\n")
    probe = CpuIdle(machine.host())
    probe.sample(1.0)

    entries = {s["state"]: n for s, n in read(probe).series("pinchpoint_cpu_idle_state_entries_total")}
    assert entries == {"C1": 1, "C1 (state2)": 2}


def test_a_machine_without_idle_states_is_not_a_failure(machine: Machine) -> None:
    machine.write("sys/devices/system/cpu/cpuidle/current_driver", "none\n")
    with pytest.raises(NotPresent):
        CpuIdle(machine.host()).sample(1.0)


def test_every_kept_descriptor_is_given_back(machine: Machine) -> None:
    before = KeptFile.kept
    idle(machine, 0, 1, usage=1, time=1)
    probe = CpuIdle(machine.host())
    probe.sample(1.0)
    assert KeptFile.kept == before + 2
    probe.close()
    assert KeptFile.kept == before


@given(content=st.binary(max_size=40))
def test_any_content_of_any_file_is_survived(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    for file in ("name", "latency", "usage", "time", "disable"):
        machine.write(f"sys/devices/system/cpu/cpu0/cpuidle/state0/{file}", content)
    probe = CpuIdle(machine.host())
    probe.sample(1.0)
    points = list(probe.points())
    probe.close()

    assert all(point.value >= 0 and all(label.isprintable() for label in point.labels) for point in points)


def test_cpus_of_this_machine_were_idle_before(this_host: Host) -> None:
    if not any(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpuidle/state*")):
        pytest.skip("this machine has no idle states (a virtual machine without a cpuidle driver)")
    probe = CpuIdle(this_host)
    probe.sample(1.0)
    probe.sample(2.0)
    probe.close()

    assert sum(n for _, n in read(probe).series("pinchpoint_cpu_idle_state_seconds_total")) > 0
