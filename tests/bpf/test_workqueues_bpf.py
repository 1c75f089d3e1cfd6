"""Times of workqueue workers from BPF, on this kernel: each is charged what it used, even while it works."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from descriptors import bpf_ids, exist
from machine import Machine
from pinchpoint.bpf import libbpf
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.workqueues import TracedSource
from pinchpoint.threads.work_source import WorkUse
from polling import until
from writeback import device_number, dirtying, worker_times

PROC = Path("/proc")
MILLISECOND = 1_000_000
PERCPU_HASH = 5
"""BPF_MAP_TYPE_PERCPU_HASH, include/uapi/linux/bpf.h."""


def differences(after: dict[int, int], before: dict[int, int]) -> dict[int, int]:
    return {worker: run - before.get(worker, 0) for worker, run in after.items()}


@pytest.fixture
def source() -> Iterator[TracedSource]:
    try:
        source = TracedSource(PROC)
    except BpfError as error:
        pytest.skip(str(error))
    yield source
    source.close()


def test_every_worker_is_charged_what_it_used_and_writeback_belongs_to_its_device(
    source: TracedSource, disk_path: Path
) -> None:
    number = device_number(disk_path)
    longest_before = worker_times()
    source.sample(0.0)
    shortest_before = worker_times()
    by_worker: dict[int, int] = defaultdict(int)
    by_work: dict[str, int] = defaultdict(int)

    def look() -> None:
        for worker, work, run, _ in source.sample(0.0):
            by_worker[worker] += run
            by_work[work] += run

    with dirtying(disk_path / "file"):
        end = time.monotonic() + 3
        while time.monotonic() < end:
            time.sleep(0.1)
            look()
    least = differences(worker_times(), shortest_before)
    look()
    most = differences(worker_times(), longest_before)

    assert sum(least.values()) > 50 * MILLISECOND, "the load was too small to be measured"
    assert 0.95 * sum(least.values()) <= sum(by_worker.values()) <= 1.05 * sum(most.values())
    for worker in sorted(least, key=lambda worker: -least[worker])[:3]:
        # Less than a tick: the time for going to sleep, and for other work that began meanwhile.
        tick = 4 * MILLISECOND
        assert 0.95 * least[worker] - tick <= by_worker[worker] <= 1.05 * most.get(worker, math.inf) + tick
    assert by_work[f"flush-{number}"] > 0
    # Only work for a device that is going away has no device, and other tests unmount theirs meanwhile.
    assert by_work["writeback"] < by_work[f"flush-{number}"]


def test_a_work_that_goes_on_is_charged_while_it_does(source: TracedSource) -> None:
    """The kernel takes a tenth of a second to release a large map, in one work item."""
    library = ctypes.CDLL(libbpf.LIBRARY)
    entries = min(2_000_000, 8_000_000 // (os.cpu_count() or 1))
    if (large := library.bpf_map_create(PERCPU_HASH, b"large", 4, 8, entries, None)) < 0:
        pytest.skip("no memory for a large map")
    source.sample(0.0)
    os.close(large)
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        time.sleep(0.01)
        for worker, work, run, _ in source.sample(0.0):
            if run > MILLISECOND:
                found[worker, work].append(run)
    pieces = max(found.values(), key=sum, default=[])
    if sum(pieces) < 50 * MILLISECOND:
        pytest.skip("this kernel releases it faster")

    assert len(pieces) >= 3


def test_what_happened_before_is_nobodys(source: TracedSource) -> None:
    alive = sum(worker_times().values())

    assert sum(use.run for use in source.sample(0.0)) < alive / 10 + 100 * MILLISECOND


def test_nothing_is_told_twice(source: TracedSource) -> None:
    before = 0

    def sampled() -> list[WorkUse]:
        nonlocal before
        before = sum(worker_times().values())
        return list(source.sample(0.0))

    assert until(20, sampled), "no worker has worked in 20 s"
    earlier = before
    told = sum(use.run for use in sampled())
    told += sum(use.run for use in sampled())

    assert told <= sum(worker_times().values()) - earlier + 50 * MILLISECOND


def test_nothing_stays_in_the_kernel(source: TracedSource) -> None:
    ids = bpf_ids()
    assert len(ids["link"]) >= 3
    assert exist(ids)
    source.close()

    assert until(20, lambda: not exist(ids))


def test_the_procfs_of_another_machine_is_not_this_kernels(machine: Machine) -> None:
    machine.process(10, "fio")
    with pytest.raises(BpfError, match="another kernel's"):
        TracedSource(machine.procfs)


def test_a_pid_namespace_of_its_own_shows_no_workers() -> None:
    code = "from pathlib import Path; from pinchpoint.bpf.workqueues import TracedSource; TracedSource(Path('/proc'))"
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("may not make a PID namespace")
    done = subprocess.run([*inside, sys.executable, "-c", code], capture_output=True, text=True)

    assert "procfs shows a PID namespace without the kernel's workers" in done.stderr
