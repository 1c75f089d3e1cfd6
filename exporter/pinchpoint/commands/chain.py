"""``pinchpoint watch --chain``: who makes the benchmarks on this host wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping

from pinchpoint.benchmarks.workloads import Workload
from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.probes.benchmark import BenchmarkProbe
from pinchpoint.probes.path import PATH_LOOK_SECONDS, PATH_WINDOW_SECONDS, RECENT_WINDOWS, Path
from pinchpoint.terminal.plain import fail
from pinchpoint.waits.chain import KIND_WORDS, SELF, Chain, Kind, Step

__all__ = ["listing", "show"]

RUN_LOOK_SECONDS = 2.0
"""Seconds until it is known which processes belong to which run."""
RUN_LOOK_INTERVAL_SECONDS = 0.5
MIN_SHARE = 0.005
"""Share of the time from which a node is listed."""
MAX_LISTED_NODES = 12


def show(config: Config, interval: float, *, once: bool) -> int:
    """Print listings until interrupted, or only one; return the exit status. Raises ConfigError."""
    host = build_host(config)
    runs, path = BenchmarkProbe(host), Path(host)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        _look(runs, RUN_LOOK_SECONDS)
        while True:
            found: dict[Workload, Chain] = {}
            for _ in range(RECENT_WINDOWS):
                for workload, chain in _window(runs, path).items():
                    found.setdefault(workload, Chain()).add(chain)
            if path.reason:
                fail(f"no chains here: {path.reason}", 1)
            for line in listing({workload: path.joined(chain) for workload, chain in found.items()}):
                print(line)
            sys.stdout.flush()
            if once:
                return 0
            print()
            _look(runs, interval)
    except KeyboardInterrupt:
        return 0
    finally:
        path.close()


def _look(runs: BenchmarkProbe, seconds: float) -> None:
    """Look for benchmarks for some time."""
    end = time.monotonic() + seconds
    while True:
        runs.sample(time.monotonic())
        if (left := end - time.monotonic()) <= 0:
            return
        time.sleep(min(left, RUN_LOOK_INTERVAL_SECONDS))


def _window(runs: BenchmarkProbe, path: Path) -> Mapping[Workload, Chain]:
    """Return what was seen in a window."""
    runs.sample(time.monotonic())
    now = time.monotonic()
    if path.begin(now):
        end = now + PATH_WINDOW_SECONDS
        while not path.spent and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, PATH_LOOK_SECONDS))
    return path.finish(time.monotonic())


def listing(found: Mapping[Workload, Chain]) -> Iterator[str]:
    """Yield the lines of a listing."""
    if not any(chain.seconds for chain in found.values()):
        yield "No benchmark works on this host, or all its threads are asleep."
        return
    for (benchmark, run), chain in found.items():
        if not chain.seconds:
            continue
        asleep = f"; {chain.asleep:,} threads that were asleep are left out" if chain.asleep else ""
        yield f"{run or benchmark}: where its threads' time goes ({chain.waits:,} waits{asleep})"
        for step in chain.steps()[:MAX_LISTED_NODES]:
            if step.share >= MIN_SHARE:
                yield f"{step.share:6.1%}  {_name(step):<32} {_kinds(step.kinds)}"
        if way := chain.heaviest():
            yield f"  {run or benchmark} <- {' <- '.join(map(str, way))}"


def _name(step: Step) -> str:
    return "itself" if step.node == SELF else str(step.node)


def _kinds(kinds: Mapping[Kind, float]) -> str:
    shares = sorted(kinds.items(), key=lambda one: -one[1])
    return ", ".join(f"{KIND_WORDS[kind]} {share:.1%}" for kind, share in shares if share >= MIN_SHARE)
