from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.cpufreq import CpuFreq

CPU = "sys/devices/system/cpu"


def policy(
    machine: Machine,
    cpus: str,
    *,
    current: int | str,
    maximum: int = 3_900_000,
    limit: int | None = None,
    governor: str = "powersave",
    directory: str | None = None,
) -> None:
    """Write the policy of some CPUs, with frequencies in kHz."""
    files = {
        "affected_cpus": cpus,
        "scaling_cur_freq": current,
        "cpuinfo_max_freq": maximum,
        "scaling_max_freq": limit or maximum,
        "scaling_driver": "intel_pstate",
        "scaling_governor": governor,
        "energy_performance_preference": "balance_performance",
    }
    for file, content in files.items():
        machine.write(f"{CPU}/{directory or 'cpufreq/policy' + cpus.split()[0]}/{file}", f"{content}\n")


def stat(machine: Machine, *cpus: tuple[int, int]) -> None:
    """Write /proc/stat: busy and idle ticks of each CPU."""
    lines = [f"cpu{number} {busy} 0 0 {idle} 0 0 0 0 0 0\n" for number, (busy, idle) in enumerate(cpus)]
    machine.write("proc/stat", "".join(lines))


def read(probe: CpuFreq) -> Snapshot:
    return Snapshot.of(0, probe.points())


def test_clocks_are_in_hertz_for_every_cpu_of_a_policy(machine: Machine) -> None:
    policy(machine, "0 4", current=1_200_000)
    probe = CpuFreq(machine.host())
    probe.sample(1.0)

    for cpu in ("0", "4"):
        assert read(probe).value("pinchpoint_cpu_frequency_hertz", cpu=cpu) == 1.2e9
        assert read(probe).value("pinchpoint_cpu_frequency_max_hertz", cpu=cpu) == 3.9e9
        assert read(probe).value("pinchpoint_cpu_frequency_limit_hertz", cpu=cpu) is None


def test_a_limit_below_the_maximum_is_shown(machine: Machine) -> None:
    policy(machine, "0", current=2_100_000, limit=2_100_000)
    probe = CpuFreq(machine.host())
    probe.sample(1.0)

    assert read(probe).value("pinchpoint_cpu_frequency_limit_hertz", cpu="0") == 2.1e9


def test_each_governor_in_use_is_named_once(machine: Machine) -> None:
    for cpu, governor in enumerate(("powersave", "performance", "powersave")):
        policy(machine, str(cpu), current=1_000_000, governor=governor)
    probe = CpuFreq(machine.host())
    probe.sample(1.0)

    found = [labels for labels, _ in read(probe).series("pinchpoint_cpu_governor_info")]
    common = {"driver": "intel_pstate", "epp": "balance_performance"}
    assert found == [common | {"governor": "performance"}, common | {"governor": "powersave"}]


def test_the_clock_that_work_saw_is_weighted_by_busy_time(machine: Machine) -> None:
    policy(machine, "0", current=1_000_000, maximum=4_000_000)
    policy(machine, "1", current=3_600_000, maximum=4_000_000)
    policy(machine, "2", current=4_000_000, maximum=4_000_000)
    stat(machine, (0, 0), (0, 0), (0, 0))
    probe = CpuFreq(machine.host())
    probe.sample(0.0)
    assert list(read(probe).series("pinchpoint_cpu_clock_ratio")) == []

    stat(machine, (300, 200), (450, 50), (0, 500))
    probe.sample(5.0)

    assert read(probe).value("pinchpoint_cpu_clock_ratio", cpus="busy") == pytest.approx((300 * 0.25 + 450 * 0.9) / 750)
    assert read(probe).value("pinchpoint_cpu_clock_ratio", cpus="full") == pytest.approx(0.9)

    stat(machine, (301, 699), (450, 550), (0, 1000))
    probe.sample(10.0)
    assert read(probe).value("pinchpoint_cpu_clock_ratio", cpus="busy") == pytest.approx(0.25)
    assert read(probe).value("pinchpoint_cpu_clock_ratio", cpus="full") is None


@pytest.mark.parametrize(
    ("file", "content", "disabled"),
    [
        ("intel_pstate/no_turbo", "1", 1),
        ("intel_pstate/no_turbo", "0", 0),
        ("cpufreq/boost", "0", 1),
        ("cpufreq/boost", "1", 0),
        ("elsewhere", "1", None),
    ],
)
def test_turbo_is_known_from_intel_pstate_or_from_boost(
    machine: Machine, file: str, content: str, disabled: int | None
) -> None:
    policy(machine, "0", current=1_000_000)
    machine.write(f"{CPU}/{file}", f"{content}\n")
    probe = CpuFreq(machine.host())
    probe.sample(1.0)

    assert read(probe).value("pinchpoint_cpu_turbo_disabled") == disabled


def test_the_cap_of_intel_pstate_is_a_ratio(machine: Machine) -> None:
    policy(machine, "0", current=1_000_000)
    machine.write(f"{CPU}/intel_pstate/max_perf_pct", "54\n")
    probe = CpuFreq(machine.host())
    probe.sample(1.0)

    assert read(probe).value("pinchpoint_cpu_performance_limit_ratio") == 0.54


def test_old_kernels_keep_the_policy_with_the_cpu(machine: Machine) -> None:
    policy(machine, "1", current=1_500_000, directory="cpu1/cpufreq")
    probe = CpuFreq(machine.host())
    probe.sample(1.0)

    assert read(probe).value("pinchpoint_cpu_frequency_hertz", cpu="1") == 1.5e9


def test_an_unknown_clock_or_an_offline_cpu_hides_nothing_else(machine: Machine) -> None:
    policy(machine, "0", current="<unknown>")
    policy(machine, "1", current=1_000_000)
    machine.write(f"{CPU}/cpufreq/policy1/affected_cpus", "\n")
    policy(machine, "2", current=2_000_000)
    probe = CpuFreq(machine.host())
    probe.sample(1.0)

    clocks = {labels["cpu"]: value for labels, value in read(probe).series("pinchpoint_cpu_frequency_hertz")}
    assert clocks == {"2": 2e9}
    assert read(probe).value("pinchpoint_cpu_frequency_max_hertz", cpu="0") == 3.9e9


def test_a_machine_without_cpufreq_is_not_a_failure(machine: Machine) -> None:
    (machine.sysfs / "devices/system/cpu/cpufreq").mkdir(parents=True)
    with pytest.raises(NotPresent):
        CpuFreq(machine.host()).sample(1.0)


@given(content=st.binary(max_size=40))
def test_any_content_of_any_file_is_survived(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    policy(machine, "0", current=1_000_000)
    for file in (machine.sysfs / "devices/system/cpu/cpufreq/policy0").iterdir():
        if content:
            file.write_bytes(content)
    machine.write(f"{CPU}/intel_pstate/max_perf_pct", content)
    probe = CpuFreq(machine.host())
    try:
        probe.sample(1.0)
    except NotPresent:
        return

    assert all(label.isprintable() for point in probe.points() for label in point.labels)


def test_clocks_of_this_machine_lie_below_a_terahertz(this_host: Host) -> None:
    if not any(Path("/sys/devices/system/cpu/cpufreq").glob("policy*")):
        pytest.skip("this machine has no cpufreq policy (most virtual machines have none)")
    probe = CpuFreq(this_host)
    probe.sample(1.0)
    probe.sample(2.0)

    for metric in ("pinchpoint_cpu_frequency_hertz", "pinchpoint_cpu_frequency_max_hertz"):
        assert all(1e7 < value < 1e12 for _, value in read(probe).series(metric))
