"""The clock of each CPU, what limits it, and the clock that work really saw.

Files: /sys/devices/system/cpu/cpufreq/policyN (Documentation/admin-guide/pm/cpufreq.rst), intel_pstate and boost
beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pinchpoint.host.procfs import CpuTimes, FormatError, parse_cpu_times, read_bytes
from pinchpoint.host.sysfs import cpufreq_policies, read_int, read_text, turbo_disabled
from pinchpoint.metrics import (
    CPU_CLOCK_RATIO,
    CPU_FREQUENCY_HERTZ,
    CPU_FREQUENCY_LIMIT_HERTZ,
    CPU_FREQUENCY_MAX_HERTZ,
    CPU_GOVERNOR_INFO,
    CPU_PERFORMANCE_LIMIT_RATIO,
    CPU_TURBO_DISABLED,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe

__all__ = ["CpuFreq"]

FULL_BUSY_SHARE = 0.8
"""Busy share from which a CPU counts as full in `CLOCK`."""
HERTZ_PER_KILOHERTZ = 1000
PERCENT = 100


class _Clock(NamedTuple):
    """What cpufreq says of one CPU, in Hz; None where it does not say."""

    current: int | None
    maximum: int | None
    limit: int | None


class CpuFreq(Probe):
    """Clock, governor, turbo and limits.

    The pace is slow because on some kernels each read of scaling_cur_freq waits 20 ms for a measurement of that CPU
    (x86, Linux 4.15: https://github.com/prometheus/node_exporter/issues/1086).
    """

    name = "cpufreq"
    metrics = (
        CPU_FREQUENCY_HERTZ,
        CPU_FREQUENCY_MAX_HERTZ,
        CPU_FREQUENCY_LIMIT_HERTZ,
        CPU_GOVERNOR_INFO,
        CPU_TURBO_DISABLED,
        CPU_PERFORMANCE_LIMIT_RATIO,
        CPU_CLOCK_RATIO,
    )
    interval = 5.0
    rest_interval = 10.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._clocks: dict[int, _Clock] = {}
        self._governors: set[tuple[str, str, str]] = set()
        self._turbo_disabled: bool | None = None
        self._performance_limit: int | None = None
        self._times: Mapping[int, CpuTimes] = {}
        self._ratios: dict[str, float] = {}

    def sample(self, now: float) -> None:
        """Read every policy. Raises NotPresent where there is none, as in most virtual machines."""
        self._clocks, self._governors = {}, set()
        for policy in cpufreq_policies(self.host.sysfs):
            self._read(policy)
        if not self._clocks and not self._governors:
            raise NotPresent("no CPU has a cpufreq policy")
        self._turbo_disabled = turbo_disabled(self.host.sysfs)
        self._performance_limit = read_int(
            self.host.sysfs / "devices" / "system" / "cpu" / "intel_pstate" / "max_perf_pct"
        )
        self._ratios = dict(self._weigh())

    def _read(self, policy: Path) -> None:
        governor = read_text(policy / "scaling_governor")
        if governor is not None:
            driver = read_text(policy / "scaling_driver") or ""
            preference = read_text(policy / "energy_performance_preference") or ""
            self._governors.add((driver, governor, preference))
        # An unknown value is the text <unknown> (show_scaling_cur_freq and others, drivers/cpufreq/cpufreq.c).
        clock = _Clock(
            *(_hertz(policy / name) for name in ("scaling_cur_freq", "cpuinfo_max_freq", "scaling_max_freq"))
        )
        if clock != (None, None, None):
            # A policy whose CPUs are all offline has none in this file.
            for cpu in (read_text(policy / "affected_cpus") or "").split():
                if cpu.isdecimal():
                    self._clocks[int(cpu)] = clock

    def _weigh(self) -> Iterator[tuple[str, float]]:
        """Yield the clock ratio of the CPUs that were busy, and of those that were full, since the last sample."""
        before = self._times
        try:
            self._times = parse_cpu_times(read_bytes(self.host.procfs / "stat"))
        except (OSError, FormatError):
            self._times = {}
        weights, weighted, full = 0, 0.0, []
        for cpu, clock in self._clocks.items():
            if not clock.current or not clock.maximum or cpu not in before or cpu not in self._times:
                continue
            old, new = before[cpu], self._times[cpu]
            busy, total = max(0, new.busy - old.busy), sum(new) - sum(old)
            ratio = clock.current / clock.maximum
            weights += busy
            weighted += busy * ratio
            if total > 0 and busy >= FULL_BUSY_SHARE * total:
                full.append(ratio)
        if weights:
            yield "busy", weighted / weights
        if full:
            yield "full", sum(full) / len(full)

    def points(self) -> Iterator[Point]:
        """Yield what was found at the last look."""
        for cpu, clock in sorted(self._clocks.items()):
            if clock.current is not None:
                yield CPU_FREQUENCY_HERTZ.point(clock.current, str(cpu))
            if clock.maximum is not None:
                yield CPU_FREQUENCY_MAX_HERTZ.point(clock.maximum, str(cpu))
            if clock.limit is not None and clock.limit != clock.maximum:
                yield CPU_FREQUENCY_LIMIT_HERTZ.point(clock.limit, str(cpu))
        for labels in sorted(self._governors):
            yield CPU_GOVERNOR_INFO.point(1, *labels)
        if self._turbo_disabled is not None:
            yield CPU_TURBO_DISABLED.point(float(self._turbo_disabled))
        if self._performance_limit is not None:
            yield CPU_PERFORMANCE_LIMIT_RATIO.point(self._performance_limit / PERCENT)
        for cpus, ratio in self._ratios.items():
            yield CPU_CLOCK_RATIO.point(ratio, cpus)


def _hertz(path: Path) -> int | None:
    kilohertz = read_int(path)
    return None if kilohertz is None else kilohertz * HERTZ_PER_KILOHERTZ
