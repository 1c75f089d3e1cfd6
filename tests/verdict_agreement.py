"""Whether the rules in alerts/verdict.yml and the code come to the same verdict about the same data.

Prometheus itself evaluates the rules, one after the other as it would live: `promtool test rules` is its engine with a
storage that is fed from a file.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from patience import patience
from pinchpoint.diagnosis.blame import Workload, workloads
from pinchpoint.diagnosis.usage import usage
from pinchpoint.diagnosis.verdict import Verdict, verdict
from pinchpoint.model import Labels, Snapshots

__all__ = ["RULES", "WINDOW", "disagreement"]

RULES = Path(__file__).parents[1] / "alerts" / "verdict.yml"
WINDOW = 15.0
"""Seconds that the rules look back."""
KEPT = 45.0
"""Seconds of a history that the rules can know of: a window, and the time that a run has to be older than that."""
PACE = 15.0
"""Seconds between evaluations. What is compared here looks back on nothing that a rule has recorded."""
TICK = 0.1
"""Seconds to which times are rounded: promtool's series have samples at a steady pace, or gaps."""
JUDGED = 4
"""Runs that the rules judge at a time."""
READ = sorted(set(re.findall(r"\bpinchpoint_\w+", RULES.read_text())))
"""Every metric that the rules read."""
BLAME = "benchmark, run, instance, resource, owner"
SHARE = "benchmark, run, wait"


def disagreement(history: Sequence[Snapshots], folder: Path, *, tolerance: float = 0.05, kinds: bool = True) -> str:
    """Return how rules and code differ about the last window of a history, in promtool's words; empty where they agree.

    Shares and blames may differ by `tolerance`, which is a share of the benchmark's time. With `kinds` the kind of each
    verdict and the limits that it names have to be the same: leave it out where a verdict may be at a border.
    `folder` is where the input of promtool is kept. The hosts of a moment have times of one clock, and the history is
    30 s long or longer.

    Raises ValueError where the history is too short, or has no benchmark in its last window.
    """
    grid = _Grid(history)
    before, after = grid.window()
    hosts = {name: usage(before[name], after[name]) for name in before.keys() & after.keys()}
    found = [work for work in workloads(hosts) if work.total > 0]
    if not found or len(found) > JUDGED:
        raise ValueError(f"{len(found)} benchmarks in the last {WINDOW:g} s, one to {JUDGED} can be compared")
    judged = [(work, verdict(before, after, benchmark=work.benchmark, run=work.run)) for work in found]
    # What must be empty: each difference has the labels of what it is about.
    empty = [
        _difference("pinchpoint:wait:share", "expected:share", SHARE, tolerance),
        _difference("pinchpoint:blame:ratio", "expected:blame", BLAME, tolerance),
    ]
    if kinds:
        empty += _exchange("pinchpoint:verdict:info", "expected:kind", "benchmark, run, kind")
        empty += _exchange('pinchpoint:verdict:info{resource!=""}', "expected:limit", BLAME)
    test = {
        "interval": f"{TICK * 1000:.0f}ms",
        "input_series": [*grid.series(), *_expected(judged)],
        "promql_expr_test": [{"expr": expr, "eval_time": f"{grid.end * TICK:.0f}s"} for expr in empty],
    }
    file = folder / "agreement.yml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": f"{PACE:.0f}s", "tests": [test]}
    file.write_text(yaml.safe_dump(content, width=10_000))
    done = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, timeout=patience(120), check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


class _Grid:
    """A history whose last moment is at a time at which rules are evaluated, in ticks from a time before its first."""

    def __init__(self, history: Sequence[Snapshots]) -> None:
        last = _latest(history[-1])
        kept = [moment for moment in history if last - _latest(moment) <= KEPT]
        seconds = last - _latest(kept[0])
        if seconds < 2 * WINDOW:
            raise ValueError(f"{seconds:.0f} s of data, {2 * WINDOW:.0f} s are needed")
        self.end = round(PACE * (seconds // PACE + 1) / TICK)
        self._last = last
        self._moments = kept

    def tick(self, time: float) -> int:
        return max(0, self.end - round((self._last - time) / TICK))

    def window(self) -> tuple[Snapshots, Snapshots]:
        """Return the first and the last moment that a window up to the end holds."""
        begin = self.end - round(WINDOW / TICK)
        first = next(moment for moment in self._moments if self.tick(_latest(moment)) >= begin)
        return first, self._moments[-1]

    def series(self) -> Iterator[dict[str, str]]:
        """Yield every series that the rules read, as promtool wants it."""
        values: dict[tuple[str, Labels], dict[int, str]] = {}
        for moment in self._moments:
            for host, snapshot in moment.items():
                tick = self.tick(snapshot.time)
                for name in READ:
                    for labels, value in snapshot.values.get(name, {}).items():
                        key = name, (*labels, ("instance", host))
                        values.setdefault(key, {})[tick] = f"{value:.9f}".rstrip("0").rstrip(".")
        seen: dict[str, list[int]] = {}
        for moment in self._moments:
            for host, snapshot in moment.items():
                seen.setdefault(host, []).append(self.tick(snapshot.time))
        for (name, labels), points in values.items():
            later = [tick for tick in seen[dict(labels)["instance"]] if tick > max(points)]
            if later:
                points[later[0]] = "stale"
            yield {"series": _text(name, dict(labels)), "values": _values(points)}


def _latest(moment: Snapshots) -> float:
    return max(snapshot.time for snapshot in moment.values())


def _values(points: Mapping[int, str]) -> str:
    words = []
    at = 0
    for tick in sorted(points):
        if tick > at:
            words.append(f"_x{tick - at}")
        words.append(points[tick])
        at = tick + 1
    return " ".join(words)


def _text(name: str, labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items())
    return f"{name}{{{pairs}}}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _expected(judged: Sequence[tuple[Workload, Verdict]]) -> Iterator[dict[str, str]]:
    for work, found in judged:
        run = {"benchmark": work.benchmark, "run": work.run}
        for wait, share in found.waits.items():
            yield {"series": _text("expected:share", {**run, "wait": wait}), "values": f"{share:.9f}"}
        for limit in found.ranking:
            labels = {**run, "instance": limit.host, "resource": limit.resource, "owner": limit.owner}
            yield {"series": _text("expected:blame", labels), "values": f"{limit.blame:.9f}"}
            if limit in found.limits:
                yield {"series": _text("expected:limit", labels), "values": "1"}
        yield {"series": _text("expected:kind", {**run, "kind": found.kind}), "values": "1"}


def _difference(rule: str, expected: str, labels: str, tolerance: float) -> str:
    """Return what differs by more than `tolerance`; what one side does not have is 0."""
    return (
        f"abs(({rule} or on ({labels}) 0 * {expected}) - on ({labels}) ({expected} or on ({labels}) 0 * {rule}))"
        f" > {tolerance:g}"
    )


def _exchange(rule: str, expected: str, labels: str) -> list[str]:
    """Return what only one side has."""
    return [f"{rule} unless on ({labels}) {expected}", f"{expected} unless on ({labels}) {rule}"]
