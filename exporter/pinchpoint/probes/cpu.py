"""The CPUs of the host together, and the one that spends most time in interrupts."""

from __future__ import annotations

from collections.abc import Iterator

from pinchpoint import resources
from pinchpoint.host.procfs import CpuTimes, parse_cpu_times, read_bytes
from pinchpoint.metrics import RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.resources import Resource

__all__ = ["Cpu"]


class Cpu(Probe):
    """The share of the CPUs that is not idle, and the largest share of one CPU that interrupts take.

    Time that a hypervisor gave to another guest counts as busy: the CPU could take no more work.
    """

    name = "cpu"
    metrics = (RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS)
    rest_interval = 2.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        serves, thresholds = host.roles.serves, host.roles.thresholds
        self._cpu, self._softirq = (
            Resource(name, "host", serves[name], thresholds[name]) for name in ("cpu", "softirq_cpu")
        )
        self._last: dict[int, CpuTimes] = {}
        self._last_time = 0.0

    def sample(self, now: float) -> None:
        """Read the times of every CPU. Raises FormatError where there are none."""
        try:
            times = parse_cpu_times(read_bytes(f"{self.host.procfs}/stat"))
        except FileNotFoundError as error:
            raise NotPresent(f"no {error.filename}") from error
        shares = [_shares(old, times[cpu]) for cpu, old in self._last.items() if cpu in times]
        known = [share for share in shares if share is not None]
        if known:
            elapsed = now - self._last_time
            self._cpu.add(elapsed, elapsed * sum(busy for busy, _ in known) / len(known))
            self._softirq.add(elapsed, elapsed * max(interrupts for _, interrupts in known))
        self._last, self._last_time = times, now

    def points(self) -> Iterator[Point]:
        """Yield both integrals."""
        return resources.points((self._cpu, self._softirq))


def _shares(old: CpuTimes, new: CpuTimes) -> tuple[float, float] | None:
    """Return the shares of a CPU's time in which it was busy and in which it served interrupts; None for no time."""
    spent = new.since(old)
    total = sum(spent)
    return (spent.busy / total, (spent.irq + spent.softirq) / total) if total else None
