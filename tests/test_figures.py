from __future__ import annotations

import pytest

from pinchpoint.figures import format_figure, format_result
from pinchpoint.runs import Result


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.22 * 2**30, "bytes_per_second", "2.22 GiB/s"),
        (512.0, "bytes_per_second", "512 B/s"),
        (1023.0 * 2**20, "bytes_per_second", "1023 MiB/s"),
        (12_345.0, "operations_per_second", "12.3 kIOPS"),
        (1.78e-4, "seconds", "178 us"),
        (0.0312, "seconds", "31.2 ms"),
        (75.0, "seconds", "75 s"),
        (0.0, "seconds", "0 s"),
        (3.22, "score", "3.22 score"),
    ],
)
def test_figures_have_the_unit_that_a_person_would_use(value: float, unit: str, text: str) -> None:
    assert format_figure(value, unit) == text


def test_a_result_says_what_was_measured() -> None:
    assert format_result(Result("write", "bytes_per_second", 2.0**30)) == "write 1 GiB/s"
