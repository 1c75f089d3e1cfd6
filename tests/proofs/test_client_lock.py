"""The lock of a CephFS client in user space, and for how much of the time it is held."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.locks import client_lock_watch
from patience import patience
from pinchpoint.wire.sources import TargetSource
from polling import until
from proofs.observed import Watch

GROUP = "Who makes whom wait"
ERROR = 0.1
"""Tolerated error of a share of several hundred readings: their timing depends on the load of the CPUs."""
WATCHED_SECONDS = 20.0
LONGEST_SECONDS = 600


@contextmanager
def writing(directory: Path, jobs: int) -> Iterator[None]:
    """Write small blocks during the block."""
    fio = ["fio", "--name=job", f"--directory={directory}", f"--numjobs={jobs}", "--ioengine=psync", "--rw=write"]
    fio += ["--bs=4k", "--size=64m", "--time_based", f"--runtime={LONGEST_SECONDS}"]
    with subprocess.Popen(fio, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def seconds(watch: Watch, what: str) -> float:
    """Return for how long client_lock was observed or held so far."""
    found = TargetSource(watch.address, timeout=patience(10)).snapshot()
    return sum(
        value
        for labels, value in found.series(f"pinchpoint_lock_{what}_seconds_total")
        if labels["resource"] == "client_lock"
    )


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.long), 4])
def test_a_client_lock_is_shown_as_held_for_as_long_as_it_is(
    watch: Watch, module_clusters: Callable[..., Cluster], measured: MutableMapping[str, str], jobs: int
) -> None:
    with module_clusters().mount() as mount, ExitStack() as stack:
        # With few jobs nobody may wait for the lock, by which it is found.
        with writing(mount.path, 4):
            is_held = stack.enter_context(client_lock_watch(mount.pid))
            assert until(90, lambda: seconds(watch, "observed") > 0, pause=0.5)
        with writing(mount.path, jobs):
            time.sleep(1.0)
            before = {what: seconds(watch, what) for what in ("observed", "held")}
            began, held = time.monotonic(), []
            while time.monotonic() - began < WATCHED_SECONDS:
                held.append(is_held())
                time.sleep(0.01)
            gained = {what: seconds(watch, what) - then for what, then in before.items()}

    share, shown = sum(held) / len(held), gained["held"] / gained["observed"]
    measured["lock held"] = f"{share:.0%} of {len(held)} looks"
    measured["shown as held"] = f"{shown:.0%}"
    assert abs(shown - share) < ERROR
