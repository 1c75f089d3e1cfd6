"""Times of workqueue workers from BPF: the kernel's tracepoints say which work began and ended (workqueues.bpf.c)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from pinchpoint.bpf.libbpf import BpfError, load
from pinchpoint.bpf.tasks import FIRST_NAMESPACE, pid_namespace
from pinchpoint.host.procfs import decode
from pinchpoint.threads.work_source import WorkUse

__all__ = ["TracedSource"]

RECORD = struct.Struct("=IIQQ")
"""``struct record`` of workqueues.bpf.c: worker, queue, run, wait."""
NAME_BYTES = 32
"""Bytes of a queue's name."""
REMEMBERED_WORKERS, REMEMBERED_WORKERS_PER_CPU = 1024, 32
"""Workers that are remembered. Each CPU has two pools, of two idle workers at least (init_cpu_worker_pool and
MAX_IDLE_WORKERS_RATIO, kernel/workqueue.c)."""


class TracedSource:
    """Exact at the end of every work, and at a tick for a work that goes on. Raises BpfError where it does not work.

    The kernel keeps what each worker used for each queue until it is asked; a call costs what has run since then.
    """

    name = "bpf"
    reason = ""
    interval: float | None = None

    def __init__(self, procfs: Path) -> None:
        if pid_namespace(procfs) != FIRST_NAMESPACE:
            raise BpfError("procfs shows a PID namespace without the kernel's workers")
        self._names: dict[int, str] = {}
        workers = REMEMBERED_WORKERS + REMEMBERED_WORKERS_PER_CPU * (os.cpu_count() or 1)
        self._loaded = load("workqueues", attach=("begin", "end", "look"), entries={"workers": workers})
        try:
            self._records = memoryview(self._loaded.memory("records"))
            self._queues = memoryview(self._loaded.memory("names"))
            with open(self._loaded.iterator(link=2), "rb", buffering=0) as workers_there:
                workers_there.read()
        except BaseException:
            self.close()
            raise

    def sample(self, now: float) -> Iterable[WorkUse]:
        """Return what was used since the last call."""
        found = self._loaded.run("collect")
        return [
            WorkUse(worker, self._name(queue), run, wait)
            for worker, queue, run, wait in RECORD.iter_unpack(self._records[: found * RECORD.size])
        ]

    def _name(self, queue: int) -> str:
        """Return the name of a queue; its number never changes."""
        if (name := self._names.get(queue)) is None:
            raw = bytes(self._queues[queue * NAME_BYTES : (queue + 1) * NAME_BYTES])
            name = self._names[queue] = decode(raw.partition(b"\0")[0])
        return name

    def close(self) -> None:
        """Remove the programs and maps from the kernel."""
        for memory in ("_records", "_queues"):
            if hasattr(self, memory):
                getattr(self, memory).release()
        self._loaded.close()
