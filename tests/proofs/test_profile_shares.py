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
OSD_SAMPLES = 400
"""A share of 10 % is then right to within 3 points, 19 times of 20."""
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
ROOM = {"osd": {"bluestore_block_size": "24Gi"}}
"""Options of an OSD that large writes do not fill in the time of a proof; its file is sparse."""
TCMALLOC = "/usr/lib/*/libtcmalloc_minimal.so.4"
MIN_FALL = 0.05


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


def costs_of_writes(cluster: Cluster, block: int = 64 << 10) -> Mapping[str, float]:
    """Return what the threads of an OSD spend CPU time on while somebody writes blocks of so many bytes."""
    pid = cluster.daemon("osd.0").pid
    with loads.rados_bench(cluster, block=block, threads=16):
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
    rises = changes(before, costs_of_writes(cluster), cost, measured)

    assert rises.get(cost, 0.0) > MIN_RISE, rises
    assert max(rises, key=lambda name: rises[name]) == cost


def changes(
    before: Mapping[str, float], after: Mapping[str, float], cost: str, measured: MutableMapping[str, str]
) -> Mapping[str, float]:
    """Return how much larger each share is after a change, and say how large that of one class was and is."""
    measured[f"{cost} without"] = f"{before.get(cost, 0.0):.0%}"
    measured[f"{cost} with"] = f"{after.get(cost, 0.0):.0%}"
    return {name: after.get(name, 0.0) - before.get(name, 0.0) for name in before.keys() | after.keys()}


@pytest.mark.long
def test_connections_that_are_encrypted_show_as_encryption(
    clusters: Callable[..., Cluster], measured: MutableMapping[str, str]
) -> None:
    plain, secure = (
        costs_of_writes(clusters(store="bluestore", secure=secure, options=ROOM), block=1 << 20)
        for secure in (False, True)
    )
    rises = changes(plain, secure, "encryption", measured)

    assert rises["encryption"] > MIN_RISE, rises
    assert max(rises, key=lambda name: rises[name]) == "encryption"


@pytest.mark.long
def test_tcmalloc_in_place_of_glibcs_malloc_lowers_the_allocators_share(
    clusters: Callable[..., Cluster], measured: MutableMapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = next(Path("/").glob(TCMALLOC[1:]), None)
    if library is None:
        pytest.skip(f"needs {TCMALLOC}; `make setup` as root installs it")
    before = costs_of_writes(clusters(store="bluestore"), block=4 << 10)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    rises = changes(before, costs_of_writes(clusters(store="bluestore"), block=4 << 10), "allocator", measured)

    assert rises["allocator"] < -MIN_FALL, rises
