from __future__ import annotations

import pytest

from pinchpoint.diagnosis.progress import RECENT_END_SECONDS, ActivePhase, active_phases, current_runs
from pinchpoint.model import Snapshot
from pinchpoint.runs import Result

RUN = {"benchmark": "io500", "run": "r"}
NOW = 1000.0


def snapshot(*series: tuple[str, float, dict[str, str]], time: float = NOW) -> Snapshot:
    values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for name, value, labels in series:
        values.setdefault(f"pinchpoint_{name}", {})[tuple(sorted({**RUN, **labels}.items()))] = value
    return Snapshot(time, values)


def phase(name: str, start: float, elapsed: float, *, active: bool) -> list[tuple[str, float, dict[str, str]]]:
    labels = {"phase": name}
    return [
        ("phase_active", float(active), labels),
        ("phase_start_timestamp_seconds", start, labels),
        ("phase_elapsed_seconds", elapsed, labels),
    ]


def result(name: str, operation: str, unit: str, value: float) -> tuple[str, float, dict[str, str]]:
    return "phase_result", value, {"phase": name, "operation": operation, "unit": unit}


def state(name: str) -> list[tuple[str, float, dict[str, str]]]:
    return [("run_state", float(one == name), {"state": one}) for one in ("running", "finished", "failed")]


LIVE = snapshot(
    *phase("ior_easy_write", 800.0, 100.0, active=False),
    *phase("mdtest_easy_write", 900.0, 50.0, active=False),
    *phase("find", 980.0, 20.0, active=True),
    ("phase_number", 3.0, {"phase": "find"}),
    ("phase_progress_ratio", 0.25, {"phase": "find"}),
    ("phase_expected_seconds", 300.0, {"phase": "find"}),
    ("phase_stalled_seconds", 12.0, {"phase": "find"}),
    ("phase_rate", 5.0, {"phase": "find", "operation": "find", "unit": "operations_per_second"}),
    result("mdtest_easy_write", "write", "operations_per_second", 47e3),
    result("ior_easy_write", "write", "operations_per_second", 100.0),
    result("ior_easy_write", "write", "bytes_per_second", 2e9),
    ("run_phases", 12.0, {}),
    ("run_start_timestamp_seconds", 799.0, {}),
    ("run_blind_info", 1.0, {"what": "descriptors"}),
    *state("running"),
)


def test_the_phase_that_goes_on_is_known_with_all_that_is_said_of_it() -> None:
    (found,) = active_phases(LIVE)

    assert (found.benchmark, found.run, found.phase, found.start) == ("io500", "r", "find", 980.0)
    assert (found.number, found.total) == (3, 12)
    assert (found.progress, found.expected, found.stalled, found.elapsed) == (0.25, 300.0, 12.0, 20.0)
    assert found.rates == (Result("find", "operations_per_second", 5.0),)


@pytest.mark.parametrize(
    ("benchmark", "expected", "elapsed", "tail"),
    [
        ("io500", 300.0, 340.0, 40.0),
        ("mdtest", 300.0, 300.0, None),
        ("ior", None, 340.0, None),
        ("fio", 300.0, 340.0, None),
        ("ior", 300.0, None, None),
    ],
)
def test_the_tail_of_a_phase_begins_at_its_stonewall(
    benchmark: str, expected: float | None, elapsed: float | None, tail: float | None
) -> None:
    assert ActivePhase(benchmark, "r", "write", 0.0, expected=expected, elapsed=elapsed).tail == tail


def test_a_run_has_the_main_results_of_its_ended_phases_in_order() -> None:
    (run,) = current_runs(LIVE, active_phases(LIVE))

    assert run.results == (
        ("ior_easy_write", Result("write", "bytes_per_second", 2e9)),
        ("mdtest_easy_write", Result("write", "operations_per_second", 47e3)),
    )
    assert (run.state, run.valid, run.blind, run.end) == ("running", True, ("descriptors",), None)
    assert [one.phase for one in run.phases] == ["find"]


def test_a_run_that_ended_is_shown_for_a_minute_with_its_score() -> None:
    series = [
        *phase("find", 900.0, 50.0, active=False),
        *state("finished"),
        ("run_valid", 0.0, {}),
        ("run_score", 3.2, {"operation": "total", "unit": "score"}),
        ("run_score", 1e9, {"operation": "bandwidth", "unit": "bytes_per_second"}),
    ]
    (run,) = current_runs(snapshot(*series), ())

    assert run.results == (("score", Result("score", "score", 3.2)),)
    assert not run.valid
    assert run.end == 950.0
    assert current_runs(snapshot(*series, time=950.0 + RECENT_END_SECONDS + 1), ()) == ()


def test_a_snapshot_without_benchmarks_has_no_runs() -> None:
    assert active_phases(Snapshot(NOW)) == ()
    assert current_runs(Snapshot(NOW), ()) == ()
