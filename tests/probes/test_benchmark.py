from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from machine import Machine
from pinchpoint.exposition import text
from pinchpoint.model import Snapshot
from pinchpoint.probes.benchmark import LABEL_LIMIT, PHASE_LIMIT, RESULT_LIMIT, Benchmark
from pinchpoint.runs import Marker, PhaseMark, Result

NOW = 1_700_000_000.0
RUN = {"benchmark": "fio", "run": "r"}


@pytest.fixture
def probe(machine: Machine) -> Benchmark:
    machine.process(10, "pinchpoint", start=77)
    return Benchmark(machine.host(), wall=lambda: NOW)


def written(probe: Benchmark, *phases: PhaseMark, **changes: object) -> Snapshot:
    """Write a run's marker, have it read, and return the series."""
    fields: dict[str, object] = {"benchmark": "fio", "pid": 10, "pid_start": 77, "command_pid": 11, "start": NOW}
    probe.host.runs.write(Marker("r", **{**fields, **changes}, phases=list(phases)))  # type: ignore[arg-type]
    return read(probe)


def read(probe: Benchmark) -> Snapshot:
    probe.sample(1.0)
    return Snapshot.of(0, probe.points())


def test_the_phase_that_goes_on_is_active_and_those_before_it_are_not(probe: Benchmark) -> None:
    found = written(probe, PhaseMark("write", NOW, NOW + 1), PhaseMark("read", NOW + 1))

    assert found.value("pinchpoint_phase_active", **RUN, phase="write") == 0
    assert found.value("pinchpoint_phase_active", **RUN, phase="read") == 1
    assert found.value("pinchpoint_phase_start_timestamp_seconds", **RUN, phase="read") == NOW + 1


def test_a_run_that_died_has_no_active_phase(probe: Benchmark, machine: Machine) -> None:
    written(probe, PhaseMark("write", NOW))
    machine.end(10)

    assert read(probe).value("pinchpoint_phase_active", **RUN, phase="write") == 0


def test_results_are_shown_by_operation_and_unit(probe: Benchmark) -> None:
    results = [Result("write", "bytes_per_second", 2e9), Result("write", "operations_per_second", 5e5)]
    found = written(probe, PhaseMark("write", NOW, NOW + 1, results))
    labels = {**RUN, "phase": "write", "operation": "write"}

    assert found.value("pinchpoint_phase_result", **labels, unit="bytes_per_second") == 2e9
    assert found.value("pinchpoint_phase_result", **labels, unit="operations_per_second") == 5e5


def test_a_phase_that_is_repeated_shows_its_last_time(probe: Benchmark) -> None:
    found = written(probe, PhaseMark("stat", NOW, NOW + 1), PhaseMark("x", NOW, NOW), PhaseMark("stat", NOW + 5))

    assert found.value("pinchpoint_phase_active", **RUN, phase="stat") == 1
    assert found.value("pinchpoint_phase_start_timestamp_seconds", **RUN, phase="stat") == NOW + 5


def test_no_run_is_no_series_and_no_failure(probe: Benchmark) -> None:
    assert read(probe).values == {}


def test_series_are_bounded_whatever_a_marker_holds(probe: Benchmark) -> None:
    phases = [PhaseMark(f"phase {number}", NOW, NOW) for number in range(3 * PHASE_LIMIT)]
    phases[-1].results = [Result("write", f"unit {number}", 1.0) for number in range(3 * RESULT_LIMIT)]
    found = written(probe, *phases)

    assert len(found.values["pinchpoint_phase_active"]) == PHASE_LIMIT
    assert len(found.values["pinchpoint_phase_result"]) == RESULT_LIMIT
    assert found.value("pinchpoint_phase_active", **RUN, phase=f"phase {3 * PHASE_LIMIT - 1}") == 0


def test_labels_of_a_hostile_marker_are_short_can_be_printed_and_name_no_series_twice(
    probe: Benchmark, machine: Machine
) -> None:
    names = ["a\nb", "a\rb", "a\x1b[31mb", "a\0b", "x" * 10_000, "x" * 20_000, 'q"\\', "\u202e"]
    marker = {"run": "r", "benchmark": "\x1b]0;owned\7", "pid": 10, "pid_start": 77, "command_pid": 1, "start": NOW}
    phases = [{"name": name, "start": NOW} for name in names]
    machine.write("runs/r.json", json.dumps({**marker, "phases": phases}))
    probe.sample(1.0)
    points = list(probe.points())
    labels = [label for point in points for label in point.labels]

    assert all(label.isprintable() and len(label.encode()) <= LABEL_LIMIT + 2 for label in labels)
    assert len({point[:2] for point in points}) == len(points)
    assert len(list(text_string_to_metric_families(text(points)))) == 2
