"""``pinchpoint watch --stacks``: the kernel stacks that benchmarks on this host wait in, for writing rules."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator

from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.metrics import WAITS_SOURCE_INFO
from pinchpoint.probes.benchmark import BenchmarkProbe
from pinchpoint.probes.waits import Waits
from pinchpoint.threads.task_source import raise_file_limit
from pinchpoint.waits.stack_rules import RUNNING, YIELDS, Stack

__all__ = ["listing", "show"]

MIN_LISTING_SECONDS = 3.0
"""Minimum seconds per listing: it takes a second until the run of a process is known."""
RUN_LOOK_INTERVAL_SECONDS = 0.5
"""Seconds between two looks for runs."""
MAX_LISTED_STACKS = 40
"""Maximum number of stacks listed."""
NEWS = {"data": "by the file system", "flush": "by the file system", "fuse": "by the mount", "parked": "no class"}
"""Texts for rules that name no wait class."""


def show(config: Config, interval: float, *, once: bool) -> int:
    """Print listings until interrupted, or only one; return the exit status. Raises ConfigError."""
    host = build_host(config)
    raise_file_limit()
    runs, waits = BenchmarkProbe(host), Waits(host)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        while True:
            before = {stack.frames: stack.times for stack in waits.stacks}
            source = _sample(runs, waits, max(interval, MIN_LISTING_SECONDS), config.sample_interval)
            for line in listing(waits.stacks, before, source, os.uname().release):
                print(line)
            sys.stdout.flush()
            if once:
                return 0
            print()
    except KeyboardInterrupt:
        return 0
    finally:
        waits.close()


def _sample(runs: BenchmarkProbe, waits: Waits, seconds: float, interval: float) -> str:
    """Sample for some time; return how waits are determined, "" if there were none."""
    began = due = time.monotonic()
    runs_due = began
    while (now := time.monotonic()) - began < seconds:
        if now >= runs_due:
            runs.sample(now)
            runs_due = now + RUN_LOOK_INTERVAL_SECONDS
        waits.sample(now)
        due = max(due + interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    found = [point.labels for point in waits.points() if point.metric.name == WAITS_SOURCE_INFO.name]
    return " - ".join(filter(None, found[0])) if found else ""


def listing(stacks: Iterable[Stack], before: dict[tuple[str, ...], int], source: str, kernel: str) -> Iterator[str]:
    """Yield the lines of a listing of stacks seen more often than `before`, the most frequent first."""
    seen = [(stack.times - before.get(stack.frames, 0), stack) for stack in stacks if stack.frames]
    seen = sorted((entry for entry in seen if entry[0] > 0), key=lambda entry: -entry[0])
    if not seen:
        yield "No thread of a benchmark was seen to wait on this host."
        return
    total = sum(times for times, _ in seen)
    yield f"What threads of benchmarks were seen in, {total} looks ({source}), innermost function first:"
    unknown = []
    for times, stack in seen[:MAX_LISTED_STACKS]:
        if stack.wait is None and stack.slept:
            unknown.append((times, stack))
        elif stack.wait is not None:
            word = f"{stack.wait} ({NEWS[stack.wait]})" if stack.wait in NEWS else stack.wait
            yield _line(times / total, "runs" if stack.wait in (RUNNING, YIELDS) else word, stack)
    if not unknown:
        yield "Every stack that a thread slept in is known to a rule."
        return
    yield "No rule knows (class other):"
    for times, stack in unknown:
        yield _line(times / total, "other", stack)
    yield "A rule for the file that waits-file in the configuration names (its form: waits.toml in the package):"
    yield "  [[rule]]"
    yield '  class = "disk"  # or mds, osd, client, writeback, network, memory, lock, parked'
    yield f'  frames = "{unknown[0][1].frames[0]}"'
    yield f'  seen = "{kernel}"'


def _line(share: float, word: str, stack: Stack) -> str:
    return f"{share:5.0%}  {word:<26} {' < '.join(stack.frames)}"
