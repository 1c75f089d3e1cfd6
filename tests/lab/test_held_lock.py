"""The lock of a real MDS: found while clients make it wait, and read from then on."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import loads
from lab.cluster import Cluster
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host
from pinchpoint.probes.locks import Locks
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.roles import load_roles
from polling import until

CLIENTS = 12


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Locks]:
    procfs, roles = Path("/proc"), load_roles()
    host = Host(procfs, Path("/sys"), Path("/"), roles, Processes(procfs, roles), RunDirectory(tmp_path))
    host.activity.note(time.monotonic(), math.inf)
    found = Locks(host)
    yield found
    found.close()


def seconds(probe: Locks, what: str) -> float:
    found = Snapshot.of(0, probe.points()).series(f"pinchpoint_lock_{what}_seconds_total")
    return sum(value for labels, value in found if labels["resource"] == "mds_lock")


def sampled(probe: Locks, what: str) -> float:
    """Let the probe look once more, and return what it has then."""
    probe.sample(time.monotonic())
    return seconds(probe, what)


def test_the_lock_of_a_busy_mds_is_found_and_held(looked_at: Cluster, probe: Locks) -> None:
    with loads.metadata(looked_at, "storm", processes=CLIENTS) as load:
        load.wait_ready()
        assert until(60, lambda: sampled(probe, "held") > 0, pause=0.05)
    assert 0 <= seconds(probe, "held") <= seconds(probe, "observed")


def test_a_lock_that_nobody_needs_is_free(looked_at: Cluster, probe: Locks) -> None:
    with loads.metadata(looked_at, "storm", processes=CLIENTS) as load:
        load.wait_ready()
        assert until(60, lambda: sampled(probe, "observed") > 0, pause=0.05)

    def is_free() -> bool:
        held, observed = seconds(probe, "held"), seconds(probe, "observed")
        return sampled(probe, "observed") > observed and seconds(probe, "held") == held

    assert until(30, is_free, pause=0.05)
