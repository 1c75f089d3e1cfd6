from __future__ import annotations

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.session.retold import MAX_RUN_MOMENTS, TAIL_SECONDS, retold
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
