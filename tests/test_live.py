"""Real benchmarks, seen while they run: by `pinchpoint run`, and by an exporter that knows nothing of that run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from patience import Deadline, patience
from pinchpoint.model import Snapshot
from pinchpoint.wire.sources import SourceError, TargetSource
from polling import until
from ports import free_port

IOR, MDTEST = (str(Path(__file__).parent / "loads" / name) for name in ("ior.py", "mdtest.py"))
"""What stands in for programs that need MPI."""
POLL = 0.5
"""Seconds between two looks of the exporter."""
TOLERANCE = 3 * POLL
"""Seconds of an idle machine by which two observers of one phase may differ: two looks and a scrape of ours."""


@dataclass
class Seen:
    """What the exporter has shown of one benchmark."""

    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each phase first began, and when it was last active."""
    results: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """By phase, operation and unit."""
    states: list[str] = field(default_factory=list)
    rates: int = 0


class Observer:
    """An exporter with a run directory of its own, scraped again and again."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "pinchpoint", "exporter", f"--web.listen-address=127.0.0.1:{port}"]
        self.process = subprocess.Popen([*command, f"--path.runs={directory}"], stderr=subprocess.DEVNULL)
        self._source = TargetSource(f"127.0.0.1:{port}")
        assert until(30, self._snapshot)

    def _snapshot(self) -> Snapshot | None:
        try:
            return self._source.snapshot()
        except SourceError:
            return None

    def active(self, benchmark: str) -> set[float]:
        """Return what is said of the phases of a benchmark: 1 for those that go on."""
        phases = (self._snapshot() or Snapshot(0)).series("pinchpoint_phase_active")
        return {active for labels, active in phases if labels["benchmark"] == benchmark}

    def watch(self, commands: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, Seen]:
        """Look on until all commands have ended, and the run of each one's benchmark with them."""
        seen = {benchmark: Seen() for benchmark in commands}
        deadline = Deadline(90)
        ended = False
        while not ended and not deadline.over:
            running = any(command.poll() is None for command in commands.values())
            if (snapshot := self._snapshot()) is not None:
                for benchmark in commands:
                    self._take(seen[benchmark], benchmark, snapshot)
                ended = not running and all(
                    one.states[-1:] in (["finished"], ["failed"], ["stopped"]) for one in seen.values()
                )
            time.sleep(0.1)
        assert ended, seen
        return seen

    def _take(self, seen: Seen, benchmark: str, snapshot: Snapshot) -> None:
        def own(name: str) -> list[tuple[dict[str, str], float]]:
            return [found for found in snapshot.series(f"pinchpoint_{name}") if found[0]["benchmark"] == benchmark]

        starts = {labels["phase"]: start for labels, start in own("phase_start_timestamp_seconds")}
        for labels, active in own("phase_active"):
            if active:
                first = seen.spans.get(labels["phase"], (starts[labels["phase"]],))[0]
                seen.spans[labels["phase"]] = (first, snapshot.time)
        for labels, value in own("phase_result"):
            seen.results[labels["phase"], labels["operation"], labels["unit"]] = value
        seen.rates += len(own("phase_rate"))
        for labels, value in own("run_state"):
            if value and seen.states[-1:] != [labels["state"]]:
                seen.states.append(labels["state"])


@pytest.fixture
def observer(tmp_path: Path) -> Iterator[Observer]:
    found = Observer(tmp_path / "other-runs")
    yield found
    found.process.terminate()
    found.process.wait()


def run(tmp_path: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command under `pinchpoint run`."""
    flags = [f"--path.runs={tmp_path / 'runs'}", "--quiet", "--name=live"]
    whole = [sys.executable, "-m", "pinchpoint", "run", *flags, "--", *command]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    return subprocess.Popen(whole, env=environment, cwd=tmp_path, stdout=-3, stderr=-3)


def record(tmp_path: Path) -> Any:
    """Return what the run has kept."""
    (directory,) = (tmp_path / "state" / "pinchpoint" / "runs").iterdir()
    return json.loads((directory / "run.json").read_text())["marker"]


def imported(text: Path) -> Any:
    """Return what `pinchpoint import` reads in an output."""
    done = subprocess.run(
        [sys.executable, "-m", "pinchpoint", "import", "--json", str(text)], capture_output=True, check=True, timeout=60
    )
    (found,) = json.loads(done.stdout)["runs"]
    return found


FIO_JOB = """\
[global]
directory={directory}
size=16m
time_based
runtime=3
rate=8m
ioengine=psync
[seq_write]
rw=write
bs=64k
[rand_read]
stonewall
rw=randread
bs=4k
"""


@dataclass(frozen=True)
class Load:
    """A run of a real benchmark, of some seconds; {directory} and {port} stand for what a test gives it."""

    command: Sequence[str]
    job: str = ""
    """What the file `job` of its directory has."""
    server: Sequence[str] = ()
    """The server that it needs, which listens on the port."""
    phases: Sequence[str] = ()
    """Phases that looks alone tell apart, in order; empty where they do not."""
    prints_rates: bool = False

    def prepared(self, stack: ExitStack, directory: Path) -> list[str]:
        """Write the job, start the server and return the command."""
        if shutil.which(self.command[0]) is None:
            pytest.skip(f"{self.command[0]} is not installed")
        (directory / "job").write_text(self.job.format(directory=directory))
        port = free_port()
        if self.server:
            words = [word.format(port=port) for word in self.server]
            server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(server.wait)
            stack.callback(server.terminate)
            assert until(10, lambda: listens(port))
        return [word.format(directory=directory, port=port) for word in self.command]


def listens(port: int) -> bool:
    state = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    return f":{port:04X} " in state


LIVE = {
    "fio": Load(["fio", "{directory}/job"], job=FIO_JOB, phases=["seq_write", "rand_read"]),
    "ior": Load(
        [sys.executable, IOR, "-w", "-r", "-F", "-t", "64k", "-b", "80m", "-i", "1", "-o", "{directory}/data"],
        phases=["write", "read"],
    ),
    "mdtest": Load([sys.executable, MDTEST, "-F", "-n", "2500", "-d", "{directory}/md"]),
    "ping": Load(["ping", "-c", "24", "-i", "0.5", "127.0.0.1"], prints_rates=True),
    "iperf2": Load(
        ["iperf", "-c", "127.0.0.1", "-t", "4", "-i", "1", "-b", "200m", "-p", "{port}"],
        server=["iperf", "-s", "-p", "{port}"],
        prints_rates=True,
    ),
    "iperf3": Load(
        ["iperf3", "-c", "127.0.0.1", "-t", "4", "-b", "200m", "-p", "{port}"],
        server=["iperf3", "-s", "-p", "{port}"],
    ),
}
"""By the name of the benchmark."""


@pytest.mark.parametrize("benchmark", LIVE)
def test_a_run_and_an_exporter_that_knows_nothing_of_it_see_the_same(
    benchmark: str, tmp_path: Path, observer: Observer
) -> None:
    with ExitStack() as stack:
        seen = observer.watch({benchmark: run(tmp_path, LIVE[benchmark].prepared(stack, tmp_path))})[benchmark]
    own = record(tmp_path)
    phases = [phase for phase in own["phases"] if phase["source"] != "stdout"]

    assert own["benchmark"] == benchmark
    assert own["state"] == seen.states[-1] == "finished"
    assert "running" in seen.states
    assert all(phase["results"] for phase in phases), phases
    if LIVE[benchmark].phases:
        assert [phase["name"] for phase in own["phases"]] == list(seen.spans) == LIVE[benchmark].phases
    for phase in phases:
        if phase["name"] in seen.spans:
            first, last = seen.spans[phase["name"]]
            assert abs(first - phase["start"]) < patience(TOLERANCE)
            assert abs(last - phase["end"]) < patience(TOLERANCE + 2 * (benchmark == "mdtest"))


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Seen, Path]]]:
    """What an exporter has seen of all of them, started at once, and the file into which each one printed."""
    directory = tmp_path_factory.mktemp("at-once")
    observer = Observer(directory / "runs")
    outputs, loads = {}, {}
    with ExitStack() as stack:
        stack.callback(observer.process.wait)
        stack.callback(observer.process.terminate)
        for benchmark, load in LIVE.items():
            if shutil.which(load.command[0]) is None:
                continue
            (own := directory / benchmark).mkdir()
            command = load.prepared(stack, own)
            outputs[benchmark] = own / "output.txt"
            with outputs[benchmark].open("wb") as file:
                loads[benchmark] = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, cwd=own)
        hidden = {name for name, process in loads.items() if not os.access(f"/proc/{process.pid}/fd", os.R_OK)}
        seen = observer.watch(loads)
        yield {benchmark: (seen[benchmark], outputs[benchmark]) for benchmark in loads if benchmark not in hidden}


@pytest.mark.parametrize("benchmark", LIVE)
def test_results_of_a_benchmark_that_somebody_else_started_are_known_when_it_has_ended(
    benchmark: str, at_once: dict[str, tuple[Seen, Path]]
) -> None:
    if benchmark not in at_once:
        program = LIVE[benchmark].command[0]
        pytest.skip(f"{program} is not installed, or has privileges: its output is hidden, proc(5)")
    seen, output = at_once[benchmark]
    text = {
        (phase["phase"], result["operation"], result["unit"]): result["value"]
        for phase in imported(output)["phases"]
        for result in phase["results"]
    }

    assert seen.results == pytest.approx(text)
    assert text
    assert bool(seen.rates) == LIVE[benchmark].prints_rates


@pytest.mark.parametrize(("number", "state"), [(signal.SIGKILL, "failed"), (signal.SIGTERM, "stopped")])
def test_a_benchmark_that_is_killed_has_failed_and_one_that_is_stopped_has_not(
    tmp_path: Path, observer: Observer, number: signal.Signals, state: str
) -> None:
    with ExitStack() as stack:
        load = subprocess.Popen(LIVE["mdtest"].prepared(stack, tmp_path), stdout=-3)
    assert until(20, lambda: 1.0 in observer.active("mdtest"))
    load.send_signal(number)
    load.wait()
    seen = observer.watch({"mdtest": load})["mdtest"]

    assert observer.active("mdtest") == {0.0}
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15):
        assert seen.states[-1] == state
