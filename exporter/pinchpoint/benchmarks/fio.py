"""fio: the groups of jobs that run together are its phases, its JSON output has their results.

Which group runs is seen from the processes: fio starts the jobs of a group, one process each, only when those of the
group before have ended (``run_threads`` in backend.c, fio 3.33). So the number of job processes born so far names the
group; the data file that a job has open (``JOB.NUMBER.FILE``) says it directly, and is believed first. With ``thread``
the jobs are threads of the leader, born after its own. What contradicts the plan ends it: then fio is one phase.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
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
OWN_THREADS = 2
"""Threads that fio has before any job: its main one and its helper (``fio_backend`` in backend.c, fio 3.33)."""
FLAGS = frozenset(
    # no_argument and optional_argument in l_opts (init.c, fio 3.33), and options of the type FIO_OPT_STR_SET.
    [
        "append_terse",
        "bandwidth_log",
        "cmdhelp",
        "cpuclock_test",
        "crctest",
        "enghelp",
        "help",
        "memcpytest",
        "merge_blktrace_only",
        "minimal",
        "parse_only",
        "readonly",
        "server",
        "showcmd",
        "version",
        "warnings_fatal",
        "blocksize_unaligned",
        "bs_unaligned",
        "exitall",
        "exitall_on_error",
        "fixedbufs",
        "group_reporting",
        "hipri",
        "new_group",
        "norandommap",
        "refill_buffers",
        "registerfiles",
        "sqthread_poll",
        "stonewall",
        "thread",
        "time_based",
        "userspace_reap",
        "verify_only",
        "wait_for_previous",
        "zero_buffers",
    ]
) | {""}
"""Options whose value, if any, stands behind ``=``; every other takes the next word where it has none."""

Variable = Callable[[str], str]
"""Gives a variable of the environment, empty where it isn't set."""


@dataclass(frozen=True, slots=True)
class Job:
    """One section of a job file, or one ``--name`` of a command line."""

    name: str
    processes: int = 1
    """Number of its processes or threads; 0 where it isn't known."""
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


def parse_job_file(
    text: str,
    defaults: Mapping[str, str] = MappingProxyType({}),
    sections: Collection[str] = (),
    variable: Variable = lambda name: "",
) -> list[Job]:
    """Return the jobs of a job file: an ini file whose ``[global]`` sections hold defaults for what follows.

    `sections` are those to which ``--section`` restricts it. A file that includes another gives no jobs: they aren't
    known from it alone.
    """
    inherited = dict(defaults)
    jobs: list[tuple[str, dict[str, str]]] = []
    options = inherited
    for line in text.splitlines():
        # strip_blank_end (parse.c, fio 3.33): a comment begins anywhere, inside of quotes too.
        line = re.split("[;#]", line, maxsplit=1)[0].strip()
        if not line:
            continue
        if line.startswith("["):
            name = line[1:-1]
            if name.startswith("global"):
                options = inherited
                continue
            options = dict(inherited)
            if not sections or name in sections:
                jobs.append((name, options))
        elif line.startswith("include"):
            return []
        else:
            key, _, value = line.partition("=")
            options[key.strip()] = value.strip()
    return [_job(name, options, variable) for name, options in jobs]


def _job(name: str, options: Mapping[str, str], variable: Variable) -> Job:
    def value(key: str, default: str) -> str:
        # A variable that isn't set is empty (option_dup_subs in options.c, fio 3.33).
        return re.sub(r"\$\{([^}]*)\}", lambda found: variable(found[1]), options.get(key, default))

    barrier = any(value(key, "0") != "0" for key in ("stonewall", "wait_for_previous", "wait_for"))
    processes = value("numjobs", "1")
    return Job(name or "unnamed", int(processes) if re.fullmatch("[0-9]{1,9}", processes) else 0, barrier)


def _arguments(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a command line with their values, and its job files as options without a name."""
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "-" or not word.startswith("-"):
            yield "", word
            continue
        key, equals, value = word.lstrip("-").partition("=")
        key = key.replace("-", "_")
        if not equals and key not in FLAGS and words and not words[0].startswith("-"):
            value = words.pop(0)
        if key:
            yield key, value


def plan(argv: Sequence[str], cwd: Path, variable: Variable = lambda name: "") -> list[Group]:
    """Return the groups that fio will run, in order, from its command line and the job files that it names.

    `variable` gives a variable of fio's environment. Where not every job is known there are no groups.
    """
    defaults: dict[str, str] = {}
    options = defaults
    named: list[tuple[str, dict[str, str]]] = []
    files: list[str] = []
    sections: set[str] = set()
    for key, value in _arguments(argv):
        if key == "":
            files.append(value)
        elif key == "section":
            sections.add(value)
        elif key == "name":
            options = dict(defaults)
            if not sections or value in sections:
                named.append((value, options))
        else:
            options[key] = value
    # parse_options (init.c, fio 3.33): the command line's jobs come first; its defaults and sections hold for the first
    # file alone, and a barrier stands before each further one.
    jobs = [_job(name, options, variable) for name, options in named]
    for file in files:
        found = parse_job_file(_read_job_file(cwd, file), defaults, sections, variable)
        if not found:
            return []
        if file is not files[0]:
            found[0] = replace(found[0], barrier=True)
        jobs += found
        defaults, sections = {}, set()
    return group(jobs) if all(job.processes for job in jobs) else []


def group(jobs: Sequence[Job]) -> list[Group]:
    """Return the jobs by barrier."""
    groups: list[list[Job]] = []
    for job in jobs:
        if job.barrier or not groups:
            groups.append([])
        groups[-1].append(job)
    return [Group(tuple(jobs)) for jobs in groups]


def _read_job_file(cwd: Path, name: str) -> str:
    # "-" is standard input, which is not ours to read; a fifo would be emptied by reading it.
    try:
        if name == "-" or not (cwd / name).is_file():
            return ""
        return read_bytes(cwd / name, FILE_LIMIT).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


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


def _job_names(document: Mapping[str, Any]) -> list[str]:
    return [name for name, _ in results_by_job(document)]


def _timestamp(document: Mapping[str, Any]) -> float:
    return _number(document, "timestamp_ms") or _number(document, "timestamp")


def _elapsed(document: Mapping[str, Any]) -> float:
    jobs = document.get("jobs")
    found = jobs if isinstance(jobs, list) else []
    return max((_number(job, "elapsed") for job in found if isinstance(job, dict)), default=0.0)


def _number(figures: Mapping[str, Any], key: str) -> float:
    value = figures.get(key)
    if not isinstance(value, int | float) or not abs(value) < LARGEST:
        return 0.0
    return float(value)


class Fio(Benchmark):
    """One fio command."""

    name: ClassVar[str] = "fio"
    comm: ClassVar[str] = "fio"
    hint: ClassVar[str] = "give it --output-format=json, or normal,json to read it too"

    def __init__(self, argv: Sequence[str], cwd: Path) -> None:
        options = dict(_arguments(argv))
        self._argv = argv
        self._cwd = cwd
        self._output = options.get("output")
        self._repeats = "status_interval" in options
        self._looked = False
        self._born: dict[int, int] = {}
        self._last = 0
        self._follow(plan(argv, cwd))

    def _follow(self, groups: list[Group]) -> None:
        """Take these groups for the plan; where there are none the whole command is one phase."""
        self.groups = groups or [Group((Job(self.name),))]
        self._by_job = {job.name: index for index, group in enumerate(groups) for job in group.jobs}
        self._ends = list(accumulate(group.processes for group in self.groups))
        self._last = 0

    def look(self, tree: Tree, leader: int) -> str | None:
        """Return the group whose jobs run now."""
        if not self._looked and not self._by_job:
            self._follow(plan(self._argv, self._cwd, lambda name: tree.variable(leader, name)))
        self._looked = True
        processes = tree.children(leader)
        jobs = processes or tree.threads(leader)[OWN_THREADS:]
        newborn = [pid for pid in jobs if pid not in self._born]
        for pid in newborn:
            self._born[pid] = bisect_right(self._ends, len(self._born))
        if not jobs:
            return None
        if newborn and self._by_job:
            index = self._by_file(tree, newborn[-1])
            if index is None:
                index = self._by_births({self._born[pid] for pid in jobs}, threads=not processes)
            if index is None:
                self._follow([])
            else:
                self._last = index
        return self.groups[self._last].phase

    def _by_file(self, tree: Tree, job: int) -> int | None:
        for path in tree.open_files(job):
            name = re.sub(r"\.\d+\.\d+$", "", os.path.basename(path))
            if name in self._by_job:
                return self._by_job[name]
        return None

    def _by_births(self, alive: set[int], *, threads: bool) -> int | None:
        """Return the group, given those that the living jobs are of by the order of birth; None where it can't be so.

        Threads of two groups that live at once are not all jobs: some are an engine's own (librbd, or
        ``io_submit_mode=offload``).
        """
        newest = max(alive)
        if newest >= len(self.groups) or (threads and len(alive) > 1):
            return None
        return max(newest, self._last)

    def results(self, stdout: str, taken: set[int]) -> Mapping[str, list[Result]]:
        """Return the results by group, from the last JSON document that this fio printed or wrote to ``--output``.

        `taken` has the places, counted from 0, of the documents of `stdout` that other fios have printed.
        """
        text = stdout
        if self._output and (path := self._cwd / self._output).is_file():
            # The file is this command's own.
            taken = set()
            try:
                text = read_bytes(path, FILE_LIMIT).decode("utf-8", "replace")
            except OSError:
                text = ""
        found: dict[str, dict[tuple[str, str], float]] = {}
        for name, results in results_by_job(self._own_document(text, taken)):
            if self._by_job and name not in self._by_job:
                continue
            group = self.groups[self._by_job.get(name, 0)]
            sums = found.setdefault(group.phase, {})
            for result in results:
                key = (result.operation, result.unit)
                sums[key] = sums.get(key, 0.0) + result.value
        return {phase: [Result(*key, value) for key, value in sums.items()] for phase, sums in found.items()}

    def _own_document(self, text: str, taken: set[int]) -> dict[str, Any]:
        free = [(place, document) for place, document in enumerate(documents(text)) if place not in taken]
        if self._by_job:
            # Fewer names than planned: with group_reporting a group is one entry, named like its first job.
            some = [found for found in free if self._by_job.keys() >= {*_job_names(found[1])} != set()]
            free = [found for found in some if self._by_job.keys() == {*_job_names(found[1])}] or some
        own: dict[str, Any] = {}
        for place, document in free:
            # Only with --status-interval is there more than one document of a command.
            if own and not (self._repeats and _follows(document, own)):
                break
            own = document
            taken.add(place)
        return own


def _follows(document: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether a document can be the next status of the same command."""
    return (
        _job_names(document) == _job_names(before)
        and _timestamp(document) >= _timestamp(before)
        and _elapsed(document) >= _elapsed(before)
    )
