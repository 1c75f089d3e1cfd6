from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.mpi import is_first_rank, rank, unprefixed
from pinchpoint.benchmarks.tree import Tree
from recorder.capture import Change
from recorder.stage import Stage

COMMS = {"ior"}


def tree(directory: Path, parent: str = "mpirun", environment: dict[int, bytes] | None = None) -> Tree:
    """Return a launcher (1) with three ranks (10, 11, 12); the second has a child (20) of the same name."""
    stage = Stage(directory, 1e9)
    stage.change(Change(0.0, 1, 0, parent))
    for pid, ppid in ((10, 1), (11, 1), (12, 1), (20, 11)):
        stage.change(Change(0.1, pid, ppid, "ior"))
    for pid, content in (environment or {}).items():
        (stage.procfs / str(pid) / "environ").write_bytes(content)
    return stage.tree(1.0)


def leaders(found: Tree) -> list[int]:
    return [pid for pid in (10, 11, 12, 20) if pid in found.processes and is_first_rank(found, pid, COMMS)]


@pytest.mark.parametrize(
    "name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"]
)
def test_rank_zero_speaks_for_the_run(tmp_path: Path, name: str) -> None:
    environment = {
        pid: f"HOME=/root\0{name}={number}\0".encode() for number, pid in ((2, 10), (0, 11), (1, 12), (0, 20))
    }
    found = tree(tmp_path, environment=environment)
    assert [rank(found, pid) for pid in (10, 11, 12)] == [2, 0, 1]
    assert leaders(found) == [11]


def test_nobody_speaks_where_rank_zero_is_elsewhere(tmp_path: Path) -> None:
    found = tree(tmp_path, "orted", {pid: b"OMPI_COMM_WORLD_RANK=%d\0" % pid for pid in (10, 11, 12)})
    assert leaders(found) == []


def test_without_ranks_the_oldest_child_of_the_launcher_speaks(tmp_path: Path) -> None:
    assert leaders(tree(tmp_path)) == [10]


@pytest.mark.parametrize("parent", ["orted", "prted", "slurmstepd", "hydra_pmi_proxy"])
def test_without_ranks_nobody_speaks_on_other_hosts(tmp_path: Path, parent: str) -> None:
    assert leaders(tree(tmp_path, parent)) == []


def test_below_a_proxy_the_oldest_speaks_only_beside_the_launcher(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1e9)
    for pid, ppid, comm in ((1, 0, "mpirun.mpich"), (2, 1, "hydra_pmi_proxy"), (10, 2, "ior"), (11, 2, "ior")):
        stage.change(Change(0.0, pid, ppid, comm))
    assert leaders(stage.tree(1.0)) == [10]


def test_below_slurmstepd_the_oldest_speaks_beside_the_srun_that_is_above_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1e9)
    for pid, ppid, comm in ((1, 0, "srun"), (2, 1, "slurmstepd"), (10, 2, "ior"), (11, 2, "ior")):
        stage.change(Change(0.0, pid, ppid, comm))
    assert leaders(stage.tree(1.0)) == [10]


@pytest.mark.parametrize("value", [b"", b"-1", b"one", b"1" * 5000, "٣".encode()])
def test_what_is_no_rank_is_passed_over(tmp_path: Path, value: bytes) -> None:
    found = tree(tmp_path, environment={10: b"PMIX_RANK=" + value + b"\0SLURM_PROCID=3\0"})
    assert rank(found, 10) == 3


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("write  480.44", "write  480.44"),
        ("[1,0]<stdout>:write  480.44", "write  480.44"),
        ("Sat Nov 21 00:20:17 2026<stdout>:write  480.44", "write  480.44"),
        ("Sat Nov 21 00:20:17 2026[1,0]<stderr>:write  480.44", "write  480.44"),
        ("[prterun-node-1.example-4711@1,12]<stdout>: write  480.44", "write  480.44"),
        ("[0] write  [0] 480.44", "write  480.44"),
        (" 0: write  480.44", "write  480.44"),
        ("12: write  480.44", "write  480.44"),
        ("xfersize: 12 MiB", "xfersize: 12 MiB"),
        ("[RESULT] x", "[RESULT] x"),
    ],
)
def test_prefixes_of_launchers_go(line: str, bare: str) -> None:
    assert unprefixed(line) == bare


@given(st.text())
def test_any_line_has_a_bare_one(line: str) -> None:
    assert len(unprefixed(line)) <= len(line)
