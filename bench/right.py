"""Whether each source agrees with ``/proc/PID/task/TID/schedstat``: the section "right" of the page.

A source adds up each thread's use in an interval, at 10 samples a second. Every thread's file is read right before and
right after the first and the last sample. For a thread that was idle meanwhile both must agree to the nanosecond; for
one that ran, the source's figure must lie between the least and the most that the files allow.

Each source runs in its own process: ``right.py --source KIND``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple

from compiled import MissingError
from page import Goal, machine, parser, publish, table
from pinchpoint.bpf.choice import choose_source
from pinchpoint.host.procfs import FormatError, parse_schedstat
from pinchpoint.threads.task_source import KeptFile, TaskSource, raise_file_limit
from samplers import OURS
from workload import ceph_host, running

PROC = Path("/proc")
THREADS = 4_000
AWAKE = 1_000
HZ, DUTY = 4.0, 0.001
INTERVAL = 0.1
SAMPLES = 10

Times = tuple[int, int]
"""Nanoseconds on a CPU and nanoseconds of waiting for one."""


class Agreement(NamedTuple):
    """How well a source agrees with the files, over all threads that ran."""

    ran: int
    """Threads that ran in the interval."""
    quiet: int
    """Those that were idle while the files were read."""
    equal: int
    """Idle ones for which both numbers are the same."""
    largest: int
    """Largest difference of an idle one, in nanoseconds."""
    outside: int
    """Threads, idle or not, whose numbers the files rule out."""
    unseen: int
    """Threads that the source does not know at all; no other number includes them."""


def agreement(
    used: Mapping[int, Times],
    known: Set[int],
    begin: tuple[Mapping[int, Times], ...],
    end: tuple[Mapping[int, Times], ...],
) -> Agreement:
    """Compare a source's figure for each thread with the files before and after its first and its last sample."""
    ran = quiet = equal = largest = outside = 0
    there = set.intersection(*(set(files) for files in (*begin, *end)))
    for tid in there & known:
        (early, late), (first, last) = (files[tid] for files in begin), (files[tid] for files in end)
        said = used.get(tid, (0, 0))
        if early == last:
            outside += said != (0, 0)
            continue
        ran += 1
        outside += not all(first[n] - late[n] <= said[n] <= last[n] - early[n] for n in (0, 1))
        if early == late and first == last:
            quiet += 1
            error = max(abs(said[n] - (first[n] - early[n])) for n in (0, 1))
            equal += not error
            largest = max(largest, error)
    return Agreement(ran, quiet, equal, largest, outside, len(there - known))


class Files:
    """Every thread's schedstat, through kept descriptors where that is possible."""

    def __init__(self) -> None:
        self._files: dict[int, KeptFile] = {}
        for process in filter(str.isdigit, os.listdir(PROC)):
            try:
                for tid in os.listdir(PROC / process / "task"):
                    self._files[int(tid)] = KeptFile(f"/proc/{process}/task/{tid}/schedstat")
            except OSError:
                continue

    def read(self) -> dict[int, Times]:
        """Return the times of every thread that still exists."""
        found = {}
        for tid, file in self._files.items():
            try:
                found[tid] = parse_schedstat(file.read())
            except (OSError, FormatError):
                continue
        return found


def compare(source: TaskSource) -> Agreement:
    """Follow all threads for a second and compare."""
    files = Files()
    source.follow([int(name) for name in os.listdir(PROC) if name.isdigit()], time.monotonic())
    used: dict[int, Times] = defaultdict(lambda: (0, 0))

    def sample() -> None:
        for task, run, wait in source.sample(time.monotonic(), all_tasks=True):
            before = used[task.tid]
            used[task.tid] = before[0] + run, before[1] + wait

    known = {task.tid for task in source.tasks()}
    sample()
    early = files.read()
    sample()
    used.clear()
    late = files.read()
    for _ in range(SAMPLES - 1):
        time.sleep(INTERVAL)
        sample()
    first = files.read()
    sample()
    return agreement(used, known, (early, late), (first, files.read()))


def asked(kind: str) -> Agreement:
    """Return the findings of a separate process. Raises MissingError."""
    done = subprocess.run([sys.executable, __file__, "--source", kind], capture_output=True, text=True)
    if done.returncode:
        raise MissingError((done.stderr.strip().splitlines() or ["no answer"])[-1])
    return Agreement(*json.loads(done.stdout))


def main() -> None:
    """Measure and write the section, or answer for one source."""
    arguments = parser(__doc__)
    arguments.add_argument("--source", choices=OURS, help="answer for one source only")
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    if chosen.source:
        raise_file_limit()
        print(json.dumps(compare(choose_source(PROC, lambda tgid, comm: 1, chosen.source))))
        return
    found: dict[str, list[Agreement]] = {}
    missing: dict[str, str] = {}
    with running(ceph_host(THREADS, AWAKE, hz=HZ, duty=DUTY)) as threads:
        for _ in range(chosen.rounds):
            for kind in OURS:
                try:
                    found.setdefault(kind, []).append(asked(kind))
                except MissingError as error:
                    missing[kind] = str(error)
    rows, goals = [], []
    for kind in OURS:
        what = f"threads of which `{kind}` says what schedstat rules out"
        if kind in missing:
            rows.append([f"`{kind}`", f"not measured: {missing[kind]}", *[""] * 5])
            goals.append(Goal(what, 0, "", missing[kind]))
            continue
        ran, quiet, equal, _, outside, _ = (sum(column) for column in zip(*found[kind], strict=True))
        largest, unseen = (max(getattr(one, name) for one in found[kind]) for name in ("largest", "unseen"))
        share = f"{equal / max(1, quiet):.2%}"
        rows.append([f"`{kind}`", *map(str, (ran, quiet, share, largest, outside, unseen))])
        goals.append(Goal(what, 0, "", outside))
    head = ["source", "threads that ran", "idle while the files were read", "of these equal to the nanosecond",
            "largest difference, ns", "ruled out by the files", "threads that it does not see"]  # fmt: skip
    body = (
        f"{machine()}; {threads:,} threads, of which {AWAKE:,} run {HZ:g} times a second; {chosen.rounds} intervals of "
        f"{SAMPLES * INTERVAL:g} s, all together.\n\n{table(head, rows)}"
    )
    publish("right", body, chosen, goals)


if __name__ == "__main__":
    main()
