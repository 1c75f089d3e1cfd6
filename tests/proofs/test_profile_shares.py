"""The profile of threads against what they do: a program with known shares, and an OSD with a cost switched on.

The program measures its shares by the clock of its own thread; samples are taken meanwhile, all of it at 49 Hz.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

import pytest

from lab import loads
from lab.cluster import Cluster
from polling import until
from proofs.sampled import Sampled

GROUP = "Profile of full threads"
SOURCE = Path(__file__).parents[1] / "loads" / "profiled.cc"
CPU_SECONDS = 30
"""So many give 1,470 samples: a share of 30 % is then right to within 2.4 points, 19 times of 20."""
MAX_ERROR = 0.05
OSD_SAMPLES = 200
"""A share of 10 % is then right to within 4 points, 19 times of 20."""
MIN_RISE = 0.1
SWITCHES: Mapping[str, Mapping[str, str]] = {
    "logging": {"debug_osd": "20/20"},
    "compression": {
        "bluestore_compression_algorithm": "zlib",
        "bluestore_compression_min_blob_size": "8192",
        "bluestore_compression_mode": "force",
    },
}
"""Options of an OSD that switch a cost on, by its class."""
SETTLED_SECONDS = 2.0


def test_five_classes_have_their_shares_within_5_points(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    subprocess.run([compiler, "-O2", "-fomit-frame-pointer", "-o", tmp_path / "profiled", SOURCE], check=True)
    with subprocess.Popen(
        [tmp_path / "profiled", "shares", str(CPU_SECONDS)], stdout=subprocess.PIPE, text=True
    ) as run:
        time.sleep(0.2)  # until its libraries are mapped
        with Sampled(run.pid, [run.pid]) as sampled:
            while run.poll() is None:
                sampled.read()
                time.sleep(0.1)
        assert run.stdout is not None
        truth = {name: float(share) for name, share in (line.split() for line in run.stdout)}

    shares = {name: sampled.shares.get(name, 0.0) for name in truth}
    assert {name: share for name, share in shares.items() if abs(share - truth[name]) > MAX_ERROR} == {}, truth


def costs_of_writes(cluster: Cluster) -> Mapping[str, float]:
    """Return what the threads of an OSD spend CPU time on while somebody writes blocks of 64 KiB."""
    pid = cluster.daemon("osd.0").pid
    with loads.rados_bench(cluster, block=64 << 10, threads=16):
        time.sleep(SETTLED_SECONDS)
        tids = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        with Sampled(pid, tids) as sampled:
            assert until(60, lambda: sampled.read() >= OSD_SAMPLES, pause=0.2), sampled.read()
            return sampled.shares


@pytest.mark.parametrize("cost", SWITCHES)
def test_a_cost_that_is_switched_on_in_an_osd_shows_in_its_class(
    clusters: Callable[..., Cluster], measured: MutableMapping[str, str], cost: str
) -> None:
    cluster = clusters(store="bluestore")
    before = costs_of_writes(cluster)
    for name, value in SWITCHES[cost].items():
        cluster.set_option("osd.0", name, value)
    after = costs_of_writes(cluster)

    measured[f"{cost} without"] = f"{before.get(cost, 0.0):.0%}"
    measured[f"{cost} with"] = f"{after.get(cost, 0.0):.0%}"
    rises = {name: share - before.get(name, 0.0) for name, share in after.items()}
    assert rises.get(cost, 0.0) > MIN_RISE, rises
    assert max(rises, key=lambda name: rises[name]) == cost
