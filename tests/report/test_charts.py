from __future__ import annotations

import pytest

from pinchpoint.report.charts import MAX_MARKS, _marks
from pinchpoint.runs import MAX_TIME_SECONDS


@pytest.mark.parametrize("seconds", [0.0, 1.0, 59.0, 3600.0, 86_400.0, 1e7, 1.7e9, MAX_TIME_SECONDS])
def test_a_time_axis_has_few_marks_however_long_the_run(seconds: float) -> None:
    marks = _marks(seconds)

    assert 1 <= len(marks) <= MAX_MARKS + 1
    assert marks[-1] <= seconds
