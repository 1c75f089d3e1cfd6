"""`make example-runs`, as a user calls it, with a real Prometheus that keeps collecting."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import example_runs
from native import Stack
from patience import patience
from polling import get_json, until

SCORES = 'last_over_time(pinchpoint_run_score{unit="score"}[1d])'


def make(state: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, example_runs.__file__, "--state", str(state)]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(300), check=False)


def ask(stack: Stack, query: str) -> list[float]:
    answer = get_json(f"{stack.urls['prometheus']}/api/v1/query?query={query}&time={time.time()}")
    return [float(series["value"][1]) for series in answer["data"]["result"]]


def test_the_diary_is_in_prometheus_once_and_what_was_collected_is_still_there(stack: Stack) -> None:
    def collected_since() -> float:
        return float(get_json(f"{stack.urls['prometheus']}/api/v1/status/tsdb")["data"]["headStats"]["minTime"])

    def blocks() -> dict[str, float]:
        found = (stack.state / "prometheus").glob("*/meta.json")
        return {path.parent.name: json.loads(path.read_bytes())["maxTime"] for path in found}

    assert until(30, lambda: ask(stack, "up"))
    since = collected_since()
    first = make(stack.state)
    scores = ask(stack, SCORES)
    made = blocks()
    second = make(stack.state)

    assert (first.returncode, first.stderr) == (0, "")
    assert "Prometheus has 18 example runs" in first.stdout
    assert (len(scores), min(scores), max(scores)) == (18, 2.11622, 11.2798)
    assert second.stdout.splitlines()[1:] == first.stdout.splitlines()[1:]
    # Prometheus may have merged blocks meanwhile, but there is nothing new in them.
    assert ask(stack, SCORES) == scores
    assert max(blocks().values()) == max(made.values())
    assert list(stack.state.glob("examples-*")) == []
    # When a server starts, it drops from memory everything older than its newest block.
    assert max(made.values()) < since == collected_since()


def test_without_a_stack_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = make(tmp_path)

    assert done.returncode == 3
    assert done.stderr == "The local stack does not run; `make up` starts it.\n"
