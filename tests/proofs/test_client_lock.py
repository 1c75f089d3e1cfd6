"""The lock of a CephFS client in user space, and for how much of the time it is held."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, MutableMapping

import pytest

from lab.cluster import Cluster
from lab.locks import mutex_watch
from patience import patience
from pinchpoint.wire.sources import TargetSource
from polling import until
from proofs.observed import Watch

GROUP = "Who makes whom wait"
ERROR = 0.1
"""Tolerated error of a share of several hundred readings: their timing depends on the load of the CPUs."""
WATCHED_SECONDS = 20.0
LONGEST_SECONDS = 600


def seconds(watch: Watch, what: str) -> float:
    """Return for how long client_lock was observed or held so far."""
    found = TargetSource(watch.address, timeout=patience(10)).snapshot()
    return sum(
        value
        for labels, value in found.series(f"pinchpoint_lock_{what}_seconds_total")
        if labels["resource"] == "client_lock"
    )


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_client_lock_is_shown_as_held_for_as_long_as_it_is(
    watch: Watch, module_clusters: Callable[..., Cluster], measured: MutableMapping[str, str], jobs: int
) -> None:
    def load(path: str, number: int) -> subprocess.Popen[bytes]:
        fio = ["fio", "--name=job", f"--directory={path}", f"--numjobs={number}", "--ioengine=psync", "--rw=write"]
        fio += ["--bs=4k", "--size=64m", "--time_based", f"--runtime={LONGEST_SECONDS}"]
        return subprocess.Popen(fio, stdout=subprocess.DEVNULL)

    with module_clusters().mount() as mount:
        # With few jobs nobody may wait for the lock, by which it is found.
        with load(str(mount.path), 4) as many, mutex_watch(mount.pid) as is_held:
            assert until(60, lambda: seconds(watch, "observed") > 0, pause=0.5)
            many.terminate()
        with load(str(mount.path), jobs) as some:
            time.sleep(1.0)
            before = {what: seconds(watch, what) for what in ("observed", "held")}
            began, held = time.monotonic(), []
            while time.monotonic() - began < WATCHED_SECONDS:
                held.append(is_held())
                time.sleep(0.01)
            gained = {what: seconds(watch, what) - then for what, then in before.items()}
            some.terminate()

    share, shown = sum(held) / len(held), gained["held"] / gained["observed"]
    measured["lock held"] = f"{share:.0%} of {len(held)} looks"
    measured["shown as held"] = f"{shown:.0%}"
    assert abs(shown - share) < ERROR
