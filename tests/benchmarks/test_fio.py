"""fio as its processes show it: the plan, the running group, and the phase that a result belongs to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.captures import CAPTURES
from linear import costs_more_than_its_length
from pinchpoint.benchmarks.base import Sight
from pinchpoint.benchmarks.events import Completed, Ended, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.fio import (
    MAX_JOB_FILES_CHARACTERS,
    MAX_JOBS,
    MAX_OPTION_CHARACTERS,
    Fio,
    JobGroup,
    parse_job_file,
    parse_time,
    plan,
)
from pinchpoint.runs import Result
from recorder.capture import Change, OpenedFile, Written, read_capture
from recorder.stage import Stage

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fio"
LEADER = 959
LAYOUT, READ, WRITE = os.O_WRONLY | os.O_CREAT, os.O_RDONLY, os.O_RDWR

# The relevant options of the recorded run.
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
ramp_time=1
"""
STEP_NAMES = ["seq_write", "rand_read", "rand_write", "mixed"]


class Host:
    """A host on which fio runs with this command line; each `look` is a second later."""

    def __init__(self, directory: Path, *argv: str, files: Mapping[str, str] | None = None) -> None:
        self.stage = Stage(directory, 1e9)
        self.argv = ("fio", *argv)
        self.time = 0.0
        self._fio: Fio | None = None
        self._jobs: set[int] = set()
        for path, text in (files or {}).items():
            self.write(path, text)
        self.leader()

    def write(self, path: str, text: str, *, appended: bool = False) -> None:
        self.stage.write(Written(self.time, path, text.encode(), appended))

    def leader(
        self,
        *files: tuple[str, int],
        tids: Sequence[int] = (LEADER,),
        names: Mapping[int, str] | None = None,
        hidden: bool = False,
    ) -> None:
        """Set the leader's open files and threads; `names` has those that aren't the program's."""
        self.stage.change(self._process(LEADER, 1, files, hidden=hidden))
        tasks = self.stage.procfs / str(LEADER) / "task"
        shutil.rmtree(tasks, ignore_errors=True)
        for tid in tids:
            (tasks / str(tid)).mkdir(parents=True)
            (tasks / str(tid) / "comm").write_text((names or {}).get(tid, "fio") + "\n")

    def jobs(self, *pids: int, files: Sequence[tuple[str, int]] = (), hidden: bool = False) -> None:
        """Set the living jobs; the last one has the files open."""
        for pid in self._jobs - {*pids}:
            self.stage.change(Change(self.time, pid, gone=True))
        for pid in pids:
            self.stage.change(self._process(pid, LEADER, files if pid == pids[-1] else (), hidden=hidden))
        self._jobs = {*pids}

    def _process(self, pid: int, ppid: int, files: Sequence[tuple[str, int]], *, hidden: bool) -> Change:
        opened = [OpenedFile(3 + number, path, 0, flags) for number, (path, flags) in enumerate(files)]
        seen = None if hidden else tuple(opened)
        return Change(self.time, pid, ppid, "fio", cwd="/home", argv=self.argv, files=seen)

    @property
    def fio(self) -> Fio:
        if self._fio is None:
            self._fio = Fio(self.stage.tree(self.time), LEADER)
        return self._fio

    def look(self, seconds: float = 1.0) -> Sight:
        tree = self.stage.tree(self.time)
        sight = self.fio.look(tree, LEADER, self.time)
        self.time += seconds
        return sight


def recorded(directory: Path, *, plan: str = STEPS, with_files: bool = True) -> list[tuple[float, Sight]]:
    """Return those looks at the recorded run, taken every 0.2 s, whose result changed."""
    capture = read_capture(CAPTURES / "fio-jobs-stonewall")
    stage = Stage(directory, capture.start)
    stage.write(Written(0.0, "/scratch/fio/steps.fio", plan.encode(), appended=False))
    changes = list(capture.processes or [])
    seen: list[tuple[float, Sight]] = []
    fio: Fio | None = None
    for number in range(75):
        time = number * 0.2
        while changes and changes[0].time <= time:
            change = changes.pop(0)
            stage.change(change if with_files or change.gone else without_files(change))
        tree = stage.tree(time)
        if LEADER not in tree.processes:
            continue
        fio = fio or Fio(tree, LEADER)
        sight = fio.look(tree, LEADER, time)
        if not seen or (seen[-1][1].state, seen[-1][1].phase) != (sight.state, sight.phase):
            seen.append((time, sight))
    return seen


def without_files(change: Change) -> Change:
    return Change(change.time, change.pid, change.ppid, change.comm, cwd=change.cwd, argv=change.argv, files=None)


# What runs


@pytest.mark.parametrize("with_files", [True, False], ids=["by open files", "by births alone"])
def test_a_recorded_run_shows_its_four_groups_within_a_look_of_their_times(tmp_path: Path, with_files: bool) -> None:
    seen = recorded(tmp_path, with_files=with_files)

    running = [(time, sight) for time, sight in seen if sight.state is State.RUNNING]
    assert [sight.phase for _, sight in running] == STEP_NAMES
    assert [(sight.number, sight.total) for _, sight in running] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [sight.expected for _, sight in running] == [3, 3, 3, 4]
    born = [0.929, 4.189, 7.473, 10.683]
    assert all(0 <= time - birth <= 0.2 for (time, _), birth in zip(running, born, strict=True))
    assert not with_files or running[0][1].source is PhaseSource.DATA_FD
    assert with_files or {sight.source for _, sight in running} == {PhaseSource.THREAD}
    assert ("descriptors" in running[0][1].blind) is not with_files


def test_layout_of_files_is_setup_and_the_end_of_a_group_is_between(tmp_path: Path) -> None:
    seen = recorded(tmp_path)

    assert (seen[0][1].state, seen[0][1].phase) == (State.SETUP, None)
    assert {sight.state for _, sight in seen[1:] if sight.phase is None} == {State.BETWEEN}


def test_without_a_plan_open_files_name_the_phases(tmp_path: Path) -> None:
    seen = recorded(tmp_path, plan="")

    running = [sight for _, sight in seen if sight.state is State.RUNNING]
    assert [sight.phase for sight in running] == STEP_NAMES
    assert {(sight.source, sight.vague, sight.total) for sight in running} == {(PhaseSource.DATA_FD, False, None)}
    assert [sight.state for _, sight in seen[:2]] == [State.SETUP, State.RUNNING]


def test_without_plan_and_files_the_whole_is_one_vague_phase(tmp_path: Path) -> None:
    host = Host(tmp_path, "-")
    host.jobs(1001, files=[("/dev/sdb", WRITE)])

    assert host.look().state is State.SETUP
    sight = host.look()
    assert (sight.phase, sight.vague, sight.source) == ("fio", True, PhaseSource.ARGV)


def test_jobs_that_run_together_without_a_plan_share_a_phase(tmp_path: Path) -> None:
    host = Host(tmp_path, "-")
    host.jobs(1001, 1002, files=[("/d/b-2.0.0", READ)])
    host.stage.change(host._process(1001, LEADER, [("/d/a.0.0", READ)], hidden=False))

    assert host.look().phase == "a+b_2"


def test_a_single_group_needs_no_files(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=rw4k", "--time_based", "--runtime=2m", "--ramp_time=500ms")
    host.jobs(1001, hidden=True)

    sight = host.look()

    assert (sight.phase, sight.source, sight.expected) == ("rw4k", PhaseSource.ARGV, 120.5)
    assert (sight.number, sight.total, sight.vague, sight.blind) == (1, 1, False, ())


def test_files_that_options_name_tell_the_group_unless_groups_share_them(tmp_path: Path) -> None:
    argv = ["--name=a", "--filename=/dev/sdb:/dev/sdc", "--name=b", "--stonewall", "--filename=/dev/sdd:/dev/sdc"]
    host = Host(tmp_path, *argv)
    host.jobs(1001, files=[("/dev/sdc", WRITE), ("/dev/sdd", WRITE)])

    sight = host.look()

    assert (sight.phase, sight.source, sight.number) == ("b", PhaseSource.DATA_FD, 2)


def test_a_file_that_is_opened_a_little_later_still_tells_the_group(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a", "--name=b", "--stonewall", "--name=c", "--stonewall")
    host.jobs(1001)
    assert host.look(0.2).phase == "a"
    host.jobs(1001, files=[("/d/b.0.0", READ)])
    assert host.look(0.2).phase == "b"
    host.jobs(1002)
    assert host.look(0.2).phase == "c"


def test_a_run_that_is_met_in_the_middle_is_not_counted_from_one(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a", "--filename=/dev/sdb", "--name=b", "--stonewall", "--filename=/dev/sdb")
    host.time = 60.0
    host.jobs(1009, files=[("/dev/sdb", WRITE)])

    assert host.look().phase is None
    sight = host.look()
    assert (sight.phase, sight.vague) == ("fio", True)
    assert host.fio.claim(Rate("b")) == Rate("b")


def test_open_files_place_a_run_that_is_met_in_the_middle(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a", "--name=b", "--stonewall", "--name=c", "--stonewall")
    host.time = 60.0
    host.jobs(1009, files=[("/d/b.0.0", READ)])
    assert (host.look().phase, host.look().number) == ("b", 2)

    host.jobs(1010)
    assert (host.look().phase, host.look().number) == ("c", 3)


def looks(host: Host, *alive: Sequence[int]) -> list[str | None]:
    """Return the phases of a leader with these threads, look by look."""
    found = []
    for tids in alive:
        host.leader(tids=tids)
        found.append(host.look(0.1).phase)
    return found


def test_jobs_that_are_threads_are_seen_by_their_births(tmp_path: Path) -> None:
    host = Host(tmp_path, "--thread", "--name=a", "--name=b", "--stonewall", "--numjobs=2")

    # As in fio 3.33: the leader, its helper, then the jobs.
    main, helper = LEADER, LEADER + 3
    alive = [[main], [main, helper], [main, helper, 974], [main, helper], [main, helper, 984, 985], [main, helper]]
    assert looks(host, *alive) == [None, None, "a", None, "b", None]


def test_threads_that_look_at_clocks_before_the_first_job_are_no_group(tmp_path: Path) -> None:
    for cpus in (2, 96):
        folder = tmp_path / str(cpus)
        folder.mkdir()
        host = Host(folder, "--name=a", "--name=b", "--stonewall")
        assert looks(host, [LEADER, *range(2000, 2000 + cpus)], [LEADER, 3000]) == [None, None]
        host.jobs(1004)
        assert host.look().phase == "a"
        host.jobs(1005)
        assert host.look().phase == "b"


@pytest.mark.parametrize("engine", ["rbd", "rados"])
def test_jobs_of_ceph_engines_are_threads_beside_those_of_librados(tmp_path: Path, engine: str) -> None:
    host = Host(tmp_path, f"--ioengine={engine}", "--name=a", f"--ioengine={engine}", "--name=b", "--stonewall")
    librados = {975: "log", 976: "msgr-worker-0", 977: "taskfin_librbd"}

    # As in fio 3.33 with librbd 16.2.15: the leader looks at the clocks, connects, starts its helper, then the jobs.
    found = []
    for tids, names in [
        ([LEADER], {}),
        ([LEADER, 970, 971, 972], {}),
        ([LEADER, *librados], librados),
        ([LEADER, *librados, 978], librados),
        ([LEADER, *librados, 978, 979], librados),
        ([LEADER, *librados, 978], librados),
        ([LEADER, *librados, 978, 980], librados),
    ]:
        host.leader(tids=tids, names=names)
        found.append((host.look(0.1).state, host.look(0.1).phase))

    setup, between = State.SETUP, State.BETWEEN
    assert found == [*[(setup, None)] * 4, (State.RUNNING, "a"), (between, None), (State.RUNNING, "b")]


def test_jobs_of_other_engines_that_force_it_are_threads(tmp_path: Path) -> None:
    host = Host(tmp_path, "--ioengine=http", "--name=a")

    assert looks(host, [LEADER], [LEADER, 974], [LEADER, 974, 975]) == [None, None, "a"]


def test_jobs_that_are_threads_have_their_files_open_in_the_leader(tmp_path: Path) -> None:
    host = Host(tmp_path, "--thread", "--name=a", "--name=b", "--stonewall")
    host.leader(("/d/b.0.0", LAYOUT), tids=[])
    assert host.look().state is State.SETUP

    host.leader(("/d/b.0.0", READ), tids=[])
    assert (host.look().phase, host.look().source) == ("b", PhaseSource.DATA_FD)
    host.leader(tids=[])
    assert host.look().state is State.BETWEEN


def test_threads_that_cannot_all_be_jobs_make_the_command_one_phase(tmp_path: Path) -> None:
    host = Host(tmp_path, "--thread", "--name=a", "--name=b", "--stonewall")
    host.leader(tids=[LEADER, 960, 961, 962])

    host.look()
    sight = host.look()

    assert (sight.phase, sight.vague) == ("fio", True)


def test_more_job_processes_than_planned_make_the_command_one_phase(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a")
    host.jobs(1001, 1002)

    host.look()
    assert (host.look().phase, host.look().vague) == ("fio", True)


def test_groups_that_only_the_results_tell_apart_are_vague(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a", "--name=b", "--new_group")
    host.jobs(1001, 1002)

    sight = host.look()

    assert (sight.phase, sight.vague) == ("a+b", True)
    assert host.fio.claim(Ended("b")) == Ended("b")


def test_a_client_is_one_phase_and_a_server_is_no_run(tmp_path: Path) -> None:
    host = Host(tmp_path, "--client=other", "/jobs.fio", files={"/jobs.fio": STEPS})

    sight = host.look()
    assert (sight.state, sight.phase, sight.vague) == (State.RUNNING, "fio", True)
    assert Fio.leads(host.stage.tree(0.0), LEADER)

    host.argv = ("fio", "--server=0.0.0.0,8765")
    host.leader()
    assert not Fio.leads(host.stage.tree(0.0), LEADER)


def test_the_topmost_fio_leads(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a")
    host.jobs(1001)

    assert [Fio.leads(host.stage.tree(0.0), pid) for pid in (LEADER, 1001)] == [True, False]


# The plan


def groups(
    *argv: str, files: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None
) -> list[JobGroup]:
    texts, known = files or {}, variables or {}
    return plan(["fio", *argv], lambda name: texts.get(name, ""), lambda name: known.get(name, ""))


def sizes(found: Sequence[JobGroup]) -> list[tuple[str, int]]:
    return [(group.phase, group.processes) for group in found]


def test_jobs_between_two_barriers_are_one_phase() -> None:
    jobs = parse_job_file("[a]\n[b]\nnumjobs=3\n[c]\nstonewall\n[d]\nwait_for_previous=1\n[e]\nstonewall=0\n")

    assert [(job.name, job.processes, job.barrier) for job in jobs] == [
        ("a", 1, False), ("b", 3, False), ("c", 1, True), ("d", 1, True), ("e", 1, False),
    ]  # fmt: skip


def test_a_stonewall_in_the_global_section_makes_every_job_a_phase() -> None:
    assert sizes(groups("jobs", files={"jobs": "[global]\nstonewall\n[a]\n[b]\n"})) == [("a", 1), ("b", 1)]


def test_jobs_of_the_command_line_take_what_was_said_before_the_first_name() -> None:
    found = groups("--rw=write", "--numjobs=2", "--name=one", "--bs=4k", "--name", "two", "--stonewall")

    assert sizes(found) == [("one", 2), ("two", 2)]


def test_jobs_that_run_together_share_a_phase_with_their_names() -> None:
    assert sizes(groups("--name=a", "--name=B c", "--name=a")) == [("a+b_c", 3)]


def test_a_job_file_is_read_as_fio_sees_it_and_nothing_but_a_regular_file(tmp_path: Path) -> None:
    host = Host(tmp_path, "jobs.fio", files={"/home/jobs.fio": "[a]\n"})
    assert [group.phase for group in host.fio.groups] == ["a"]

    os.mkfifo(host.stage.root / "home" / "fifo")
    for name in ("-", "fifo", "missing", "/dev/stdin"):
        host.argv = ("fio", name)
        host.leader()
        assert Fio(host.stage.tree(0.0), LEADER).groups == []


def test_a_comment_may_stand_at_the_end_of_a_line() -> None:
    jobs = parse_job_file("[a] ; first\nnumjobs=2 # x\n[b]\nstonewall ; y\n")

    assert [(job.name, job.processes, job.barrier) for job in jobs] == [("a", 2, False), ("b", 1, True)]


def test_waiting_for_a_job_is_a_barrier() -> None:
    assert sizes(groups("--name=a", "--name=b", "--wait_for=a")) == [("a", 1), ("b", 1)]


def test_only_the_sections_that_are_asked_for_run() -> None:
    found = groups("--section=seq-write", "--section", "mixed", "steps.fio", files={"steps.fio": STEPS})

    assert [group.phase for group in found] == ["seq_write", "mixed"]


def test_a_value_may_be_the_next_word_but_never_of_a_flag() -> None:
    argv = ["--output", "x", "--name", "a", "--numjobs", "2", "--thread", "steps.fio"]

    assert sizes(groups(*argv, files={"steps.fio": STEPS}))[:2] == [("a+seq_write", 3), ("rand_read", 2)]


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("/a/${X}/b", "/a/x/b"),
        ("${X}${X}", "xx"),
        ("/a/${UNSET}b", "/a/b"),
        ("/a/${}b", "/a/b"),
        ("/a/$X", "/a/$X"),
        ("/a/$${X}}", "/a/$x}"),
        # The name extends to the next closing brace, whatever stands between.
        ("/a/${Y${X}", "/a/inner"),
        ("/a/${X", "/a/${X"),
        ("/${X}/${X", "/x/${X"),
        ("/}${X}", "/}x"),
    ],
)
def test_variables_are_put_into_an_option_as_fio_does(text: str, file: str) -> None:
    variables = {"X": "x", "Y${X": "inner"}
    (job,) = parse_job_file(f"[a]\nfilename={text}\n", variable=lambda name: variables.get(name, ""))

    assert job.files == (file,)


@pytest.mark.parametrize("part", ["${", "${a", "${a}", "$", "{", "}", "${X}${"])
def test_a_job_file_takes_no_longer_than_it_is_long(part: str) -> None:
    def parse(text: str) -> None:
        parse_job_file(text, variable=lambda name: "")

    assert not costs_more_than_its_length(parse, "[a]\nruntime=1", " ")
    assert not costs_more_than_its_length(parse, "[a]\nfilename=", part)


def test_of_an_option_no_more_is_read_than_fio_takes() -> None:
    (job,) = parse_job_file(
        f"[a]\nfilename={'/' + 'x' * MAX_OPTION_CHARACTERS}${{X}}\n", variable=lambda name: "y" * 10**6
    )
    (long,) = parse_job_file("[a]\nfilename=${X}${X}\n", variable=lambda name: "y" * 10**6)

    assert len(job.files[0]) == len(long.files[0]) == MAX_OPTION_CHARACTERS
    assert "y" not in job.files[0]


def test_a_variable_that_many_jobs_inherit_is_read_once() -> None:
    asked: list[str] = []
    parse_job_file(
        "[global]\nfilename=${A}\n" + "[a]\n" * 100,
        variable=lambda name: asked.append(name) or "",  # type: ignore[func-returns-value]
    )

    assert asked == ["A"]


def test_more_jobs_than_fio_takes_are_no_plan() -> None:
    sections, files = "[a]\n" * MAX_JOBS, ("jobs", "more")

    assert len(parse_job_file(sections)) == MAX_JOBS
    assert parse_job_file(sections + "[a]\n") == []
    assert groups(*files, files={"jobs": sections, "more": ""}) == []
    assert groups(*files, files={"jobs": sections, "more": "[b]\n"}) == []
    assert groups(*(["--name=a"] * (MAX_JOBS + 1))) == []


def test_job_files_that_are_too_long_together_are_no_plan() -> None:
    text = "[a]\n" + "#" * (MAX_JOB_FILES_CHARACTERS // 2)

    assert len(groups("jobs", files={"jobs": text})) == 1
    assert groups("jobs", "jobs", files={"jobs": text}) == []


def test_a_command_line_takes_no_longer_than_it_is_long() -> None:
    def parse(text: str) -> None:
        plan(["fio", *text * 100], lambda name: "")

    assert not costs_more_than_its_length(parse, "", "-")


def test_a_variable_is_looked_up_in_the_environment_of_fio(tmp_path: Path) -> None:
    host = Host(tmp_path, "/jobs", files={"/jobs": "[a]\nnumjobs=${N}\n[b]\nstonewall\n"})
    (host.stage.procfs / str(LEADER) / "environ").write_bytes(b"M=1\0N=3\0")

    assert sizes(host.fio.groups) == [("a", 3), ("b", 1)]
    assert groups("jobs", files={"jobs": "[a]\nnumjobs=${N}\n"}) == []


def test_a_job_file_that_includes_another_gives_no_plan() -> None:
    assert groups("jobs", files={"jobs": "[a]\ninclude more.fio\n"}) == []


def test_a_further_job_file_begins_behind_a_barrier_and_without_defaults() -> None:
    found = groups("--numjobs=2", "one", "two", files={"one": "[a]\n", "two": "[b]\n"})

    assert sizes(found) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (["--time_based", "--runtime=30"], 30),
        (["--time_based", "--runtime=1h"], 3600),
        (["--time_based=1", "--timeout", "2M", "--ramp_time=10s", "--startdelay=5"], 135),
        (["--runtime=30"], None),  # it may end before
        (["--time_based=0", "--runtime=30"], None),
        (["--time_based", "--runtime=30", "--loops=3"], None),
        (["--time_based", "--runtime=(30)"], None),
        (["--time_based", "--runtime=30", "--startdelay=5-10"], None),
        (["--time_based"], None),
    ],
)
def test_how_long_a_group_is_meant_to_take(options: list[str], seconds: float | None) -> None:
    (found,) = groups("--name=a", *options)

    assert found.expected == seconds


def test_the_longest_job_decides_how_long_a_group_is_meant_to_take() -> None:
    timed = ["--time_based", "--runtime=3"]

    assert groups(*timed, "--name=a", "--name=b", "--runtime=5")[0].expected == 5
    assert groups("--name=a", *timed, "--name=b")[0].expected is None


def test_times() -> None:
    assert [parse_time(text) for text in ("30", " 500ms", "7us", "1d", "x", "")] == [30, 0.5, 7e-6, 86400, None, None]


# Phases of results


def test_results_meet_the_phases_of_the_plan(tmp_path: Path) -> None:
    fio = Host(tmp_path, "--name=Seq-Write", "--name=b", "--stonewall", "--name=c").fio

    assert fio.claim(Ended("seq_write")) == Ended("seq_write")
    # With group_reporting the status has only the first job's name.
    assert fio.claim(Ended("b")) == Ended("b+c")
    assert fio.claim(Ended("b+c")) == Ended("b+c")
    assert fio.claim(Ended("seq_write+d")) is None
    assert fio.claim(Ended("d")) is None


def test_without_a_plan_every_result_may_be_ours(tmp_path: Path) -> None:
    assert Host(tmp_path, "-").fio.claim(Ended("x")) == Ended("x")


def test_a_rate_that_is_read_late_does_not_bring_a_phase_back(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a", "--name=b", "--stonewall")
    rate = (Result("read", "bytes_per_second", 1.0),)
    assert host.look().state is State.SETUP
    assert host.fio.claim(Rate("a", rate)) == Rate("")

    host.jobs(1001)
    host.look()
    assert host.fio.claim(Rate("a", rate, 0.5)) == Rate("a", rate)
    assert host.fio.claim(Rate("", rate)) == Rate("", rate)
    assert host.fio.claim(Rate("b", rate)) == Rate("")
    host.jobs()
    host.look()
    assert host.fio.claim(Rate("a", rate)) == Rate("")


def test_a_rate_that_is_read_after_the_end_does_not_bring_a_phase_back(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a")
    host.jobs(1001)
    host.look()
    host.fio.last_words()

    assert host.fio.claim(Rate("a", (Result("read", "bytes_per_second", 1.0),))) == Rate("")


def test_where_no_process_can_be_seen_the_output_names_the_phases(tmp_path: Path) -> None:
    host = Host(tmp_path, "--name=a")
    host.leader(tids=[], hidden=True)

    assert host.look().state is State.SETUP
    assert host.fio.claim(Rate("a", (), 0.5)) == Rate("a", (), 0.5)


# The file of --output


def test_the_file_of_results_is_followed_to_the_end(tmp_path: Path) -> None:
    text = (FIXTURES / "output-file.txt").read_text()
    head, tail = text.split("\n\n", 1)
    host = Host(tmp_path, "--name=both", "--output=out.txt")
    assert host.look().events == ()

    host.write("/home/out.txt", head + "\n\n")
    host.jobs(1001)
    assert host.look().events[0] == RunBegan()
    host.write("/home/out.txt", tail, appended=True)
    host.stage.change(Change(host.time, LEADER, gone=True))

    end, completed = host.fio.last_words()

    assert isinstance(end, Ended)
    assert (end.phase, end.results[0].printed, completed) == ("both", "802KiB/s", Completed())
    assert host.fio.last_words() == ()


def test_a_file_that_fio_emptied_before_it_was_seen_and_writes_at_its_end_is_read(tmp_path: Path) -> None:
    text = (FIXTURES / "output-file.txt").read_text()
    host = Host(tmp_path, "--name=both", "--output", "/out.txt", files={"/out.txt": ""})
    host.jobs(1001)
    assert host.look().events == ()
    host.write("/out.txt", text, appended=True)
    host.stage.change(Change(host.time, LEADER, gone=True))

    events = host.fio.last_words()

    assert [event.phase for event in events if isinstance(event, Ended)] == ["both"]
    assert events[-1] == Completed()


def test_what_an_earlier_run_left_in_the_file_is_not_read(tmp_path: Path) -> None:
    text = (FIXTURES / "output-file.txt").read_text()
    host = Host(tmp_path, "--name=both", "--output", "/out.txt", files={"/out.txt": text})

    assert host.look().events == ()
    assert host.fio.last_words() == ()


def test_a_file_that_was_left_and_is_written_anew_is_read(tmp_path: Path) -> None:
    text = (FIXTURES / "output-file.txt").read_text()
    host = Host(tmp_path, "--name=both", "--output", "/out.txt", files={"/out.txt": text + text})
    host.look()
    host.write("/out.txt", text)
    host.look()

    assert [type(event) for event in host.fio.last_words()] == [Ended, Completed]


# Anything


WORDS = st.text() | st.sampled_from(
    ["--name", "--numjobs", "--output", "--section", "-", "--", "--name=a", "--stonewall", "--thread", "--client"]
)


@given(st.lists(WORDS), st.text())
def test_no_command_line_and_no_job_file_raises(words: list[str], text: str) -> None:
    found = plan(["fio", *words], lambda name: text)
    assert all(group.processes > 0 for group in found)
    parse_job_file(text)
    parse_time(text)


@given(
    st.lists(WORDS, max_size=4),
    st.lists(
        st.tuples(
            st.lists(st.integers(1001, 1004), max_size=3, unique=True),
            st.lists(st.sampled_from(["/d/a.0.0", "/d/x.1.2", "/dev/sdb", "pipe:[1]", "a", "\udc80"]), max_size=2),
            st.booleans(),
        ),
        max_size=5,
    ),
)
def test_no_look_raises(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], seen: list[tuple[list[int], list[str], bool]]
) -> None:
    host = Host(tmp_path_factory.mktemp("host"), *words)
    for pids, files, hidden in seen:
        host.jobs(*pids, files=[(path, READ) for path in files], hidden=hidden)
        sight = host.look()
        assert (sight.phase is None) is (sight.state is not State.RUNNING)
        host.fio.claim(Ended("a"))
    host.fio.last_words()
