"""fio: the groups of jobs that run together are its phases, its JSON output has their results.

Which group runs is seen from the processes: fio starts the jobs of a group, one process each, only when those of the
group before have ended (``run_threads`` in backend.c, fio 3.33). So the number of job processes born so far names the
group; the data file that a job has open (``JOB.NUMBER.FILE``) says it directly, and is believed first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pinchpoint.benchmarks.base import Benchmark, Tree
from pinchpoint.procfs import read_bytes
from pinchpoint.runs import Result

__all__ = ["Fio", "Group", "documents", "parse_job_file", "plan", "results_by_job"]

FILE_LIMIT = 64 << 20
"""Longest job file or output file that is read, in bytes."""
LARGEST = 2.0**63
"""A figure that is not below this is none (JSON allows NaN, Infinity and integers of any length)."""
NAME_LIMIT = 64
"""Longest name of a phase, in characters."""


@dataclass(frozen=True, slots=True)
class Job:
    """One section of a job file, or one ``--name`` of a command line."""

    name: str
    processes: int = 1
    barrier: bool = False
    """Whether it starts only after every job before it has ended."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that run together: one phase."""

    jobs: tuple[Job, ...]

    @property
    def phase(self) -> str:
        """The name of the phase: its jobs' names."""
        return "+".join(job.name for job in self.jobs)[:NAME_LIMIT]

    @property
    def processes(self) -> int:
        """The number of job processes."""
        return sum(job.processes for job in self.jobs)


def parse_job_file(text: str) -> list[Job]:
    """Return the jobs of a job file: an ini file whose ``[global]`` sections hold defaults for what follows."""
    defaults: dict[str, str] = {}
    jobs: list[tuple[str, dict[str, str]]] = []
    options = defaults
    for line in text.splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            name = line[1:].partition("]")[0].strip()
            if name.lower() == "global":
                options = defaults
            else:
                options = dict(defaults)
                jobs.append((name, options))
        else:
            key, _, value = line.partition("=")
            options[key.strip()] = value.strip()
    return [_job(name, options) for name, options in jobs]


def _job(name: str, options: Mapping[str, str]) -> Job:
    barrier = any(options.get(key, "0") != "0" for key in ("stonewall", "wait_for_previous"))
    processes = options.get("numjobs", "1")
    return Job(name or "unnamed", int(processes) if processes.isdigit() else 1, barrier)


def plan(argv: Sequence[str], cwd: Path) -> list[Group]:
    """Return the groups that fio will run, in order, from its command line and the job files that it names."""
    defaults: dict[str, str] = {}
    options = defaults
    named: list[tuple[str, dict[str, str]]] = []
    jobs: list[Job] = []
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-"):
            jobs += _read_job_file(cwd / word)
            continue
        key, equals, value = word.lstrip("-").partition("=")
        if key == "name":
            value = value if equals else next(words, "")
            options = dict(defaults)
            named.append((value, options))
        elif key == "section":
            continue
        else:
            options[key.replace("-", "_")] = value
    jobs += [_job(name, options) for name, options in named]
    return group(jobs)


def group(jobs: Sequence[Job]) -> list[Group]:
    """Return the jobs by barrier."""
    groups: list[list[Job]] = []
    for job in jobs:
        if job.barrier or not groups:
            groups.append([])
        groups[-1].append(job)
    return [Group(tuple(jobs)) for jobs in groups]


def _read_job_file(path: Path) -> list[Job]:
    # "-" is standard input, which is not ours to read; a fifo would be emptied by reading it.
    if not path.is_file():
        return []
    try:
        return parse_job_file(read_bytes(path, FILE_LIMIT).decode("utf-8", "replace"))
    except OSError:
        return []


def documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON documents of fio's output, among whatever other lines there are.

    With ``--status-interval`` there are several; on SIGINT a line of text comes first.
    """
    decoder = json.JSONDecoder()
    at = 0
    while (found := re.compile(r"^\{", re.MULTILINE).search(text, at)) is not None:
        try:
            document, at = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            at = found.end()
            continue
        if isinstance(document, dict) and "fio version" in document:
            yield document


def results_by_job(document: Mapping[str, Any]) -> list[tuple[str, list[Result]]]:
    """Return name and results of each job of one JSON document, in its order."""
    found: list[tuple[str, list[Result]]] = []
    jobs = document.get("jobs")
    for job in jobs if isinstance(jobs, list) else []:
        if not isinstance(job, dict):
            continue
        results = []
        for operation in ("read", "write", "trim"):
            figures = job.get(operation)
            # A job that has not started counts up in job_runtime, but has no runtime of an operation.
            if isinstance(figures, dict) and _number(figures, "runtime") > 0:
                # fio before 3.0 had no bw_bytes: there bw is in KiB/s in every version.
                rate = _number(figures, "bw_bytes") or _number(figures, "bw") * 1024
                results.append(Result(operation, "bytes_per_second", rate))
                results.append(Result(operation, "operations_per_second", _number(figures, "iops")))
        found.append((str(job.get("jobname", "")), results))
    return found


def _timestamp(document: Mapping[str, Any]) -> float:
    return _number(document, "timestamp_ms") or _number(document, "timestamp")


def _number(figures: Mapping[str, Any], key: str) -> float:
    value = figures.get(key)
    if not isinstance(value, int | float) or not abs(value) < LARGEST:
        return 0.0
    return float(value)


class Fio(Benchmark):
    """One fio command."""

    name: ClassVar[str] = "fio"
    comm: ClassVar[str] = "fio"

    def __init__(self, argv: Sequence[str], cwd: Path) -> None:
        self._cwd = cwd
        self.groups = plan(argv, cwd) or [Group((Job("fio"),))]
        self._by_job = {job.name: group for group in self.groups for job in group.jobs}
        self._output = next((word.partition("=")[2] for word in argv if word.startswith("--output=")), None)
        self._born: set[int] = set()
        self._last = 0

    def look(self, tree: Tree, leader: int) -> str | None:
        """Return the group whose job processes run now."""
        jobs = tree.children(leader)
        newborn = [pid for pid in jobs if pid not in self._born]
        self._born.update(jobs)
        if not jobs:
            return None
        if newborn:
            self._last = self._group_of(tree, newborn)
        return self.groups[self._last].phase

    def _group_of(self, tree: Tree, newborn: list[int]) -> int:
        for path in tree.open_files(newborn[-1]):
            name = re.sub(r"\.\d+\.\d+$", "", os.path.basename(path))
            if name in self._by_job:
                return self.groups.index(self._by_job[name])
        born = 0
        for index, group in enumerate(self.groups):
            born += group.processes
            if len(self._born) <= born:
                return max(index, self._last)
        return len(self.groups) - 1

    def results(self, stdout: str) -> Mapping[str, list[Result]]:
        """Return the results by group, from the last JSON document that fio printed or wrote to ``--output``."""
        text = stdout
        if self._output is not None and (path := self._cwd / self._output).is_file():
            try:
                text = read_bytes(path, FILE_LIMIT).decode("utf-8", "replace")
            except OSError:
                text = ""
        found: dict[str, dict[tuple[str, str], float]] = {}
        for name, results in results_by_job(max(documents(text), key=_timestamp, default={})):
            group = self._by_job.get(name, self.groups[0])
            sums = found.setdefault(group.phase, {})
            for result in results:
                key = (result.operation, result.unit)
                sums[key] = sums.get(key, 0.0) + result.value
        return {phase: [Result(*key, value) for key, value in sums.items()] for phase, sums in found.items()}
