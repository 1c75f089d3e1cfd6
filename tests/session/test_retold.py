from __future__ import annotations

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.runs import PhaseMark, Result, RunState
from pinchpoint.session.retold import MAX_RUN_MOMENTS, TAIL_SECONDS, level_points, retold
from pinchpoint.session.store import RunRecord

STATE = "pinchpoint_run_state"
VALID = "pinchpoint_run_valid"


def record(marker_end: float | None, *phases: PhaseMark, valid: bool = True) -> RunRecord:
    marker = Marker(
        "r", "fio", 0.0, marker_end, phases=list(phases), valid=valid, pid=0, pid_start=0, command_pid=0
    )  # fmt: skip
    return RunRecord(marker, ["fio"])


def states(kept: RunRecord, final: str) -> dict[float, str]:
    """Return the state of the run at each moment."""
    return {
        snapshot.time: next(labels["state"] for labels, value in snapshot.series(STATE) if value)
        for moment in retold(kept, final)
        for snapshot in moment.values()
    }


def test_a_run_is_in_each_state_in_its_time() -> None:
    found = states(record(40.0, PhaseMark("a", 5.0, 16.0), PhaseMark("b", 20.0, 35.0)), "finished")

    assert found == {
        0.0: "setup", 5.0: "running", 15.0: "running", 16.0: "between", 20.0: "running", 30.0: "running",
        35.0: "between", 40.0: "finished", 45.0: "finished", 60.0: "finished", 75.0: "finished", 90.0: "finished",
    }  # fmt: skip


def test_a_run_that_died_failed_when_it_was_last_seen() -> None:
    found = states(record(None, PhaseMark("a", 5.0, None, moved=12.0)), "died")

    assert found[5.0] == "running"
    assert found[12.0] == "failed"
    assert max(found) <= 12.0 + TAIL_SECONDS


def test_a_result_is_called_invalid_no_earlier_than_there_is_one() -> None:
    mark = PhaseMark("a", 0.0, 20.0, results=[Result("write", "bytes_per_second", 1.0)], valid=False)
    found = {
        snapshot.time: [value for _, value in snapshot.series(VALID)]
        for moment in retold(record(20.0, mark), "finished")
        for snapshot in moment.values()
    }

    assert found[15.0] == []
    assert found[20.0] == [0.0]


def test_a_text_that_tells_of_a_thousand_years_has_bounded_moments() -> None:
    assert sum(1 for _ in retold(record(3.2e10), "finished")) <= MAX_RUN_MOMENTS + 4


def written(value: float) -> PhaseMark:
    return PhaseMark("write", 0.0, 10.0, results=[Result("write", "bytes_per_second", value)])


def test_of_phases_with_one_name_the_last_one_has_the_levels() -> None:
    runs = [
        RunState(f"r{number}", "fio", 100.0 * number, phases=[written(30.0 if number < 6 else 60.0), written(50.0)])
        for number in range(12)
    ]
    found = level_points(runs, [0.0] * 12)["r11"]

    assert {(point.metric.name.removeprefix("pinchpoint_result_level"), point.value) for point in found} == {
        ("", 50.0), ("_start_timestamp_seconds", 0.0)
    }  # fmt: skip


def test_levels_come_at_the_end_of_a_run() -> None:
    kept = record(40.0, written(1.0))
    levels = level_points([kept.marker], [0.0])["r"]
    times = [
        snapshot.time
        for moment in retold(kept, "finished", levels)
        for snapshot in moment.values()
        if "pinchpoint_result_level" in snapshot.values
    ]

    assert min(times) == 40.0
