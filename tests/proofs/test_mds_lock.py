"""An MDS whose one lock is full while each of its threads, and the process, look idle."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab import loads
from lab.cluster import Cluster
from lab.locks import lock_watch
from lab.observer import Observer
from patience import patience
from pinchpoint.wire.sources import TargetSource
from polling import until

GROUP = "Alerts"
CLIENTS = 12
LOOKS = 50
"""Readings of the lock between two queries for the alert."""
ERROR = 0.1
"""Tolerated error of a share of several hundred readings: their timing depends on the load of the CPUs."""
WATCHED_SECONDS = 30.0
BUSY = "pinchpoint_resource_busy_seconds_total"
HELD, OBSERVED = "pinchpoint_lock_held_seconds_total", "pinchpoint_lock_observed_seconds_total"


@pytest.fixture(scope="module")
def two_cpus(observer: Observer) -> Iterator[None]:
    """Make everything that is started from here on share two CPUs: the lock fills when its takers wait for a CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(scope="module")
def shared(two_cpus: None, module_clusters: Callable[..., Cluster]) -> Cluster:
    return module_clusters()


class Look(NamedTuple):
    """What the kernel and the exporter report about an MDS at one time, in seconds since it began."""

    time: float
    used: dict[tuple[int, str], float]
    """CPU time by TID and name of the thread."""
    busy: float
    """Busy time of the lock."""
    held: float
    """Time for which the exporter saw it held."""
    observed: float
    """Time for which the exporter knew its state."""


def look(observer: Observer, cluster: Cluster) -> Look:
    used = {}
    for task in Path(f"/proc/{cluster.daemon('mds.a').pid}/task").iterdir():
        comm, times = ((task / name).read_text() for name in ("comm", "schedstat"))
        used[int(task.name), comm.strip()] = int(times.split()[0]) / 1e9
    found = TargetSource(f"{observer.stack.urls['pinchpoint']}/metrics", timeout=patience(10)).snapshot()
    owners = {"mds.a", f"mds.a@{cluster.fsid[:8]}"}  # its name changes when a second cluster appears

    def total(name: str) -> float:
        shown = ((labels["resource"], labels["owner"], value) for labels, value in found.series(name))
        return sum(value for resource, owner, value in shown if resource == "mds_lock" and owner in owners)

    return Look(time.monotonic(), used, total(BUSY), total(HELD), total(OBSERVED))


def test_twelve_clients_fill_the_lock_of_an_mds_and_none_of_its_threads(
    shared: Cluster, observer: Observer, measured: MutableMapping[str, str]
) -> None:
    held: list[bool] = []

    def alerts(name: str = "MdsLockSaturated") -> list[dict[str, Any]]:
        return observer.alerts(alertname=name, owner=observer.daemon(shared, "mds.a"))

    def is_received() -> list[dict[str, Any]]:
        held.append(is_held())
        return alerts() if len(held) % LOOKS == 0 else []

    assert alerts() == []
    with loads.metadata(shared, "storm", processes=CLIENTS, nice=5) as load:
        load.wait_ready()
        with lock_watch(shared.daemon("mds.a")) as is_held:
            before = look(observer, shared)
            received = until(90, is_received, pause=0.02)
            after = look(observer, shared)
        others = alerts("MdsProcessBusyNoLock")
    gone = until(60, lambda: not alerts(), pause=0.5)

    seconds = after.time - before.time
    threads = {thread: (cpu - before.used.get(thread, 0.0)) / seconds for thread, cpu in after.used.items()}
    share = sum(held) / len(held)
    busy = (after.busy - before.busy) / seconds
    shown = (after.held - before.held) / (after.observed - before.observed)
    measured["lock held"] = f"{share:.0%} of {len(held)} looks"
    measured["shown as held"] = f"{shown:.0%}"
    measured["busy"] = f"{busy:.0%}"
    measured["busiest thread"] = f"{max(threads.values()):.0%} of a CPU"
    assert received
    assert share > 0.5
    assert max(threads.values()) < 0.5
    assert busy > share - ERROR
    assert abs(shown - share) < ERROR
    assert others == []
    assert gone


@pytest.mark.parametrize(
    "clients", [pytest.param(1, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long), 6]
)
def test_an_mds_lock_is_shown_as_held_for_as_long_as_it_is(
    shared: Cluster, observer: Observer, measured: MutableMapping[str, str], clients: int
) -> None:
    with ExitStack() as stack:
        # With few clients nobody may wait for the lock, by which it is found.
        with loads.metadata(shared, "storm", processes=CLIENTS, nice=5) as load:
            load.wait_ready()
            is_held = stack.enter_context(lock_watch(shared.daemon("mds.a")))
            assert until(60, lambda: look(observer, shared).observed > 0, pause=0.5)
        with loads.metadata(shared, "storm", processes=clients, nice=5) as load:
            load.wait_ready()
            before = look(observer, shared)
            held = []
            while time.monotonic() - before.time < WATCHED_SECONDS:
                held.append(is_held())
                time.sleep(0.01)
            after = look(observer, shared)

    share = sum(held) / len(held)
    shown = (after.held - before.held) / (after.observed - before.observed)
    measured["lock held"] = f"{share:.0%} of {len(held)} looks"
    measured["shown as held"] = f"{shown:.0%}"
    measured["busy"] = f"{(after.busy - before.busy) / (after.time - before.time):.0%}"
    assert abs(shown - share) < ERROR
