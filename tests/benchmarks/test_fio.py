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
        self.tids: list[int] = []
        self.environment: dict[str, str] = {}

    def open_files(self, pid: int) -> list[str]:
        return self.files.get(pid, [])

    def threads(self, pid: int) -> list[int]:
        return self.tids

    def variable(self, pid: int, name: str) -> str:
        return self.environment.get(name, "")


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

    results = Fio(["fio", "--status-interval=1", str(steps)], Path("/")).results(text, set())

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

    (result, operations) = fio.results((FIXTURES / "sigint-json.txt").read_text(), set())["rw4k"]

    assert (result.operation, result.unit) == ("write", "bytes_per_second")
    assert result.value > 1e6
    assert operations.value == pytest.approx(result.value / 4096, rel=0.01)


def test_several_processes_of_one_group_add_up() -> None:
    job = {"jobname": "a", "write": {"runtime": 10, "bw_bytes": 100, "iops": 2.5}}

    results = Fio(["fio", "--name=a", "--numjobs=2"], Path("/")).results(
        json.dumps({"fio version": "fio-3.33", "jobs": [job, job]}), set()
    )

    assert [result.value for result in results["a"]] == [200, 5.0]


def test_the_bandwidth_of_old_versions_is_in_kib() -> None:
    document = {"jobs": [{"jobname": "a", "read": {"runtime": 1, "bw": 3, "iops": 1}}]}

    assert results_by_job(document)[0][1][0].value == 3072


def test_the_output_file_of_the_command_line_is_read_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text((FIXTURES / "json.txt").read_text())

    results = Fio(["fio", "--name=rw4k", "--output=out.json"], tmp_path).results("", set())

    assert results["rw4k"][0].operation == "write"


@pytest.mark.parametrize("name", ["normal.txt", "bad-option.txt"])
def test_output_without_json_has_no_results(name: str) -> None:
    assert Fio(["fio", "--name=a"], Path("/")).results((FIXTURES / name).read_text(), set()) == {}


def printed(*names: str, figure: int, elapsed: int = 1) -> str:
    jobs = [
        {"jobname": name, "elapsed": elapsed, "read": {"runtime": 1, "bw_bytes": figure, "iops": 1}} for name in names
    ]
    return json.dumps({"fio version": "fio-3.33", "timestamp_ms": 1000 + figure, "jobs": jobs}) + "\n"


def figures(text: str, *commands: list[str]) -> list[dict[str, float]]:
    taken: set[int] = set()
    found = [Fio(["fio", *command], Path("/")).results(text, taken) for command in commands]
    return [{phase: results[0].value for phase, results in one.items()} for one in found]


def test_each_of_two_commands_has_its_own_results() -> None:
    text = printed("p", figure=1) + printed("q", figure=2)

    assert figures(text, ["--name=p"], ["--name=q"]) == [{"p": 1}, {"q": 2}]


def test_commands_with_the_same_jobs_have_their_results_in_the_order_of_their_start() -> None:
    text = printed("p", figure=1) + printed("p", figure=2, elapsed=9)

    assert figures(text, ["--name=p"], ["--name=p"]) == [{"p": 1}, {"p": 2}]


def test_a_command_that_repeats_its_status_keeps_to_documents_until_the_elapsed_time_falls() -> None:
    text = "".join(printed("p", figure=n, elapsed=elapsed) for n, elapsed in [(1, 1), (2, 2), (3, 1), (4, 2)])
    command = ["--status-interval=1", "--name=p"]

    assert figures(text, command, command) == [{"p": 2}, {"p": 4}]


def test_jobs_that_are_in_no_plan_have_no_results_unless_there_is_no_plan() -> None:
    assert figures(printed("x", figure=1), ["--name=p"]) == [{}]
    assert figures(printed("x", figure=1), ["-"]) == [{"fio": 1}]


def looks(fio: Fio, *alive: list[int]) -> list[str | None]:
    """Return the phases that a leader with these threads shows, look by look."""
    tree, found = RecordedTree(), []
    for tids in alive:
        tree.tids = tids
        found.append(fio.look(tree, 10))
    return found


def test_jobs_that_are_threads_are_seen_by_their_births() -> None:
    fio = Fio(["fio", "--thread", "--name=a", "--name=b", "--stonewall", "--numjobs=2"], Path("/"))

    # As fio 3.33 has them: the leader, its helper, then the jobs.
    assert looks(fio, [10], [10, 13], [10, 13, 14], [10, 13], [10, 13, 74, 75], [10, 13]) == [
        None, None, "a", None, "b", None,
    ]  # fmt: skip


def test_threads_that_cannot_all_be_jobs_make_the_command_one_phase() -> None:
    fio = Fio(["fio", "--thread", "--name=a", "--name=b", "--stonewall"], Path("/"))

    assert looks(fio, [10, 13, 14, 15], [10, 13], [10, 13, 74]) == ["fio", None, "fio"]


def test_more_job_processes_than_planned_make_the_command_one_phase() -> None:
    tree = RecordedTree()
    fio = Fio(["fio", "--name=a"], Path("/"))
    tree.processes = {pid: TreeProcess(pid, 10, "fio") for pid in (11, 12)}

    assert fio.look(tree, 10) == "fio"


def test_a_comment_may_stand_at_the_end_of_a_line() -> None:
    jobs = parse_job_file("[a] ; first\nnumjobs=2 # x\n[b]\nstonewall ; y\n")

    assert [(job.name, job.processes, job.barrier) for job in jobs] == [("a", 2, False), ("b", 1, True)]


def test_waiting_for_a_job_is_a_barrier() -> None:
    assert [group.phase for group in plan(["fio", "--name=a", "--name=b", "--wait_for=a"], Path("/"))] == ["a", "b"]


def test_only_the_sections_that_are_asked_for_run(steps: Path) -> None:
    groups = plan(["fio", "--section=seq-write", "--section", "mixed", str(steps)], Path("/"))

    assert [group.phase for group in groups] == ["seq-write", "mixed"]


def test_a_value_may_be_the_next_word_but_never_of_a_flag(steps: Path) -> None:
    argv = ["fio", "--output", "x", "--name", "a", "--numjobs", "2", "--thread", str(steps)]

    assert [(group.phase, group.processes) for group in plan(argv, Path("/"))][:2] == [
        ("a+seq-write", 3),
        ("rand-read", 2),
    ]


def test_a_variable_is_looked_up_in_the_environment_of_fio(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("[a]\nnumjobs=${N}\n[b]\nstonewall\n")
    tree = RecordedTree()
    known, unknown = (Fio(["fio", "jobs"], tmp_path) for _ in range(2))
    unknown.look(tree, 10)
    tree.environment = {"N": "3"}
    known.look(tree, 10)

    assert [(group.phase, group.processes) for group in known.groups] == [("a", 3), ("b", 1)]
    assert [group.phase for group in unknown.groups] == ["fio"]


def test_a_job_file_that_includes_another_gives_no_plan(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("[a]\ninclude more.fio\n")

    assert plan(["fio", "jobs"], tmp_path) == []


def test_a_further_job_file_begins_behind_a_barrier_and_without_defaults(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("[a]\n")
    (tmp_path / "two").write_text("[b]\n")

    groups = plan(["fio", "--numjobs=2", "one", "two"], tmp_path)

    assert [(group.phase, group.processes) for group in groups] == [("a", 2), ("b", 1)]


@given(st.lists(st.text() | st.sampled_from(["--name", "--numjobs", "--output", "--section", "-", "--"])))
def test_no_command_line_raises(words: list[str]) -> None:
    Fio(["fio", *words], Path("/nonexistent")).results("", set())


@given(st.text())
def test_no_output_raises(text: str) -> None:
    Fio(["fio", "--name=a"], Path("/")).results(text, set())
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
    results = Fio(["fio", "--name=a"], Path("/")).results(json.dumps({"fio version": "", **document}), set())

    assert all(math.isfinite(result.value) for found in results.values() for result in found)
