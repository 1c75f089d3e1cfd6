"""How a source's figures are compared with the files: threads 1 to 3, with their times on a CPU and waiting."""

from __future__ import annotations

from right import Agreement, Times, agreement

IDLE = {1: (5, 0)}


def one(used: Times, *files: Times) -> Agreement:
    """Compare the figures for a thread with its file in the four readings."""
    early, late, first, last = ({1: times} for times in files)
    return agreement({1: used}, {1}, (early, late), (first, last))


def test_a_thread_that_did_not_run_is_not_counted() -> None:
    assert agreement({}, {1}, (IDLE, IDLE), (IDLE, IDLE)) == Agreement(0, 0, 0, 0, 0, 0)


def test_a_thread_that_ran_between_the_readings_has_to_agree_to_the_nanosecond() -> None:
    assert one((10, 2), (5, 1), (5, 1), (15, 3), (15, 3)) == Agreement(1, 1, 1, 0, 0, 0)
    assert one((9, 2), (5, 1), (5, 1), (15, 3), (15, 3)) == Agreement(1, 1, 0, 1, 1, 0)
    assert one((10, 7), (5, 1), (5, 1), (15, 3), (15, 3)) == Agreement(1, 1, 0, 5, 1, 0)


def test_one_that_ran_during_a_reading_may_have_used_anything_between_the_files() -> None:
    files = (5, 0), (6, 0), (15, 0), (17, 0)

    assert [one((used, 0), *files).outside for used in (8, 9, 12, 13)] == [1, 0, 0, 1]
    assert one((9, 0), *files).quiet == 0


def test_what_is_said_of_a_thread_that_did_nothing_is_wrong() -> None:
    assert agreement({1: (1, 0)}, {1}, (IDLE, IDLE), (IDLE, IDLE)).outside == 1


def test_a_thread_of_which_nothing_is_said_is_wrong_if_it_ran() -> None:
    ran = {1: (9, 0)}

    assert agreement({}, {1}, (IDLE, IDLE), (ran, ran)) == Agreement(1, 1, 0, 4, 1, 0)


def test_a_thread_that_the_source_does_not_know_is_told_of_and_not_compared() -> None:
    ran = {1: (9, 0)}

    assert agreement({}, set(), (IDLE, IDLE), (ran, ran)) == Agreement(0, 0, 0, 0, 0, 1)


def test_a_thread_that_came_or_went_in_between_is_not_compared() -> None:
    assert agreement({1: (4, 0)}, {1}, (IDLE, IDLE), ({}, {})) == Agreement(0, 0, 0, 0, 0, 0)
