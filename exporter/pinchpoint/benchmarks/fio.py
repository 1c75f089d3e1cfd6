"""fio: the groups of jobs that run together are its phases.

The processes show the current group: fio starts the jobs of a group, one process each, only when those of the previous
one have ended (``run_threads`` in backend.c, fio 3.33). So the number of job processes started so far identifies the
group; the data file that a job has open (``JOB.NUMBER.FILE``) names it directly and takes precedence. With ``thread``,
which some engines force, the jobs are threads of the leader, started after its own. If anything contradicts the plan,
fio is one phase.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from types import MappingProxyType
from typing import ClassVar

import msgspec

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import Ended, Event, PhaseSource, Rate, State
from pinchpoint.benchmarks.fio_output import FioOutput, group_name
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.tail import Tail
from pinchpoint.benchmarks.tree import OpenFile, Tree
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.host.procfs import read_bytes
from pinchpoint.units import TICKS_PER_SECOND

__all__ = ["Fio", "JobGroup", "parse_job_file", "parse_time", "plan"]

OWN_THREADS = 2
"""Threads that fio has before any job: main and helper (``fio_backend`` in backend.c, fio 3.33)."""
THREAD_ENGINES = frozenset({"gfapi_async", "http", "rados", "rbd"})
"""Engines whose jobs are threads, whatever the options say (``use_thread = 1`` in engines/, fio 3.33 to 3.42)."""
LIBRADOS_ENGINES = frozenset({"rados", "rbd"})
"""Those that start librados, whose threads have names of their own, before any job; a job keeps the program's name."""
LATE_AGE_SECONDS = 5.0
"""A fio that is first seen at this age, in seconds, may have run groups that were not counted."""
MAX_ASKED = 10
"""Number of looks at a job's open files, and of jobs that are looked at."""
OPENING_SECONDS = 0.5
"""Seconds after its birth by which a job has opened its files, if it ever does."""
DATA_FILE = expression(r"(.+)\.\d{1,9}\.\d{1,9}$")
"""Name of a data file that the options don't name (filename_format in options.c, fio 3.33)."""
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
"""Options whose value, if any, follows ``=``; all others otherwise take the next word."""
TIME = expression(r"\s*+(\d{1,9})\s*+(us|usec|ms|msec|s|m|h|d)?\s*+", re.IGNORECASE)
TIME_UNITS = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
OPTIONS = frozenset(
    {"filename", "ioengine", "loops", "new_group", "numjobs", "ramp_time", "runtime", "start_delay", "startdelay"}
    | {"stonewall", "thread", "time_based", "timeout", "wait_for", "wait_for_previous"}
)
"""Job options that the plan needs; others are not kept, since each job inherits those before it."""
MAX_OPTION_CHARACTERS = 8192
"""Length of an option, in characters, from which fio refuses it (OPT_LEN_MAX in parse.h, fio 3.33)."""
MAX_JOBS = 4096
"""Number of jobs from which fio refuses to start (REAL_MAX_JOBS in os/os.h, fio 3.33)."""
MAX_JOB_FILES_CHARACTERS = 4 << 20
"""Maximum total length of a command's job files, in characters: one with 4,096 sections has 400 KiB."""

Variable = Callable[[str], str]
"""Gives an environment variable, empty if it isn't set."""
ReadFile = Callable[[str], str]
"""Gives the text of a job file, empty if it can't be read."""


class Job(msgspec.Struct, frozen=True):
    """One section of a job file, or one ``--name`` of a command line."""

    name: str
    processes: int = 1
    """Number of its processes or threads; 0 if not known."""
    barrier: bool = False
    """Whether it starts only after all earlier jobs have ended."""
    reported_apart: bool = False
    """Whether it begins a new group in the results, though it doesn't wait."""
    expected: float | None = None
    """Expected duration in seconds."""
    threads: bool = False
    """Whether its jobs are threads."""
    librados: bool = False
    """Whether its engine starts librados."""
    files: tuple[str, ...] = ()
    """Data files that the options name."""


class JobGroup(msgspec.Struct, frozen=True):
    """Jobs that run together: one phase."""

    jobs: tuple[Job, ...]

    @property
    def phase(self) -> str:
        """The name of the phase: its jobs' names."""
        return group_name(job.name for job in self.jobs)

    @property
    def processes(self) -> int:
        """The number of job processes."""
        return sum(job.processes for job in self.jobs)

    @property
    def expected(self) -> float | None:
        """Expected duration of the phase in seconds; None if a job's options don't say."""
        times = [job.expected for job in self.jobs if job.expected is not None]
        return max(times) if len(times) == len(self.jobs) else None

    @property
    def mixed(self) -> bool:
        """Whether fio reports it as several groups."""
        return any(job.reported_apart for job in self.jobs[1:])


def parse_job_file(
    text: str,
    defaults: Mapping[str, str] = MappingProxyType({}),
    sections: Collection[str] = (),
    variable: Variable = lambda name: "",
) -> list[Job]:
    """Return the jobs of a job file: an ini file whose ``[global]`` sections set defaults for what follows.

    `sections` are those selected by ``--section``. A file that includes another gives no jobs, as it alone does not
    define them. Nor does one with more jobs than fio accepts.
    """
    expand = _expansion(variable)
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
                if len(jobs) > MAX_JOBS:
                    return []
        elif line.startswith("include"):
            return []
        else:
            key, _, value = line.partition("=")
            if (key := key.strip()) in OPTIONS:
                options[key] = value.strip()
    return [_job(name, options, expand) for name, options in jobs]


def parse_time(text: str) -> float | None:
    """Return an option's time in seconds, None if it is invalid: ``30``, ``500ms``, ``2m`` (get_mult_time, parse.c).

    Expressions in parentheses are not supported.
    """
    match = TIME.fullmatch(text)
    return float(match[1]) * TIME_UNITS[(match[2] or "s").lower()] if match else None


def _expansion(variable: Variable) -> Callable[[str], str]:
    """Return a function that expands variables in options; an option that many jobs inherit is expanded once."""
    known = cache(variable)

    @cache
    def expand(text: str) -> str:
        # fio_option_dup_subs (options.c, fio 3.33): a name goes from ${ to the next closing brace, whatever is between,
        # and an unset variable is empty. Without a closing brace, the rest is literal.
        parts: list[str] = []
        at = 0
        while (start := text.find("${", at)) >= 0 and (end := text.find("}", start)) >= 0:
            parts += text[at:start], known(text[start + 2 : end])
            at = end + 1
        return "".join([*parts, text[at:]])[:MAX_OPTION_CHARACTERS]

    return lambda text: expand(text[:MAX_OPTION_CHARACTERS])


def _job(name: str, options: Mapping[str, str], expand: Callable[[str], str]) -> Job:
    def value(key: str, default: str) -> str:
        return expand(options.get(key, default))

    def given(key: str) -> bool:
        return value(key, "0") != "0"

    processes = value("numjobs", "1")
    engine = value("ioengine", "")
    files = (os.path.normpath(file) for file in value("filename", "").split(":") if file)
    return Job(
        name or "unnamed",
        int(processes) if re.fullmatch("[0-9]{1,9}", processes) else 0,
        barrier=any(map(given, ("stonewall", "wait_for_previous", "wait_for"))),
        reported_apart=given("new_group"),
        expected=_expected(value) if given("time_based") and value("loops", "1") == "1" else None,
        threads=given("thread") or engine in THREAD_ENGINES,
        librados=engine in LIBRADOS_ENGINES,
        files=tuple(files),
    )


def _expected(value: Callable[[str, str], str]) -> float | None:
    runtime = parse_time(value("runtime", value("timeout", "")))
    others = [parse_time(value("ramp_time", "0")), parse_time(value("startdelay", value("start_delay", "0")))]
    if not runtime or None in others:
        return None
    return runtime + sum(other or 0.0 for other in others)


def _arguments(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a command line's options with their values, and its job files as options without a name."""
    words = deque(argv[1:])
    while words:
        word = words.popleft()
        if word == "-" or not word.startswith("-"):
            yield "", word
            continue
        key, equals, value = word.lstrip("-").partition("=")
        key = key.replace("-", "_")
        if not equals and key not in FLAGS and words and not words[0].startswith("-"):
            value = words.popleft()
        if key:
            yield key, value


def plan(argv: Sequence[str], read: ReadFile, variable: Variable = lambda name: "") -> list[JobGroup]:
    """Return the groups that fio will run, in order, from its command line and the job files that it names.

    `read` gives these files, `variable` a variable of fio's environment. Unless every job is known there are no groups.
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
                if len(named) > MAX_JOBS:
                    return []
        elif key in OPTIONS:
            options[key] = value
    # parse_options (init.c, fio 3.33): the command line's jobs come first; its defaults and sections apply to the first
    # file alone, and a barrier stands before each further one.
    expand = _expansion(variable)
    jobs = [_job(name, options, expand) for name, options in named]
    left = MAX_JOB_FILES_CHARACTERS
    for file in files:
        # "-" is standard input, which is not ours to read.
        text = "" if file == "-" else read(file)
        left -= len(text)
        found = parse_job_file(text, defaults, sections, variable) if left >= 0 else []
        if not found or len(jobs) + len(found) > MAX_JOBS:
            return []
        if file is not files[0]:
            found[0] = msgspec.structs.replace(found[0], barrier=True)
        jobs += found
        defaults, sections = {}, set()
    return group(jobs) if all(job.processes for job in jobs) else []


def group(jobs: Sequence[Job]) -> list[JobGroup]:
    """Return the jobs, split at barriers."""
    groups: list[list[Job]] = []
    for job in jobs:
        if job.barrier or not groups:
            groups.append([])
        groups[-1].append(job)
    return [JobGroup(tuple(jobs)) for jobs in groups]


class Fio(Benchmark):
    """One fio command."""

    name: ClassVar[str] = "fio"
    comms: ClassVar[Collection[str]] = ("fio",)
    stopped_codes: ClassVar[Collection[int]] = (128,)  # sig_int, backend.c, fio 3.33
    reader: ClassVar[type[OutputReader]] = FioOutput
    hint: ClassVar[str] = "let it print to standard output, or give --output a file that can be read here"
    documented = (
        Documented(
            "fio",
            "groups of jobs that run together",
            "job processes or threads, their data files",
            "every format, `--output`",
            "standard output and `--output` files: normal, JSON, both, terse",
        ),
    )

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is the topmost fio, and not a server that only waits for clients."""
        return super().leads(tree, pid) and not any(word.startswith("--server") for word in tree.argv(pid)[1:])

    def __init__(self, tree: Tree, leader: int) -> None:
        argv = tree.argv(leader)
        options = dict(_arguments(argv))
        self._remote = "client" in options
        self._born: dict[int, int] = {}
        self._count = 0
        """Number of jobs known to have started."""
        self._last = 0
        self._source = PhaseSource.ARGV
        self._phase: str | None = None
        """The group that was seen last; None if none was, or only the whole command."""
        self._vague = False
        self._looked = self._ran = False
        self._counted = True
        """Whether every job's start was seen."""
        self._asked: tuple[int, int] = (0, 0)
        """The newest job when open files were last read, and how often they may still be read."""
        self._blind = False
        """Whether open files may not be seen."""
        self._names: dict[int, list[str]] = {}
        """Without a plan: the jobs' names by process, as their open files say."""
        self._newest = 0.0
        """When a job was last seen to start, in monotonic seconds."""
        self._sees = False
        """Whether processes or threads can be seen, so that looks show the phases."""

        def read(name: str) -> str:
            with suppress(OSError):
                return tree.read_file(leader, name).decode("utf-8", "replace")
            return ""

        planned = plan(argv, read, lambda name: tree.variable(leader, name))
        jobs = [job for group in planned for job in group.jobs]
        self._librados = any(job.librados for job in jobs)
        self._has_threads = not planned or any(job.threads for job in jobs)
        """Whether its jobs may be threads; else its threads are its own.

        Before its jobs fio looks at the clock of each CPU in a thread (fio_monotonic_clocktest, gettime.c, fio 3.33),
        which takes a millisecond, and on a busy machine half a second.
        """
        self._follow(planned)
        self._output = _OutputFile(tree, leader, options["output"]) if options.get("output") else None

    def _follow(self, groups: list[JobGroup]) -> None:
        """Use these groups as the plan; without any, the whole command is one phase."""
        self.groups = groups
        self._ends = list(accumulate(group.processes for group in groups))
        self._last = 0
        self._by_job = _unique((job.name, index) for index, group in enumerate(groups) for job in group.jobs)
        self._by_file = _unique(
            (file, index) for index, group in enumerate(groups) for job in group.jobs for file in job.files
        )

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return the group whose jobs run now."""
        blind: list[str] = []
        events: tuple[Event, ...] = ()
        if self._output is not None:
            events = self._own(self._output.read(tree, leader))
            blind += ["result_file"] if self._output.blind else []
        jobs = [pid for pid in tree.children(leader) if tree.comm(pid) in self.comms]
        threads = [] if jobs else tree.threads(leader)
        self._sees |= bool(jobs or threads)
        if not self._has_threads:
            threads = []
        elif self._librados and threads:
            threads = self._of_fio(tree.thread_names(leader))
        holders = jobs or ([leader] if len(threads) > OWN_THREADS else [])
        jobs = jobs or threads[OWN_THREADS:]
        if not self._looked:
            self._looked = True
            self._counted = len(self.groups) < 2 or _age(tree, leader) < LATE_AGE_SECONDS
        if not jobs and not threads and any(job.threads for group in self.groups for job in group.jobs):
            holders = [leader]
        index = self._by_files(tree, holders, jobs[-1] if jobs else 0)
        newborn = any(pid not in self._born for pid in jobs)
        state = self._state(jobs, index, threads=bool(threads))
        self._phase = None
        sight = Sight(state, total=len(self.groups) or None, events=events)
        if self._remote:
            self._phase = self.groups[0].phase if len(self.groups) == 1 else None
            sight = msgspec.structs.replace(
                sight, state=State.RUNNING, phase=self._phase or self.name, vague=self._phase is None
            )
        elif state is State.RUNNING and (not self.groups or not self._counted):
            sight = self._unplanned(sight, tree, holders, now, newborn=newborn)
        elif state is State.RUNNING:
            self._ran = True
            group = self.groups[self._last]
            self._phase = group.phase
            sight = msgspec.structs.replace(
                sight,
                phase=group.phase,
                source=self._source,
                vague=group.mixed,
                expected=group.expected,
                number=self._last + 1,
            )
        self._vague = sight.vague
        return msgspec.structs.replace(sight, blind=tuple([*blind, "descriptors"] if self._blind else blind))

    def _of_fio(self, names: Mapping[int, str]) -> list[int]:
        """Return the threads of fio itself: those before librados only look at clocks."""
        own = [tid for tid, name in names.items() if name in self.comms]
        return own if len(own) < len(names) else own[:OWN_THREADS]

    def _unplanned(self, sight: Sight, tree: Tree, holders: Sequence[int], now: float, *, newborn: bool) -> Sight:
        """Return the look if there is no plan: the open files name the phases, else the whole command is one."""
        if newborn:
            self._newest = now
            self._names = {pid: names for pid, names in self._names.items() if pid in holders and len(holders) > 1}
        young = now - self._newest < OPENING_SECONDS
        asked = holders[:MAX_ASKED]
        if newborn or young:
            for pid in asked:
                if pid not in self._names and (names := self._job_names(tree, pid)):
                    self._names[pid] = names
        if young and not self._blind and any(pid not in self._names for pid in asked):
            # The files will be open soon.
            return msgspec.structs.replace(sight, state=State.BETWEEN if self._ran else State.SETUP)
        self._ran = True
        if not self._names:
            return msgspec.structs.replace(sight, phase=self.name, vague=True)
        self._phase = group_name(name for names in self._names.values() for name in names)
        return msgspec.structs.replace(sight, phase=self._phase, source=PhaseSource.DATA_FD)

    def _job_names(self, tree: Tree, pid: int) -> list[str]:
        try:
            files = tree.open_files(pid)
        except PermissionError:
            self._blind = True
            return []
        self._blind = False
        found = (DATA_FILE.match(os.path.basename(file.path)) for file in files if _worked_on(tree, pid, file))
        return [*dict.fromkeys(match[1] for match in found if match is not None)]

    def _state(self, jobs: Sequence[int], by_file: int | None, *, threads: bool) -> State:
        """Take in the living jobs; `by_file` is the group that their open files name."""
        newborn = [pid for pid in jobs if pid not in self._born]
        for pid in newborn:
            self._born[pid] = bisect_right(self._ends, self._count)
            self._count += 1
        if by_file is not None:
            self._counted = True
            self._last = by_file
            self._source = PhaseSource.DATA_FD if len(self.groups) > 1 else PhaseSource.ARGV
            # However many starts were missed, the jobs of earlier groups have ended.
            self._count = max(self._count, self._ends[by_file] - self.groups[by_file].processes + len(jobs))
            for pid in jobs:
                self._born[pid] = by_file
            return State.RUNNING
        if not jobs:
            return State.BETWEEN if self._ran else State.SETUP
        if newborn and self.groups:
            index = self._by_births({self._born[pid] for pid in jobs}, threads=threads)
            if index is None:
                self._follow([])
            else:
                self._last = index
                self._source = PhaseSource.THREAD if len(self.groups) > 1 else PhaseSource.ARGV
        alive = set(jobs)
        self._born = {pid: index for pid, index in self._born.items() if pid in alive}
        return State.RUNNING

    def _by_files(self, tree: Tree, holders: Sequence[int], newest: int) -> int | None:
        """Return the group whose data file the last of these processes has open, None where it has none.

        A job's files don't change: they are read until they show its group, or for a few looks.
        """
        if len(self.groups) < 2 or not holders:
            return None
        job, left = self._asked
        left = left if job == newest and newest else MAX_ASKED
        self._asked = (newest, max(0, left - 1))
        if not left:
            return None
        try:
            files = tree.open_files(holders[-1])
        except PermissionError:
            self._blind = True
            return None
        self._blind = False
        for file in files:
            if (index := self._of_file(file.path)) is not None and _worked_on(tree, holders[-1], file):
                self._asked = (newest, 0)
                return index
        return None

    def _of_file(self, path: str) -> int | None:
        if (match := DATA_FILE.match(os.path.basename(path))) is not None and match[1] in self._by_job:
            return self._by_job[match[1]]
        return next((index for end, index in self._by_file.items() if f"/{path}".endswith(f"/{end.lstrip('/')}")), None)

    def _by_births(self, alive: set[int], *, threads: bool) -> int | None:
        """Return the group, given those of the living jobs by order of start; None if that is impossible.

        Threads of two groups that live at once are not all jobs: some are an engine's own (librbd, or
        ``io_submit_mode=offload``).
        """
        newest = max(alive)
        if newest >= len(self.groups) or (threads and len(alive) > 1):
            return None
        return max(newest, self._last)

    def last_words(self) -> tuple[Event, ...]:
        """Return the last events from its result file."""
        self._phase, self._vague = None, False
        return self._own(self._output.close()) if self._output is not None else ()

    def _own(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return events of this fio's own file, under the names of its phases."""
        return tuple((self.claim(event) or event) if isinstance(event, Ended | Rate) else event for event in events)

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event under the name of its phase, None if the jobs belong to another fio."""
        if not self.groups:
            return self._timely(event)
        if isinstance(event, Rate) and len(self.groups) > 1:
            event = msgspec.structs.replace(event, progress=None)
        if not event.phase:
            return event
        names = set(event.phase.split("+"))
        found = [group for group in self.groups if group.phase == event.phase] or [
            # With group_reporting a group has the name of its first job, and jobs may have no statistics.
            group
            for group in self.groups
            if names <= set(group.phase.split("+"))
        ]
        if not found:
            planned = {name for group in self.groups for name in group.phase.split("+")}
            # Jobs that wait for each other share a group in the results, where fio waits for one job only (wait_for).
            return event if names <= planned else None
        return self._timely(event if found[0].mixed else msgspec.structs.replace(event, phase=found[0].phase))

    def _timely(self, event: Ended | Rate) -> Ended | Rate:
        """Return an event without what looks know better: output about a phase may be read after its end."""
        if isinstance(event, Rate) and self._sees and not self._vague and event.phase not in ("", self._phase):
            return Rate("")
        return event


class _OutputFile:
    """The file of ``--output``; fio may write all of it right before it ends, so it is kept open all the time."""

    def __init__(self, tree: Tree, leader: int, path: str) -> None:
        self.blind = False
        """Whether we lack permission to read it."""
        self._path = path
        self._tail: Tail | None = None
        self._reader = FioOutput()
        self._open(tree, leader)
        # Until fio empties it (parse_cmd_line in init.c, fio 3.33) it has what an earlier run left.
        stamp = self._tail.stamp if self._tail is not None else None
        self._before = stamp if stamp is not None and stamp[1] else None

    def read(self, tree: Tree, leader: int) -> list[Event]:
        """Return the events since the last call."""
        if self._tail is None:
            self._open(tree, leader)
        return self._reader.feed(self._tail.read()) if self._tail is not None and self._is_own(self._tail) else []

    def close(self) -> list[Event]:
        """Return the last events."""
        tail, self._tail = self._tail, None
        if tail is None:
            return []
        own = self._is_own(tail)
        rest = tail.close()
        return [*self._reader.feed(rest), *self._reader.close()] if own else []

    def _is_own(self, tail: Tail) -> bool:
        """Return whether fio has written it, or emptied it."""
        if self._before is not None and tail.stamp != self._before:
            self._before = None
        return self._before is None

    def _open(self, tree: Tree, leader: int) -> None:
        try:
            self._tail = Tail(tree, leader, self._path)
        except OSError as error:
            self.blind = isinstance(error, PermissionError)
        else:
            self.blind = False


def _worked_on(tree: Tree, pid: int, file: OpenFile) -> bool:
    """Return whether a file is open for a job: a file being laid out is open only for writing.

    extend_file and generic_open_file in filesetup.c, fio 3.33.
    """
    position = tree.position(pid, file.descriptor)
    return position is None or position.flags & os.O_ACCMODE != os.O_WRONLY


def _unique(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the groups by name, without names shared by several groups."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for name, index in pairs:
        if found.setdefault(name, index) != index:
            twice.add(name)
    return {name: index for name, index in found.items() if name not in twice}


def _age(tree: Tree, pid: int) -> float:
    """Return the age of a process in seconds; 0 if it can't be seen."""
    try:
        uptime = float(read_bytes(tree.procfs / "uptime").split()[0])
        return uptime - tree.processes[pid].start / TICKS_PER_SECOND
    except (OSError, ValueError, IndexError, KeyError):
        return 0.0
