from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from native import TREE, Stack
from polling import get_json, until


def burning(process: psutil.Process) -> bool:
    """Return whether a job of this fio has used CPU time."""
    return any(child.cpu_times().user > 0 for child in process.children())


@contextmanager
def one_full_thread(fio: str) -> Iterator[psutil.Process]:
    command = [fio, "--name=burn", "--ioengine=cpuio", "--cpuload=100", "--time_based", "--runtime=300"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        family = psutil.Process(process.pid)
        try:
            yield family
        finally:
            for child in (*family.children(recursive=True), family):
                child.kill()


def test_a_full_thread_shows_within_a_second_alerts_in_time_and_stops_alerting(stack: Stack, fio: str) -> None:
    name = "BenchmarkThreadSaturated"
    groups = yaml.safe_load((TREE / "alerts" / "host.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    pending = next(int(rule["for"].removesuffix("s")) for rule in rules if rule.get("alert") == name)

    def saturated() -> float:
        text = httpx.get(f"{stack.urls['pinchpoint']}/metrics", timeout=5, trust_env=False).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "pinchpoint_resource_saturated_seconds_total"
            # Something else on this host may be called a benchmark too.
            and (sample.labels["resource"], sample.labels["owner"]) == ("benchmark", "fio")
        )

    def received() -> bool:
        alerts = get_json(f"{stack.urls['alertmanager']}/api/v2/alerts")
        return any((alert["labels"]["alertname"], alert["labels"].get("owner")) == (name, "fio") for alert in alerts)

    before = saturated()
    assert not received()
    with one_full_thread(fio) as load:
        assert until(10, lambda: burning(load), pause=0.01)
        start = time.monotonic()

        until(5, lambda: saturated() > before)
        assert time.monotonic() - start < 1

        assert until(start + pending + 15 - time.monotonic(), received, pause=0.2)
    assert until(60, lambda: not received(), pause=0.2)
