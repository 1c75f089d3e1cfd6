"""A change of what limits a benchmark is in the sentence of the dashboard within five seconds, in a browser."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping
from functools import partial
from pathlib import Path

import psutil
import pytest

from lab.browser import page
from native import Stack
from polling import until
from ports import stack_ports

GROUP = "Alerts"
SECONDS = 5.0
"""Until a change is on the screen, in the median."""
CHANGES = 8
BETWEEN = 7.3
"""Seconds between two changes: no multiple of any interval."""
ALTERNATE = Path(__file__).resolve().parent.parent / "loads" / "alternate.py"
SENTENCE = '(document.querySelector(".markdown-html") || {innerText: ""}).innerText'
COMPUTES = ("benchmark of", "cpu of")
"""Begin the sentence while the load computes; the browser is on the same CPUs."""


@contextlib.contextmanager
def alternating(file: Path, runs: Path, state: Path) -> Iterator[psutil.Process]:
    """Run the load as a benchmark that is marked in `runs` and kept under `state`."""
    load = [sys.executable, str(ALTERNATE), str(file)]
    command = [sys.executable, "-m", "pinchpoint", "run", "--quiet", f"--path.runs={runs}", "--", *load]
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as run:
        try:
            found = until(20, lambda: [one for one in psutil.Process(run.pid).children() if one.cmdline() == load])
            assert found, "the load did not start"
            yield found[0]
        finally:
            run.terminate()


@pytest.mark.long
def test_a_change_of_the_limit_is_on_the_screen_within_five_seconds(
    tmp_path: Path, disk_path: Path, measured: MutableMapping[str, str]
) -> None:
    runs = tmp_path / "runs"
    stack = Stack(tmp_path / "stack", stack_ports("grafana"), runs=runs)
    if (chromium := shutil.which("chromium")) is None or "grafana" not in stack.commands():
        pytest.skip("not installed: chromium, or Grafana (GRAFANA_HOME)")
    with contextlib.ExitStack() as running:
        running.enter_context(stack)
        load = running.enter_context(alternating(disk_path / "written", runs, tmp_path / "kept"))
        screen = running.enter_context(page(chromium, tmp_path / "profile", width=1366, height=768))
        screen.open(f"{stack.urls['grafana']}/d/pinchpoint-bottleneck?refresh=1s&from=now-5m&to=now&kiosk")

        def computes(wanted: bool) -> bool:
            return str(screen.evaluate(SENTENCE)).startswith(COMPUTES) is wanted

        assert until(60, partial(computes, True), pause=0.1), screen.evaluate(SENTENCE)
        times = []
        for wanted in (False, True) * (CHANGES // 2):
            time.sleep(BETWEEN)
            began = time.monotonic()
            load.send_signal(signal.SIGUSR1)
            assert until(30, partial(computes, wanted), pause=0.1), screen.evaluate(SENTENCE)
            times.append(time.monotonic() - began)

    median = statistics.median(times)
    measured["on the screen after"] = f"{median:.1f} s ({min(times):.1f} to {max(times):.1f})"
    assert median <= SECONDS
