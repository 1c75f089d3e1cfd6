"""Ceph's own benchmarks on a real cluster: `pinchpoint run`, looks alone and the printed text agree."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from lab.cluster import Cluster
from patience import Deadline
from pinchpoint.benchmarks.events import State
from pinchpoint.model import Snapshot
from pinchpoint.wire.sources import parse_exposition
from polling import until

PATIENCE = 90.0
PROGRAM = str(Path(sys.executable).with_name("pinchpoint"))
IMAGE = "benchmarked"
KEPT = "kept"
"""Run name of the objects to read: other writes must not replace their record."""
MIB = 1 << 20
FIGURE = r":?\s+([\d.]+)"
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}

Figures = dict[tuple[str, str, str], float]
"""Results by phase, operation and unit."""


@dataclass(frozen=True)
class Command:
    """A benchmark: its command, its phases, and the figures that it prints for them."""

    benchmark: str
    argv: list[str]
    phases: list[str]
    printed: Callable[[str], Figures]


def rados_figures(phase: str) -> Callable[[str], Figures]:
    """Return a reader of rados' output that is as simple as possible."""
    operation = "write" if phase == "write" else "read"

    def printed(text: str) -> Figures:
        found = {
            (phase, operation, "bytes_per_second"): MIB * first(rf"Bandwidth \(MB/sec\){FIGURE}", text),
            (phase, operation, "operations_per_second"): first(rf"Average IOPS{FIGURE}", text),
            (phase, "average_latency", "seconds"): first(rf"Average Latency\(s\){FIGURE}", text),
            (phase, "max_latency", "seconds"): first(rf"Max latency\(s\){FIGURE}", text),
        }
        if "Cleaning up" in text:
            removed, seconds = first(r"Removed (\d+) objects", text), first(r"clean up time :([\d.]+)", text)
            found["cleanup", "removed", "operations"] = removed
            found["cleanup", "removed", "operations_per_second"] = removed / seconds
        return found

    return printed


def rbd_figures(text: str) -> Figures:
    rate = re.search(r"elapsed.*bytes/sec:\s+([\d.]+) ?([KMG]?i?B?)/s", text)
    assert rate, text
    return {
        ("write", "write", "bytes_per_second"): float(rate[1]) * UNITS[rate[2]],
        ("write", "write", "operations_per_second"): first(rf"elapsed.*ops/sec{FIGURE}", text),
    }


def osd_figures(text: str) -> Figures:
    answer = json.loads(text)
    return {
        ("write", "write", "bytes_per_second"): answer["bytes_per_sec"],
        ("write", "write", "operations_per_second"): answer["iops"],
    }


def first(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return float(found[1])


RADOS = ["rados", "bench", "-p", "rbd", "3", "-t", "1"]
"""One operation at a time, which leaves one CPU to others."""
READ = ["--run-name", KEPT]
COMMANDS = {
    "rados write": Command(
        "rados_bench", [*RADOS, "write", "-b", "4096"], ["write", "cleanup"], rados_figures("write")
    ),
    "rados rand": Command("rados_bench", [*RADOS, "rand", *READ], ["rand"], rados_figures("rand")),
    "rbd": Command(
        "rbd_bench",
        ["rbd", "bench", "--io-type", "write", "--io-pattern", "rand", "--io-total", "24M", f"rbd/{IMAGE}"],
        ["write"],
        rbd_figures,
    ),
    "osd": Command(
        # 15,000 blocks of 4 KiB in four objects, which take several seconds.
        "ceph_osd_bench",
        ["ceph", "tell", "osd.0", "bench", str(15_000 * 4096), "4096", str(4 * MIB), "4"],
        ["write"],
        osd_figures,
    ),
}


@pytest.fixture(scope="module")
def cluster(looked_at: Cluster) -> Cluster:
    for command in (
        [*RADOS, "write", "-b", "4096", "--no-cleanup", *READ],
        ["rbd", "create", "--size", "256M", f"rbd/{IMAGE}"],
    ):
        subprocess.run(command, env=looked_at.environment(), check=True, capture_output=True)
    return looked_at


@dataclass(frozen=True)
class Exporter:
    """An exporter of this host that runs as a process of its own."""

    url: str
    runs: Path

    def scrape(self) -> Snapshot:
        answer = httpx.get(f"{self.url}/metrics", timeout=20.0, trust_env=False).raise_for_status()
        return parse_exposition(answer.text, time.time())


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    directory = tmp_path_factory.mktemp("exporter")
    log = directory / "log"
    command = [PROGRAM, "exporter", "--web.listen-address=127.0.0.1:0", f"--path.runs={directory / 'runs'}"]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            said = until(30, lambda: process.poll() is not None or re.search(r"listens on (\S+)\n", log.read_text()))
            assert isinstance(said, re.Match), log.read_text()
            yield Exporter(f"http://{said[1]}", directory / "runs")
        finally:
            process.terminate()


def ids_of(found: Snapshot, benchmark: str) -> set[str]:
    return {
        labels["run"]
        for labels, _ in found.series("pinchpoint_run_start_timestamp_seconds")
        if labels["benchmark"] == benchmark
    }


def watched(
    exporter: Exporter, command: Command, process: subprocess.Popen[bytes], before: set[str]
) -> tuple[str, list[str], Snapshot]:
    """Return the run that the exporter sees while a process runs, its active phases in order, and the last snapshot.

    `before` are the run ids that it showed before the process was started. A phase that is shorter than the time
    between two scrapes may never be seen active.
    """
    active: list[str] = []
    run = ""
    deadline = Deadline(PATIENCE)
    while process.poll() is None and not deadline.over:
        found = exporter.scrape()
        for name in ids_of(found, command.benchmark) - before:
            run = name
        for labels, value in found.series("pinchpoint_phase_active"):
            if value and labels["run"] == run and labels["phase"] not in active:
                active.append(labels["phase"])
        time.sleep(0.2)
    assert process.wait(1.0) == 0, process.stderr and process.stderr.read()

    def ended() -> tuple[str, Snapshot] | None:
        found = exporter.scrape()
        # On a very busy host an exposition may take longer than the whole benchmark.
        name = run or max(ids_of(found, command.benchmark) - before, default="")
        over = found.value("pinchpoint_run_state", benchmark=command.benchmark, run=name, state=State.FINISHED)
        return (name, found) if over else None

    seen = until(PATIENCE, ended, pause=0.2)
    assert seen, (run, active, list(exporter.scrape().series("pinchpoint_run_state")))
    run, found = seen
    return run, active or phases(found, run), found


def figures(found: Snapshot, run: str) -> Figures:
    return {
        (labels["phase"], labels["operation"], labels["unit"]): value
        for labels, value in found.series("pinchpoint_phase_result")
        if labels["run"] == run
    }


def phases(found: Snapshot, run: str) -> list[str]:
    """Return the phases of a run, ordered by start."""
    starts = found.series("pinchpoint_phase_start_timestamp_seconds")
    return [phase for _, phase in sorted((start, labels["phase"]) for labels, start in starts if labels["run"] == run)]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_under_pinchpoint_run_phases_and_results_are_those_that_are_printed(
    cluster: Cluster, exporter: Exporter, command: Command, tmp_path: Path
) -> None:
    environment = cluster.environment() | {"XDG_STATE_HOME": str(tmp_path)}
    target = exporter.url.removeprefix("http://")
    options = [f"--path.runs={exporter.runs}", f"--target={target}"]
    output = tmp_path / "output"

    before = ids_of(exporter.scrape(), command.benchmark)
    with output.open("wb") as file:
        process = subprocess.Popen(
            [PROGRAM, "run", *options, "--", *command.argv], env=environment, stdout=file, stderr=subprocess.PIPE
        )
        with process:
            run, active, found = watched(exporter, command, process, before)
    (kept,) = (tmp_path / "pinchpoint" / "runs").iterdir()
    recorded = json.loads((kept / "run.json").read_bytes())

    assert (kept.name, recorded["marker"]["benchmark"]) == (run, command.benchmark)
    assert [mark["name"] for mark in recorded["marker"]["phases"]] == command.phases
    assert phases(found, run) == command.phases
    assert active == [phase for phase in command.phases if phase in active]
    assert figures(found, run) == pytest.approx(command.printed(output.read_text()))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_only_writes_to_a_file_is_found_with_the_same_phases_and_results(
    cluster: Cluster, exporter: Exporter, command: Command, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    script = f"{shlex.join(command.argv)} > {shlex.quote(str(output))}; exit $?"

    before = ids_of(exporter.scrape(), command.benchmark)
    with subprocess.Popen(["/bin/sh", "-c", script], env=cluster.environment(), stderr=subprocess.PIPE) as process:
        run, active, found = watched(exporter, command, process, before)

    assert phases(found, run) == command.phases
    assert active == [phase for phase in command.phases if phase in active]
    assert figures(found, run) == pytest.approx(command.printed(output.read_text()))
    assert run not in os.listdir(exporter.runs)
