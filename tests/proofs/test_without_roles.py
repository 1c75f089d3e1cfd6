"""Faults of a Ceph cluster, judged by rules that know neither Ceph nor what helps a benchmark: who wakes whom is left.

A process is named if of all others its threads are responsible for most of what the benchmark waits for. Threads of the
kernel are left out: where they work for a process, a chain ends at them.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import pytest

import pinchpoint
from lab import loads
from lab.cluster import Cluster
from pinchpoint.waits.chain import KERNEL, SELF
from proofs import test_ceph_faults as faults
from proofs.faults import cgroup, quota
from proofs.observed import Observed, Watch, watching
from proofs.test_ceph_faults import rested, shared

__all__ = ["rested", "shared"]

GROUP = "Rules without Ceph"
SECONDS = 20
"""Of a load: at least 16 s of it are judged, so that there is a graph."""
KNOWS_CEPH = re.compile(r'"(?:ceph-[a-z]+|cephfs-client|sheepdog)"|"benchmark_helper"')
PROCESSES = {"mds": "ceph-mds", "osd": "ceph-osd"}
MDS, OSD = PROCESSES.values()

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("rested")]


def without_ceph(roles: str) -> str:
    """Return the rules of roles.toml that name neither a class of Ceph's processes nor helpers of a benchmark."""
    entries = re.split(r"(?m)^(?=\[)", roles)
    return "".join(entry for entry in entries if not KNOWS_CEPH.search(entry))


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """An exporter without these rules; scenarios that start one of their own get the same."""
    place = tmp_path_factory.mktemp("without_roles")
    package = place / "pinchpoint"
    shutil.copytree(Path(pinchpoint.__file__).parent, package)
    rules = package / "threads" / "roles.toml"
    rules.write_text(without_ceph(rules.read_text()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place))
        patch.setattr(faults, "SECONDS", SECONDS)
        patch.setattr(faults, "name_of", lambda watch, cluster, daemon: PROCESSES[daemon.partition(".")[0]])
        patch.setattr(faults, "wait_for", lambda watch, metric, **labels: None)
        with watching(place) as found:
            yield found


def responsible(found: Observed) -> dict[str, float]:
    """Return the shares of a benchmark's time for which each other process is responsible."""
    shares: defaultdict[str, float] = defaultdict(float)
    graph = found.verdict.graph
    for step in graph.steps if graph else ():
        if step.node.owner != SELF.owner:
            shares[step.node.owner] += step.share
    return shares


@pytest.mark.parametrize(
    ("scenario", "process"),
    [
        ("many_clients_on_one_mds_lock", MDS),
        ("small_writes_to_an_osd", OSD),
        ("a_metadata_pool_that_takes_its_time", OSD),
        ("messages_that_arrive_late", OSD),
        ("small_writes_through_one_ceph_fuse", "ceph-fuse"),
        ("an_mds_under_a_cpu_quota", MDS),
        ("an_osd_under_a_cpu_quota", OSD),
        ("a_limit_of_block_io_on_an_osd_that_its_disk_does_not_show", OSD),
    ],
)
def test_a_process_is_named_by_who_wakes_whom(
    watch: Watch, shared: Cluster, measured: MutableMapping[str, str], scenario: str, process: str
) -> None:
    shares: dict[str, float] = {}
    getattr(faults, f"test_{scenario}")(watch, shared, lambda truth, found: shares.update(responsible(found)))

    assert most_responsible(shares, measured) == process


def most_responsible(shares: dict[str, float], measured: MutableMapping[str, str]) -> str:
    """Return the process that is responsible for most of the time."""
    names = sorted(shares, key=lambda name: -shares[name])
    measured.update({name: f"{shares[name]:.0%}" for name in names[:3]})
    return next((name for name in names if name != KERNEL), "")


def test_an_nfs_server_is_named_by_who_wakes_whom(
    watch: Watch, shared: Cluster, measured: MutableMapping[str, str]
) -> None:
    if not loads.has_ganesha():
        pytest.skip("NFS-Ganesha is not installed")
    with cgroup("cpu", quota(0.04)) as group, loads.ganesha(shared) as server:
        (group / "cgroup.procs").write_text(str(server.pid))
        found = watch.judge(faults.for_a_while(*server.client_command()))

    assert most_responsible(responsible(found), measured) == "ganesha.nfsd"
