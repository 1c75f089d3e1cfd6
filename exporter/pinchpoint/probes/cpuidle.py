"""Idle states of each CPU: how long, how often, and what the way out of them costs.

Files: /sys/devices/system/cpu/cpuN/cpuidle/stateM (Documentation/admin-guide/pm/cpuidle.rst). The time is that of the
requested state: hardware may stay in a shallower one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pinchpoint.host.sysfs import read_int, read_text
from pinchpoint.metrics import (
    CPU_IDLE_EXIT_SECONDS,
    CPU_IDLE_STATE_DISABLED_CPUS,
    CPU_IDLE_STATE_ENTRIES,
    CPU_IDLE_STATE_EXIT_LATENCY_SECONDS,
    CPU_IDLE_STATE_SECONDS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.threads.task_source import KeptFile
from pinchpoint.units import MICROSECONDS_PER_SECOND

__all__ = ["CpuIdle"]

CPU_LOOK_INTERVAL_SECONDS = 10.0
"""Seconds between two looks at which CPUs there are and what is switched off."""
MAX_NUMBER_BYTES = 32
"""Bytes that suffice for a number."""
MAX_STATE_NAME_CHARACTERS = 32
"""Longest name of a state (the kernel's own limit is 16: CPUIDLE_NAME_LEN, include/linux/cpuidle.h)."""


class _State:
    """One idle state of one CPU. Its totals never go back: entries, microseconds in it, microseconds lost in exits."""

    __slots__ = ("_files", "_path", "_raw_time", "_raw_usage", "disabled", "entries", "latency", "lost", "name", "time")

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.latency = 0
        self.disabled = False
        self.entries = self.time = self.lost = 0
        self._path = path
        self._raw_usage = self._raw_time = 0
        self._files: tuple[KeptFile, KeptFile] | None = None

    def look(self) -> None:
        """Read what seldom changes; close what has gone, and open what has come back."""
        latency = read_int(self._path / "latency")
        if latency is None:
            self.close()
            return
        self.latency = max(0, latency)
        self.disabled = bool(read_int(self._path / "disable"))
        if self._files is None:
            try:
                usage = KeptFile(f"{self._path}/usage", MAX_NUMBER_BYTES)
            except OSError:
                return
            try:
                self._files = usage, KeptFile(f"{self._path}/time", MAX_NUMBER_BYTES)
            except OSError:
                usage.close()

    def read(self) -> None:
        """Add what is new; a state that can't be read is left alone until the next look."""
        if self._files is None:
            return
        try:
            usage = int(self._files[0].read())
            # Both are counted when the CPU leaves the state (cpuidle_enter_state, drivers/cpuidle/cpuidle.c).
            if usage == self._raw_usage:
                return
            time = int(self._files[1].read())
        except OSError:
            self.close()
        except ValueError:
            pass
        else:
            # A CPU that comes back online counts from zero (__cpuidle_device_init).
            entries = max(0, usage - self._raw_usage)
            self.entries += entries
            self.lost += entries * self.latency
            self.time += max(0, time - self._raw_time)
            self._raw_usage, self._raw_time = usage, time

    def close(self) -> None:
        """Close the kept descriptors."""
        for file in self._files or ():
            file.close()
        self._files = None


class CpuIdle(Probe):
    """Residency and entries of each CPU's idle states, their exit latency, and which are switched off."""

    name = "cpuidle"
    metrics = (
        CPU_IDLE_STATE_SECONDS,
        CPU_IDLE_STATE_ENTRIES,
        CPU_IDLE_STATE_EXIT_LATENCY_SECONDS,
        CPU_IDLE_STATE_DISABLED_CPUS,
        CPU_IDLE_EXIT_SECONDS,
    )
    rest_interval = 5.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._cpus: dict[int, dict[str, _State]] = {}
        self._looked: float | None = None

    def sample(self, now: float) -> None:
        """Read every state of every CPU that is online. Raises NotPresent where no CPU has idle states."""
        if self._looked is None or now - self._looked >= CPU_LOOK_INTERVAL_SECONDS:
            self._look()
            self._looked = now
        if not self._cpus:
            raise NotPresent("no CPU has idle states in cpuidle")
        for states in self._cpus.values():
            for state in states.values():
                state.read()

    def _look(self) -> None:
        for path in sorted((self.host.sysfs / "devices" / "system" / "cpu").glob("cpu[0-9]*/cpuidle/state[0-9]*")):
            cpu, state = path.parent.parent.name.removeprefix("cpu"), path.name
            if not cpu.isdecimal():
                continue
            states = self._cpus.setdefault(int(cpu), {})
            if state not in states:
                states[state] = _State(path, self._name(path, states))
        for states in self._cpus.values():
            for known in states.values():
                known.look()

    def _name(self, path: Path, states: dict[str, _State]) -> str:
        name = (read_text(path / "name") or path.name)[:MAX_STATE_NAME_CHARACTERS]
        taken = {state.name for state in states.values()}
        return f"{name} ({path.name})" if name in taken else name

    def points(self) -> Iterator[Point]:
        """Yield the series of each CPU, then those of each state over all CPUs."""
        latency: dict[str, int] = {}
        disabled: dict[str, int] = {}
        for cpu, states in sorted(self._cpus.items()):
            for state in states.values():
                yield CPU_IDLE_STATE_SECONDS.point(state.time / MICROSECONDS_PER_SECOND, str(cpu), state.name)
                yield CPU_IDLE_STATE_ENTRIES.point(state.entries, str(cpu), state.name)
                latency[state.name] = max(latency.get(state.name, 0), state.latency)
                disabled[state.name] = disabled.get(state.name, 0) + state.disabled
            yield CPU_IDLE_EXIT_SECONDS.point(
                sum(state.lost for state in states.values()) / MICROSECONDS_PER_SECOND, str(cpu)
            )
        for name, value in latency.items():
            yield CPU_IDLE_STATE_EXIT_LATENCY_SECONDS.point(value / MICROSECONDS_PER_SECOND, name)
            yield CPU_IDLE_STATE_DISABLED_CPUS.point(disabled[name], name)

    def close(self) -> None:
        """Close the kept descriptors."""
        for states in self._cpus.values():
            for state in states.values():
                state.close()
