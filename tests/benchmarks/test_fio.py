from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.base import Tree, TreeProcess
from pinchpoint.benchmarks.fio import Fio, documents, parse_job_file, plan, results_by_job

FIXTURES = Path(__file__).parent.parent / "fixtures" / "fio"

# The options that the recorded output names for the recorded steps.fio.
STEPS = """
; four steps, one after the other
[global]
directory=/scratch/fio
time_based
runtime=3

[seq-write]
rw=write
[rand-read]
stonewall
rw=randread
numjobs=2
[rand-write]
stonewall
rw=randwrite
numjobs=2
[mixed]
stonewall
rw=randrw
"""


class RecordedTree(Tree):
    """A tree that is replayed from a recording instead of read from procfs."""

    def __init__(self) -> None:
        self.processes = {}
        self.files: dict[int, list[str]] = {}

    def open_files(self, pid: int) -> list[str]:
        return self.files.get(pid, [])


def replay(fio: Fio, *, with_files: bool) -> list[tuple[float, str | None]]:
    """Return the times at which the phase changed, as a look every 0.2 s would have seen them."""
    tree, due = RecordedTree(), 0.0
    seen: list[tuple[float, str | None]] = []
    for line in (FIXTURES / "jobs-stonewall-procs.tsv").read_text().splitlines()[1:]:
        time, pid, ppid, comm, event, _, rest = line.split("\t")
        while due < float(time):
            phase = fio.look(tree, 959)
            if not seen or seen[-1][1] != phase:
                seen.append((due, phase))
            due += 0.2
        if event == "gone":
            tree.processes.pop(int(pid), None)
            continue
        tree.processes[int(pid)] = TreeProcess(int(pid), int(ppid), comm)
        files = [word.partition(":")[2].rpartition("@")[0] for word in rest.partition(" | ")[2].split()]
        tree.files[int(pid)] = files if with_files else []
    seen.append((due, fio.look(tree, 959)))
    return seen


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    path = tmp_path / "steps.fio"
    path.write_text(STEPS)
    return path


@pytest.mark.parametrize("with_files", [True, False], ids=["by open files", "by births alone"])
def test_a_recorded_run_shows_its_four_groups_in_order_and_within_a_look_of_their_times(
    steps: Path, with_files: bool
) -> None:
    seen = replay(Fio(["fio", str(steps)], Path("/")), with_files=with_files)

    phases = [(time, phase) for time, phase in seen if phase is not None]
    assert [phase for _, phase in phases] == ["seq-write", "rand-read", "rand-write", "mixed"]
    born = [0.929, 4.189, 7.473, 10.683]
    assert all(0 <= time - birth <= 0.2 for (time, _), birth in zip(phases, born, strict=True))


def test_layout_of_files_before_the_first_job_is_no_phase(steps: Path) -> None:
    assert replay(Fio(["fio", str(steps)], Path("/")), with_files=True)[0] == (0.0, None)


def test_jobs_between_two_barriers_are_one_phase() -> None:
    jobs = parse_job_file("[a]\n[b]\nnumjobs=3\n[c]\nstonewall\n[d]\nwait_for_previous=1\n[e]\nstonewall=0\n")

    assert [(job.name, job.processes, job.barrier) for job in jobs] == [
        ("a", 1, False), ("b", 3, False), ("c", 1, True), ("d", 1, True), ("e", 1, False),
    ]  # fmt: skip


def test_a_stonewall_in_the_global_section_makes_every_job_a_phase(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("[global]\nstonewall\n[a]\n[b]\n")

    assert [group.phase for group in plan(["fio", "jobs"], tmp_path)] == ["a", "b"]


def test_jobs_of_the_command_line_take_what_was_said_before_the_first_name() -> None:
    argv = ["fio", "--rw=write", "--numjobs=2", "--name=one", "--bs=4k", "--name", "two", "--stonewall"]

    groups = plan(argv, Path("/"))

    assert [(group.phase, group.processes) for group in groups] == [("one", 2), ("two", 2)]


def test_jobs_that_run_together_share_a_phase_with_their_names() -> None:
    assert [group.phase for group in plan(["fio", "--name=a", "--name=b"], Path("/"))] == ["a+b"]


def test_a_job_file_that_cannot_be_read_leaves_one_phase(tmp_path: Path) -> None:
    assert [group.phase for group in Fio(["fio", "missing.fio"], tmp_path).groups] == ["fio"]


@pytest.mark.parametrize("argument", ["-", "/dev/stdin", "fifo"])
def test_standard_input_and_fifos_are_never_read(tmp_path: Path, argument: str) -> None:
    os.mkfifo(tmp_path / "fifo")

    assert plan(["fio", argument], tmp_path) == []


def test_the_last_of_several_status_documents_has_the_results(steps: Path) -> None:
    text = (FIXTURES / "jobs-stonewall-json-status.txt").read_text()

    results = Fio(["fio", str(steps)], Path("/")).results(text)

    last = list(documents(text))[-1]["jobs"]
    assert list(results) == ["seq-write", "rand-read", "rand-write", "mixed"]
    written = {(result.operation, result.unit): result.value for result in results["seq-write"]}
    assert written == {
        ("write", "bytes_per_second"): last[0]["write"]["bw_bytes"],
        ("write", "operations_per_second"): last[0]["write"]["iops"],
    }
    assert {result.operation for result in results["mixed"]} == {"read", "write"}


def test_an_interrupted_run_has_the_results_so_far() -> None:
    fio = Fio(["fio", "--name=rw4k"], Path("/"))

    (result, operations) = fio.results((FIXTURES / "sigint-json.txt").read_text())["rw4k"]

    assert (result.operation, result.unit) == ("write", "bytes_per_second")
    assert result.value > 1e6
    assert operations.value == pytest.approx(result.value / 4096, rel=0.01)


def test_several_processes_of_one_group_add_up() -> None:
    job = {"jobname": "a", "write": {"runtime": 10, "bw_bytes": 100, "iops": 2.5}}

    results = Fio(["fio", "--name=a", "--numjobs=2"], Path("/")).results(
        json.dumps({"fio version": "fio-3.33", "jobs": [job, job]})
    )

    assert [result.value for result in results["a"]] == [200, 5.0]


def test_the_bandwidth_of_old_versions_is_in_kib() -> None:
    document = {"jobs": [{"jobname": "a", "read": {"runtime": 1, "bw": 3, "iops": 1}}]}

    assert results_by_job(document)[0][1][0].value == 3072


def test_the_output_file_of_the_command_line_is_read_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text((FIXTURES / "json.txt").read_text())

    results = Fio(["fio", "--name=rw4k", "--output=out.json"], tmp_path).results("")

    assert results["rw4k"][0].operation == "write"


@pytest.mark.parametrize("name", ["normal.txt", "bad-option.txt"])
def test_output_without_json_has_no_results(name: str) -> None:
    assert Fio(["fio", "--name=a"], Path("/")).results((FIXTURES / name).read_text()) == {}


@given(st.text())
def test_no_output_raises(text: str) -> None:
    Fio(["fio", "--name=a"], Path("/")).results(text)
    parse_job_file(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jobs", "jobname", "write", "read", "runtime", "bw", "iops"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["fio version", "jobs", "timestamp", "timestamp_ms"]), JSON))
def test_no_json_document_raises(document: dict[str, object]) -> None:
    results = Fio(["fio", "--name=a"], Path("/")).results(json.dumps({"fio version": "", **document}))

    assert all(math.isfinite(result.value) for found in results.values() for result in found)
