from __future__ import annotations

import sys
from types import ModuleType

from pinchpoint import metrics
from pinchpoint.diagnosis import inputs, verdict
from pinchpoint.model import Metric


def imported(module: ModuleType) -> set[ModuleType]:
    """Return a module of the diagnosis and those of the diagnosis whose names it uses."""
    found, waiting = set[ModuleType](), [module]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        homes = {
            str(getattr(value, "__module__", None) or getattr(value, "__name__", "")) for value in vars(one).values()
        }
        waiting += [sys.modules[home] for home in homes if home.startswith("pinchpoint.diagnosis.")]
    return found


def test_every_module_of_a_verdict_that_reads_metrics_is_asked_for_them() -> None:
    readers = {one for one in imported(verdict) if any(isinstance(value, Metric) for value in vars(one).values())}

    assert {"pinchpoint.diagnosis.chains", "pinchpoint.diagnosis.costs"} <= {one.__name__ for one in readers}
    assert {one.__name__ for one in readers} <= {one.__name__ for one in inputs.READERS}


def test_what_no_verdict_depends_on_is_not_asked_for() -> None:
    assert metrics.PATH_PASSED_SECONDS.name in inputs.INPUTS
    assert metrics.PATH_WAKEUPS.name not in inputs.INPUTS


def test_what_is_only_viewed_is_read_by_a_module_that_a_verdict_needs() -> None:
    read = [value for module in inputs.READERS for value in vars(module).values()]

    assert [metric.name for metric in inputs.VIEWED if metric not in read] == []
