"""Growth of a process, and what excludes it."""

from __future__ import annotations

import mmap
import os
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from soak import BLOCKS, HOUR, WARM_UP, Reading, growth, judged, kept, load, repeated, size

TIMES = [2.0 * number for number in range(900)]
"""Seconds of half an hour."""


def walk(steps: Sequence[float]) -> list[float]:
    """Return values that begin at 36 MB and change at some of the times."""
    found = [36.0]
    for number in range(1, len(TIMES)):
        found.append(found[-1] + (steps[number // 60 % len(steps)] if number % 60 == 0 else 0.0))
    return found


def test_a_process_that_never_changes_does_not_grow() -> None:
    assert growth(TIMES, [7.0] * len(TIMES)) == (0.0, 0.0)


def test_a_leak_is_found_with_its_rate() -> None:
    found = growth(TIMES, [36.0 + 0.5 * seconds / HOUR for seconds in TIMES])

    assert [found.slope, found.upper] == pytest.approx([0.5, 0.5])


def test_noise_is_not_growth() -> None:
    generator = random.Random(1)

    assert growth(TIMES, [36.0 + generator.gauss(0, 0.05) for _ in TIMES]).upper < 0.1


def test_what_is_taken_and_freed_again_is_not_growth() -> None:
    arenas = [random.Random(2).randrange(2) if number % 20 else 1 for number in range(len(TIMES))]

    assert growth(TIMES, [36.0 + taken for taken in arenas]) == (0.0, 0.0)


def test_what_is_there_for_a_moment_does_not_count_by_the_median() -> None:
    threads = [3.0] * (len(TIMES) - 1) + [4.0]

    assert growth(TIMES, threads, statistics.median) == (0.0, 0.0)
    assert growth(TIMES, threads).slope > 0.0


def test_memory_that_comes_and_goes_slowly_leaves_growth_possible() -> None:
    """Its readings depend on each other: 900 of them say no more than a few."""
    assert growth(TIMES, walk([0.2, -0.2, -0.2, 0.2])).upper > 0.1


def test_as_many_readings_as_parts_are_enough() -> None:
    assert growth(TIMES[:BLOCKS], [float(number) for number in range(BLOCKS)]).slope == pytest.approx(HOUR / 2)


def test_the_size_of_a_process_is_what_the_kernel_says() -> None:
    before = size(os.getpid())
    # Not from the allocator, which may still have as much that was freed.
    with mmap.mmap(-1, 32_000_000) as ballast:
        ballast.write(bytes(len(ballast)))
        read, write = os.pipe()
        after = size(os.getpid())
    os.close(read)
    os.close(write)

    assert after.descriptors == before.descriptors + 2
    assert after.memory - before.memory > 0.9 * 32


def test_what_goes_wrong_beside_a_measurement_ends_it() -> None:
    def fail(number: int) -> None:
        raise OSError(f"no {number}")

    with pytest.raises(OSError, match="no 0"), repeated(fail):
        pass


def readings(growth: float) -> list[Reading]:
    """Return the readings of a process that grows by so many MB an hour, and much faster during the warm-up."""
    times = [2.0 * number for number in range(1, int(WARM_UP) // 2 + 900)]
    grown = [min(when, WARM_UP) / 60 + growth * when / HOUR for when in times]
    return [Reading(when, "judge", 36.0 + more, 7, 3) for when, more in zip(times, grown, strict=True)]


@pytest.mark.parametrize(("growth", "met"), [(0.05, True), (0.2, False)])
def test_what_a_process_takes_during_the_warm_up_is_no_growth(growth: float, met: bool) -> None:
    table, goals = judged(readings(growth))

    assert "30 minutes after 25" in table
    assert [(goal.what, not goal.broken) for goal in goals] == [
        ("growth of the judge's memory", met),
        ("growth of the judge's descriptors", True),
        ("growth of the judge's threads", True),
    ]


def test_the_readings_of_a_run_that_was_cut_can_be_read(tmp_path: Path) -> None:
    made = readings(0.1)[:3]
    file = tmp_path / "readings.csv"
    assert list(kept(made, file)) == made

    file.write_bytes(file.read_bytes()[:-5])

    assert load(file) == made[:2]
