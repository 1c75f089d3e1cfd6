"""Real benchmarks of real users, found by real helpers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pinchpoint.benchmarks.detector import Detector, Followed
from pinchpoint.benchmarks.finder import find_in_helpers, finder
from pinchpoint.benchmarks.fio import Fio
from pinchpoint.benchmarks.nursery import Nursery
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.user_helpers import MAX_ANSWER_SECONDS, UserHelpers
from pinchpoint.benchmarks.user_run import UserRun
from pinchpoint.host.confine import can_confine
from pinchpoint.host.procfs import FormatError, Stat, parse_stat, read_bytes
from pinchpoint.host.users import own_users
from pinchpoint.probes.benchmark import run_points
from pinchpoint.runs import RunState
from polling import until

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0 or not can_confine(), reason="needs root, and a kernel with seccomp"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed"),
]
PROC = Path("/proc")
NOBODY = 65534
ON_HANGING_FILES = """
import ctypes, os, sys

# Nobody serves this file system. It exists in this mount namespace only, and ends with this process.
device = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(device, True)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
where = sys.argv[1].encode()
if (
    libc.unshare(0x20000)
    or libc.mount(b"none", b"/", None, 1 << 14 | 1 << 18, None)
    or libc.mount(b"hangs", where, b"fuse", 0, options)
):
    sys.exit(f"no FUSE: {os.strerror(ctypes.get_errno())}")
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.execv(sys.argv[2], ["fio", sys.argv[1] + "/job.fio"])
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder where every user may write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


MORE_THAN_ITS_HEADING = 8192
"""Bytes from which fio has not only printed what it will do."""


class Scene:
    """This host's processes, and helpers that look for fio among them."""

    def __init__(self, stack: ExitStack) -> None:
        nursery = find_in_helpers([Fio], PROC)
        assert nursery is not None
        self.nursery: Nursery = nursery
        found = finder([Fio], PROC, nursery, own_users())
        assert isinstance(found, UserHelpers)
        self.helpers = found
        self.now = 0.0
        self._started: list[subprocess.Popen[bytes]] = []
        self._stack = stack
        stack.callback(nursery.close)
        stack.callback(found.close)

    def tree(self) -> Tree:
        """Return all processes of the host, without our own that have ended."""
        for process in self._started:
            process.poll()
        found: dict[int, Stat] = {}
        for name in os.listdir(PROC):
            with suppress(OSError, FormatError):
                if name.isdigit():
                    found[int(name)] = parse_stat(read_bytes(PROC / name / "stat"))
        return Tree(PROC, found)

    def fio(self, folder: Path, name: str, *words: str, user: int = NOBODY) -> int:
        """Start fio as a user, and return its pid once its job writes.

        Before its job fio looks at the clock of each CPU in a thread, which on a busy machine looks like a first job.
        """
        # A job that is a process has a session of its own, and does not end with what started it.
        job = [f"--name={name}", "--thread", "--size=1M", "--rw=write", "--ioengine=psync", "--time_based"]
        pid = self.starts(["fio", *job, *words], folder, user)
        assert until(20, lambda: written(pid) > MORE_THAN_ITS_HEADING)
        return pid

    def starts(self, command: list[str], folder: Path, user: int) -> int:
        """Start a program that becomes fio, which is killed at the end of the test."""
        process = subprocess.Popen(
            command, cwd=folder, user=user, group=user, extra_groups=[], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        self._started.append(process)
        self._stack.enter_context(process)
        self._stack.callback(process.kill)

        def named() -> bool:
            if process.poll() is not None and process.stderr is not None:
                said = process.stderr.read().decode().strip()
                if said.startswith("no FUSE"):
                    pytest.skip(said)
                pytest.fail(f"fio does not start: {said}")
            return (PROC / str(process.pid) / "comm").read_text() == "fio\n"

        assert until(20, named)
        return process.pid

    def look(self) -> None:
        """Take a look at the moment `now`, which only the test moves."""
        self.helpers.look(self.tree(), self.now, time.time())

    def run(self, pid: int) -> RunState | None:
        """Return what is known about the benchmark that a process leads, after a look."""
        self.look()
        return next((found.state("r") for found in self.helpers.followed if found.pid == pid), None)

    def in_phase(self, pid: int, phase: str) -> bool:
        """Return whether this phase goes on."""
        run = self.run(pid)
        return run is not None and [(mark.name, mark.end) for mark in run.phases] == [(phase, None)]

    def reads(self, pid: int) -> bool:
        """Return whether a helper hangs, after a look, while it reads this process."""
        self.look()
        return any(helper.reading == pid for helper in self.helpers.helpers)

    def helper(self, user: int) -> int | None:
        """Return the pid of a user's helper."""
        helpers = Tree.below(PROC, self.nursery.pid)
        for pid in helpers.processes.keys() - {self.nursery.pid}:
            with suppress(OSError):
                if helpers.user(pid).uid == user:
                    return pid
        return None


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


@pytest.fixture
def detector() -> Iterator[Detector]:
    """Find in this process; at the end, close the files of all benchmarks of this host."""
    detector = Detector([Fio])
    yield detector
    detector.disown([run.pid for run in detector.followed])


def figures(run: RunState) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the series of a run without those that are times, which depend on when it was looked at."""
    points = [(point.metric.name, point.labels, point.value) for point in run_points(run, 0.0)]
    return {(name, labels): value for name, labels, value in points if "_seconds" not in name}


def written(pid: int) -> int:
    """Return the bytes that a process has passed to write(2) and its kin."""
    return int((PROC / str(pid) / "io").read_text().split("wchar: ")[1].split()[0])


@pytest.mark.parametrize("user", [NOBODY, 0])
def test_the_same_is_found_by_helpers_as_in_this_process(
    scene: Scene, detector: Detector, folder: Path, user: int
) -> None:
    ends = (f"--trigger-file={folder / 'end'}", "--trigger=true")
    output = ("--output=out.json", "--output-format=json")
    pid = scene.fio(folder, "job", "--runtime=1000", "--rate=1m", *output, *ends, user=user)

    def found() -> list[Followed | UserRun]:
        tree, wall = scene.tree(), time.time()
        detector.look(tree, scene.now, wall)
        scene.helpers.look(tree, scene.now, wall)
        runs: tuple[Followed | UserRun, ...] = (*detector.followed, *scene.helpers.followed)
        return [run for run in runs if run.pid == pid]

    assert until(20, lambda: [mark.name for run in found() for mark in run.state("r").phases] == ["job", "job"])
    # With less than a millisecond of work it would have no results.
    assert until(20, lambda: written(pid) > 100_000)
    (folder / "end").touch()
    assert until(30, lambda: [run.ended is not None for run in found()] == [True, True])
    here, there = (run.state("r") for run in found())
    assert any("_phase_result" in name for name, _ in figures(here))
    assert figures(there) == figures(here)
    assert (there.reason, there.blind) == (here.reason, here.blind) == ("", [])


def test_how_a_benchmark_of_another_user_ended_is_known(scene: Scene, folder: Path) -> None:
    pid = scene.fio(folder, "job", "--runtime=1000", "--rate=1m")
    assert until(20, lambda: scene.in_phase(pid, "job"))
    os.kill(pid, signal.SIGTERM)

    assert until(20, lambda: (run := scene.run(pid)) is not None and run.state == "stopped"), scene.run(pid)


def test_a_benchmark_whose_files_hang_blinds_nothing_else(scene: Scene, folder: Path) -> None:
    (folder / "fuse").mkdir()
    hangs = scene.starts(
        [sys.executable, "-c", ON_HANGING_FILES, str(folder / "fuse"), str(shutil.which("fio"))], folder, 0
    )
    assert until(20, lambda: scene.reads(hangs))
    stuck = scene.helper(NOBODY)
    roots = scene.fio(folder, "roots", "--runtime=1000", "--rate=1m", user=0)
    beside = scene.fio(folder, "beside", "--runtime=1000", "--rate=1m")

    assert until(20, lambda: scene.in_phase(roots, "roots"))
    assert not scene.in_phase(beside, "beside")

    scene.now += MAX_ANSWER_SECONDS
    scene.look()
    scene.now += 1
    assert until(20, lambda: scene.in_phase(beside, "beside"))
    assert until(20, lambda: scene.helper(NOBODY) not in (stuck, None)), "the one that hung is still there"
    run = scene.run(hangs)
    assert run is not None
    assert run.blind == ["hung"]
    assert scene.in_phase(roots, "roots")


def test_a_helper_that_its_user_kills_is_replaced_and_finds_the_benchmark_again(scene: Scene, folder: Path) -> None:
    pid = scene.fio(folder, "job", "--runtime=1000", "--rate=1m")
    assert until(20, lambda: scene.in_phase(pid, "job"))
    before = scene.run(pid)
    killed = scene.helper(NOBODY)
    assert killed is not None
    subprocess.run(["kill", "-9", str(killed)], user=NOBODY, group=NOBODY, extra_groups=[], check=True)
    assert until(20, lambda: (run := scene.run(pid)) is not None and run.blind == ["helper"])

    scene.now += 1
    assert until(20, lambda: (run := scene.run(pid)) is not None and run.blind == [])
    after = scene.run(pid)
    assert before is not None
    assert after is not None
    assert [(mark.name, mark.start) for mark in after.phases] == [(mark.name, mark.start) for mark in before.phases]
    assert until(20, lambda: scene.helper(NOBODY) not in (None, killed))
