"""An alert fires within the time that its rule says, and resolves."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

import psutil
import pytest
import yaml

from lab.observer import Observer
from native import TREE
from pinchpoint.wire.sources import TargetSource
from polling import until

GROUP = "Alerts"
NAME = "BenchmarkThreadSaturated"


def pending() -> float:
    """Return the `for` of the alert's rule in seconds."""
    groups = yaml.safe_load((TREE / "alerts" / "host.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return next(float(rule["for"].removesuffix("s")) for rule in rules if rule.get("alert") == NAME)


def burning(process: psutil.Process) -> bool:
    """Return whether a job of this fio has used CPU time."""
    return any(child.cpu_times().user > 0 for child in process.children())


@contextmanager
def one_full_thread() -> Iterator[psutil.Process]:
    if (fio := shutil.which("fio")) is None:
        pytest.skip("fio is not installed (`make setup` as root installs it)")
    command = [fio, "--name=burn", "--ioengine=cpuio", "--cpuload=100", "--time_based", "--runtime=300"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        family = psutil.Process(process.pid)
        try:
            yield family
        finally:
            for child in (*family.children(recursive=True), family):
                child.kill()


def test_a_full_thread_shows_within_a_second_alerts_in_time_and_stops_alerting(
    observer: Observer, measured: MutableMapping[str, str]
) -> None:
    source = TargetSource(f"{observer.stack.urls['pinchpoint']}/metrics")

    def saturated() -> float:
        series = source.snapshot().series("pinchpoint_resource_saturated_seconds_total")
        # Other processes on this host may look like a benchmark too.
        return sum(value for labels, value in series if (labels["resource"], labels["owner"]) == ("benchmark", "fio"))

    before = saturated()
    assert not observer.alerts(alertname=NAME, owner="fio")
    with one_full_thread() as load:
        assert until(10, lambda: burning(load), pause=0.01)
        start = time.monotonic()
        assert until(30, lambda: saturated() > before)
        shown = time.monotonic() - start
        observer.wait_for_alert(NAME, owner="fio")
        alerted = time.monotonic() - start
    observer.wait_until_gone(NAME, owner="fio")

    measured["shown after"] = f"{shown:.2f} s"
    measured["alert after"] = f"{alerted:.1f} s"
    assert shown < 1
    assert alerted < pending() + 15
