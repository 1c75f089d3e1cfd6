from __future__ import annotations

from pinchpoint.benchmarks.talk import MAX_TOLD_PHASES, Found
from pinchpoint.benchmarks.user_run import UserRun, continued
from pinchpoint.runs import PhaseMark, RunState
from toy import Toy


def state(*phases: PhaseMark, begin: float = 1.0) -> RunState:
    return RunState("", "toy", begin, state="running", phases=list(phases))


def found(*phases: PhaseMark, ended: float | None = None) -> Found:
    return Found(7, 99, "toy", 1.0, ended, state(*phases))


def seen(run: RunState) -> list[tuple[str, float, float | None]]:
    return [(mark.name, mark.start, mark.end) for mark in run.phases]


def test_a_phase_that_two_helpers_saw_is_one_with_the_start_that_the_first_one_saw() -> None:
    both = continued(state(PhaseMark("a", 1, 5), PhaseMark("b", 5)), state(PhaseMark("b", 20), begin=9))

    assert seen(both) == [("a", 1, 5), ("b", 5, None)]


def test_a_phase_that_the_second_helper_did_not_find_had_ended_when_the_next_one_began() -> None:
    both = continued(state(PhaseMark("a", 1)), state(PhaseMark("b", 20, 30), PhaseMark("c", 30)))

    assert seen(both) == [("a", 1, 20), ("b", 20, 30), ("c", 30, None)]


def test_a_phase_that_had_ended_and_is_repeated_is_two() -> None:
    both = continued(state(PhaseMark("a", 1, 5)), state(PhaseMark("a", 20)))

    assert seen(both) == [("a", 1, 5), ("a", 20, None)]


def test_phases_stay_while_the_second_helper_has_seen_none() -> None:
    assert seen(continued(state(PhaseMark("a", 1)), state())) == [("a", 1, None)]


def test_phases_do_not_add_up_without_end() -> None:
    run = UserRun(Toy, 1000, 7, 99, 1.0)
    for helper in range(5):
        run.update(found(*(PhaseMark(f"{helper} {number}", 1, 2) for number in range(MAX_TOLD_PHASES))), helper)

    assert len(run.state("r").phases) == MAX_TOLD_PHASES


def test_a_run_keeps_the_time_at_which_it_was_first_said_to_have_begun() -> None:
    run = UserRun(Toy, 1000, 7, 99, 3.0)
    run.update(found(PhaseMark("a", 4)), 1)

    assert (run.state("r").run, run.state("r").start, run.state("r").benchmark) == ("r", 3.0, "toy")


def test_a_run_whose_leader_went_unwatched_has_no_phase_in_progress() -> None:
    run = UserRun(Toy, 1000, 7, 99, 1.0)
    run.update(found(PhaseMark("a", 4)), 1)
    run.update(found(PhaseMark("b", 6)), 2)
    run.end(9.0)

    assert seen(run.state("r")) == [("a", 4, 6), ("b", 6, 9)]
    assert (run.state("r").state, run.ended) == ("finished", 9.0)


def test_what_is_blind_without_a_helper_is_so_until_one_reports_it() -> None:
    run = UserRun(Toy, 1000, 7, 99, 1.0)
    run.blind = ("helper",)
    assert run.state("r").blind == ["helper"]

    run.update(found(PhaseMark("a", 4)), 1)
    assert run.state("r").blind == []
