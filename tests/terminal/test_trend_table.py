from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.knobs import Settings
from pinchpoint.diagnosis.trend import trends
from pinchpoint.runs import PhaseMark, Result, RunState
from pinchpoint.terminal.trend import FASTER, SLOWER, trend_parts


@pytest.mark.parametrize(("unit", "style"), [("bytes_per_second", FASTER), ("seconds", SLOWER)])
def test_a_rise_is_better_unless_it_is_one_of_time(unit: str, style: str) -> None:
    runs = [
        RunState(f"r{day}", "fio", 86400.0 * day, phases=[PhaseMark("p", 0.0, 9.0, [Result("write", unit, value)])])
        for day, value in enumerate([*[100.0, 101.0] * 5, *[150.0, 151.0] * 5])
    ]
    table = next(iter(trend_parts(trends(runs), runs, [Settings(run.run, {}) for run in runs])))

    assert isinstance(table, Table)
    assert [cell.style for cell in table.columns[4].cells if isinstance(cell, Text)] == [style]
