"""Real benchmarks, observed while they run: by `pinchpoint run`, and by an exporter that knows nothing of that run."""

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

LOADS = Path(__file__).parent / "loads"
POLL = 0.5
"""Seconds between two looks of the exporter."""
TOLERANCE = 3 * POLL
"""Seconds of an idle machine by which two observers of one phase may differ: two looks and a scrape of ours."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


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
    """An exporter with its own run directory, scraped again and again."""

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
        """Return the values that are reported for the phases of a benchmark: 1 for active ones."""
        phases = (self._snapshot() or Snapshot(0)).series("pinchpoint_phase_active")
        return {active for labels, active in phases if labels["benchmark"] == benchmark}

    def watch(self, commands: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, Seen]:
        """Observe until all commands have ended, and the run of each one's benchmark with them."""
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
    """Return the kept record of the run."""
    (directory,) = (tmp_path / "state" / "pinchpoint" / "runs").iterdir()
    return json.loads((directory / "run.json").read_text())["marker"]


def imported(text: Path) -> Any:
    """Return what `pinchpoint import` reads from an output."""
    done = subprocess.run(
        [sys.executable, "-m", "pinchpoint", "import", "--json", str(text)], capture_output=True, check=True, timeout=60
    )
    (found,) = json.loads(done.stdout)["runs"]
    return found


def fio(tmp_path: Path) -> tuple[str, list[str]]:
    job = tmp_path / "two.fio"
    job.write_text(
        f"[global]\ndirectory={tmp_path}\nsize=16m\ntime_based\nruntime=3\nrate=8m\nioengine=psync\n"
        "[seq_write]\nrw=write\nbs=64k\n[rand_read]\nstonewall\nrw=randread\nbs=4k\n"
    )
    return "fio", [program("fio"), str(job)]


def ior(tmp_path: Path) -> tuple[str, list[str]]:
    words = ["-w", "-r", "-F", "-t", "64k", "-b", "80m", "-i", "1", "-o", str(tmp_path / "data")]
    return "ior", [sys.executable, str(LOADS / "ior.py"), *words]


def mdtest(tmp_path: Path) -> tuple[str, list[str]]:
    return "mdtest", [sys.executable, str(LOADS / "mdtest.py"), "-F", "-n", "2500", "-d", str(tmp_path / "md")]


def ping(tmp_path: Path) -> tuple[str, list[str]]:
    return "ping", [program("ping"), "-c", "15", "-i", "0.5", "127.0.0.1"]


def iperf2(tmp_path: Path) -> tuple[str, list[str]]:
    return "iperf2", [program("iperf"), "-c", "127.0.0.1", "-t", "4", "-i", "1", "-b", "200m", "-p", "{port}"]


def iperf3(tmp_path: Path) -> tuple[str, list[str]]:
    return "iperf3", [program("iperf3"), "-c", "127.0.0.1", "-t", "4", "-b", "200m", "-p", "{port}"]


SERVERS = {"iperf2": ["iperf", "-s", "-p", "{port}"], "iperf3": ["iperf3", "-s", "-p", "{port}"]}
LIVE = {"fio": ["seq_write", "rand_read"], "ior": ["write", "read"]}
"""Phases that an exporter can tell apart without reading the output, in order."""
PROGRAMS = {"fio": "fio", "ping": "ping", "iperf2": "iperf", "iperf3": "iperf3"}
PRINTS_RATES = {"iperf2", "ping"}
BENCHMARKS = [fio, ior, mdtest, ping, iperf2, iperf3]


def with_server(stack: ExitStack, benchmark: str, command: list[str]) -> list[str]:
    """Start the server that a benchmark needs and return the command with its port."""
    if benchmark not in SERVERS:
        return command
    port = str(free_port())
    server = subprocess.Popen([word.format(port=port) for word in SERVERS[benchmark]], stdout=-3, stderr=-3)
    stack.callback(server.wait)
    stack.callback(server.terminate)

    def listens() -> bool:
        state = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        return f":{int(port):04X} " in state

    assert until(10, listens)
    return [word.format(port=port) for word in command]


@pytest.mark.parametrize("make", BENCHMARKS, ids=lambda make: make.__name__)
def test_a_run_and_an_exporter_that_knows_nothing_of_it_see_the_same(
    make: Any, tmp_path: Path, observer: Observer
) -> None:
    benchmark, command = make(tmp_path)
    with ExitStack() as stack:
        seen = observer.watch({benchmark: run(tmp_path, with_server(stack, benchmark, command))})[benchmark]
    own = record(tmp_path)
    phases = [phase for phase in own["phases"] if phase["source"] != "stdout"]

    assert own["benchmark"] == benchmark
    assert own["state"] == seen.states[-1] == "finished"
    assert "running" in seen.states
    assert all(phase["results"] for phase in phases), phases
    if benchmark in LIVE:
        assert [phase["name"] for phase in own["phases"]] == list(seen.spans) == LIVE[benchmark]
    for phase in phases:
        if phase["name"] in seen.spans:
            first, last = seen.spans[phase["name"]]
            assert abs(first - phase["start"]) < patience(TOLERANCE)
            assert abs(last - phase["end"]) < patience(TOLERANCE + 2 * (benchmark == "mdtest"))


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Seen, Path]]]:
    """What one exporter has seen of all benchmarks, started at once, and each one's output file."""
    directory = tmp_path_factory.mktemp("at-once")
    observer = Observer(directory / "runs")
    outputs, loads = {}, {}
    with ExitStack() as stack:
        stack.callback(observer.process.wait)
        stack.callback(observer.process.terminate)
        for make in BENCHMARKS:
            if PROGRAMS.get(make.__name__) and shutil.which(PROGRAMS[make.__name__]) is None:
                continue
            (own := directory / make.__name__).mkdir()
            benchmark, command = make(own)
            whole = with_server(stack, benchmark, command)
            outputs[benchmark] = own / "output.txt"
            with outputs[benchmark].open("wb") as file:
                loads[benchmark] = subprocess.Popen(whole, stdout=file, stderr=subprocess.DEVNULL, cwd=own)
        hidden = {benchmark for benchmark, load in loads.items() if not os.access(f"/proc/{load.pid}/fd", os.R_OK)}
        seen = observer.watch(loads)
        yield {benchmark: (seen[benchmark], outputs[benchmark]) for benchmark in loads if benchmark not in hidden}


@pytest.mark.parametrize("benchmark", [make.__name__ for make in BENCHMARKS])
def test_results_of_a_benchmark_that_somebody_else_started_are_known_when_it_has_ended(
    benchmark: str, at_once: dict[str, tuple[Seen, Path]]
) -> None:
    if benchmark not in at_once:
        pytest.skip(f"{PROGRAMS[benchmark]} is not installed, or has privileges: its output is hidden, proc(5)")
    seen, output = at_once[benchmark]
    text = {
        (phase["phase"], result["operation"], result["unit"]): result["value"]
        for phase in imported(output)["phases"]
        for result in phase["results"]
    }

    assert seen.results == pytest.approx(text)
    assert text
    assert bool(seen.rates) == (benchmark in PRINTS_RATES)


@pytest.mark.parametrize(("number", "state"), [(signal.SIGKILL, "failed"), (signal.SIGTERM, "stopped")])
def test_a_benchmark_that_is_killed_has_failed_and_one_that_is_stopped_has_not(
    tmp_path: Path, observer: Observer, number: signal.Signals, state: str
) -> None:
    benchmark, command = mdtest(tmp_path)
    load = subprocess.Popen(command, stdout=-3)
    assert until(20, lambda: 1.0 in observer.active(benchmark))
    load.send_signal(number)
    load.wait()
    seen = observer.watch({benchmark: load})[benchmark]

    assert observer.active(benchmark) == {0.0}
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15):
        assert seen.states[-1] == state
