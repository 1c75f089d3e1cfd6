from __future__ import annotations

import re

import pytest

from pinchpoint.report.palette import PHASES

WRITES, READS, LOOKS, REMOVES, OTHER = PHASES.values()


@pytest.mark.parametrize(
    ("phase", "colour"),
    [
        ("ior_easy_write", WRITES),
        ("mdtest_hard_write", WRITES),
        ("file_creation", WRITES),
        ("ior_rnd4k_easy_read", READS),
        ("mdtest_hard_read", READS),
        ("rand", READS),
        ("find", LOOKS),
        ("mdtest_easy_stat", LOOKS),
        ("mdtest_easy_delete", REMOVES),
        ("tree_removal", REMOVES),
        ("cleanup", REMOVES),
        ("cpu_one_thread", OTHER),
        ("run", OTHER),
    ],
)
def test_a_phase_has_the_colour_of_what_it_does(phase: str, colour: str) -> None:
    """The first matching pattern counts, as in Grafana."""
    assert next(found for pattern, found in PHASES.items() if re.search(pattern, phase)) == colour
