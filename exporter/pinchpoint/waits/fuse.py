"""Mounts of ceph-fuse: which process serves a benchmark, and how to divide waits."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from pinchpoint.benchmarks.tree import Tree
from pinchpoint.ceph.asker import Asker
from pinchpoint.ceph.waiting import ClientWaits, MountReader
from pinchpoint.threads.processes import Process, Processes
from pinchpoint.threads.task_source import TaskUse
from pinchpoint.units import SECONDS_PER_NANOSECOND
from pinchpoint.waits.datafiles import DataPlace
from pinchpoint.waits.division import MountUse, fuse_shares

__all__ = ["CEPH_FUSE", "FuseMounts"]

CEPH_FUSE = "ceph-fuse"
"""Name of the process, of its owner label, and of the threads that serve its users."""
MAX_BLOCKS = 4
"""Blocks over which the wait for a mount is divided: requests count when they end."""


class FuseMounts:
    """The processes that serve the mounts of workloads, by pid."""

    def __init__(self, procfs: Path, rootfs: Path, processes: Processes, asker: Asker | None = None) -> None:
        self._procfs = procfs
        self._processes = processes
        self._clients = ClientWaits(procfs, rootfs, MountReader, asker)
        self._used: dict[int, MountUse] = {}
        self._blocks: dict[int, deque[MountUse]] = {}

    def serving(self, place: DataPlace, now: float) -> int | None:
        """Return the ceph-fuse behind a mount; None if none runs here, or it can't be identified.

        `now` is a monotonic time in seconds.
        """
        tree = Tree(self._procfs, self._processes.everything(now))
        found = [pid for pid, process in self._processes.current(now).items() if process.comm == CEPH_FUSE]
        if len(found) > 1:
            point = os.path.normpath(place.point)
            found = [pid for pid in found if any(os.path.normpath(word) == point for word in tree.argv(pid)[1:])]
        return found[0] if len(found) == 1 else None

    def follow(self, pids: Iterable[int], now: float) -> None:
        """Follow these processes and no others; `now` is a monotonic time in seconds."""
        tasks = self._processes.everything(now)
        known = [Process(pid, tasks[pid].start, CEPH_FUSE, "", CEPH_FUSE) for pid in set(pids) if pid in tasks]
        self._clients.follow(known, now)

    def ran(self, use: TaskUse) -> None:
        """Add what a thread of such a process used."""
        mount = self._used.setdefault(use.task.tgid, MountUse())
        seconds = (use.run + use.wait) * SECONDS_PER_NANOSECOND
        mount.working += seconds
        if use.task.comm == CEPH_FUSE:
            mount.workers += seconds

    def shares(self, waited: Mapping[int, float], span: float, now: float) -> dict[int, dict[str, float]]:
        """Return how the wait for each mount divides, as shares by class.

        `waited` is the time that processes waited for each in this block, `span` its length; `now` is a monotonic time.
        A newly followed mount is left out: nothing is known of it yet.
        """
        shares: dict[int, dict[str, float]] = {}
        blocks: dict[int, deque[MountUse]] = {}
        for pid, looked in self._clients.looked(now).items():
            use = self._used.pop(pid, MountUse())
            use.waited, use.span = waited.get(pid, 0.0), span
            if looked is None:
                use.blind = True
            else:
                use.looks, use.active, use.requests, use.data, use.blocked, use.stuck = looked
            blocks[pid] = self._blocks.get(pid) or deque(maxlen=MAX_BLOCKS)
            blocks[pid].append(use)
            shares[pid] = fuse_shares(sum(blocks[pid], MountUse()))
        self._blocks = blocks
        return shares

    def close(self) -> None:
        """End the threads that ask."""
        self._clients.close()
