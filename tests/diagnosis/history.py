"""Snapshots of made-up hosts, in the terms of a verdict: shares of an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pinchpoint.model import Labels, Snapshot, Snapshots

__all__ = ["START", "MadeHost", "snapshots"]

START = 1_800_000_000.0
RESOURCE = "pinchpoint_resource_"
THRESHOLDS = {"writeback_worker": 0.7, "link": 0.9, "memory": 0.1, "cpu_quota": 0.5}


class MadeHost:
    """A host with constant activity for `seconds`: each method adds some, and returns the host."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._before: dict[str, dict[Labels, float]] = {}
        self._after: dict[str, dict[Labels, float]] = {}

    def counter(self, name: str, share: float, **labels: str) -> Self:
        """Make a counter rise by so much per second."""
        key = tuple(sorted(labels.items()))
        self._before.setdefault(name, {})[key] = 100.0
        self._after.setdefault(name, {})[key] = 100.0 + share * self.seconds
        return self

    def gauge(self, name: str, value: float, **labels: str) -> Self:
        """Set a constant gauge."""
        for values in (self._before, self._after):
            values.setdefault(name, {})[tuple(sorted(labels.items()))] = value
        return self

    def resource(
        self,
        name: str,
        owner: str,
        busy: float,
        serves: str,
        *,
        runqueue: float | None = None,
        saturated: float | None = None,
    ) -> Self:
        """Make a resource busy for a share of the time; it is saturated all the time if that is above its threshold."""
        threshold = THRESHOLDS.get(name, 0.8)
        full = (1.0 if busy >= threshold else 0.0) if saturated is None else saturated
        self.counter(f"{RESOURCE}busy_seconds_total", busy, resource=name, owner=owner, serves=serves)
        self.counter(f"{RESOURCE}saturated_seconds_total", full, resource=name, owner=owner, serves=serves)
        if runqueue is not None:
            self.counter(f"{RESOURCE}runqueue_seconds_total", runqueue, resource=name, owner=owner)
        return self.gauge(f"{RESOURCE}threshold_ratio", threshold, resource=name)

    def cpu(self, busy: float) -> Self:
        """Make the host's CPUs busy."""
        return self.resource("cpu", "host", busy, "cpu,runqueue")

    def threads(self, owner: str, cpu: float, runqueue: float, role: str = "all") -> Self:
        """Make all threads of an owner use CPUs and wait for them."""
        self.counter("pinchpoint_thread_cpu_seconds_total", cpu, role=role, owner=owner)
        return self.counter("pinchpoint_thread_runqueue_seconds_total", runqueue, role=role, owner=owner)

    def works(
        self,
        waits: Mapping[str, float],
        benchmark: str = "fio",
        run: str = "r",
        owner: str = "fio",
        client: str = "",
        device: str = "",
        bdi: str = "",
    ) -> Self:
        """Add a benchmark's processes: a number of them in each wait class."""
        names = {"benchmark": benchmark, "run": run}
        for wait, share in waits.items():
            self.counter("pinchpoint_workload_seconds_total", share, **names, wait=wait)
        self.gauge("pinchpoint_workload_owner_info", 1, **names, owner=owner)
        if client:
            self.gauge("pinchpoint_workload_client_info", 1, **names, client=client)
        if device or bdi:
            self.device(owner, device, bdi)
        return self

    def device(self, owner: str, device: str, bdi: str = "") -> Self:
        """Make an owner hold files open on a disk."""
        return self.gauge("pinchpoint_storage_device_info", 1, owner=owner, device=device, bdi=bdi)

    def stuck(self, daemon: str) -> Self:
        """Make a daemon stuck."""
        self.gauge("pinchpoint_ceph_socket_problem_info", 1, daemon=daemon, reason="stopped")
        return self.gauge("pinchpoint_ceph_daemon_stuck", 1, daemon=daemon)

    def pair(self) -> tuple[Snapshot, Snapshot]:
        """Return the snapshots at the beginning and at the end."""
        return Snapshot(START, self._before), Snapshot(START + self.seconds, self._after)


def snapshots(**hosts: MadeHost) -> tuple[Snapshots, Snapshots]:
    """Return the snapshots of several hosts."""
    pairs = {name: host.pair() for name, host in hosts.items()}
    return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}
