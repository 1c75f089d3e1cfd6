"""A change of what limits a benchmark is in Prometheus, where dashboards take their sentence from, within seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping

from lab.observer import Observer
from polling import until
from proofs import faults
from proofs.test_alert_in_time import one_full_thread

GROUP = "Alerts"
SECONDS = 9.0
"""Until a change is in Prometheus."""


def test_a_change_of_the_limit_is_in_prometheus_within_seconds(
    observer: Observer, measured: MutableMapping[str, str]
) -> None:
    def limits() -> set[str]:
        found = observer.query('pinchpoint_verdict_info{benchmark="fio"}')
        return {series["metric"].get("resource", "") for series in found}

    def seconds_until(condition: Callable[[], bool]) -> float:
        began = time.monotonic()
        assert until(30, condition, pause=0.1), limits()
        return time.monotonic() - began

    with one_full_thread() as load:
        seconds_until(lambda: limits() == {"benchmark"})
        with faults.cgroup("cpu", faults.quota(0.3)) as group:
            for process in (load, *load.children()):
                (group / "cgroup.procs").write_text(str(process.pid))
            limited = seconds_until(lambda: limits() == {"cpu_quota"})
        free = seconds_until(lambda: limits() == {"benchmark"})

    measured["a CPU quota after"] = f"{limited:.1f} s"
    measured["a full thread after"] = f"{free:.1f} s"
    assert max(limited, free) < SECONDS
