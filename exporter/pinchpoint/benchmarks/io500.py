"""IO500: the C app (isc20 and later), and the shell driver (isc20 and before) that ran ior, mdtest and pfind itself.

Rank 0 has ``RESULTDIR/PHASE.txt`` open throughout an ior, mdtest or md-workbench phase (``u_res_file_prep``
in src/util.c, io500-isc20 to isc26_v2), and result.txt from beginning to end; its last section names the phase,
including find. The shell driver gives each phase's program ``RESULTDIR/PHASE.txt`` as standard output. Where open files
can't be seen, result.txt is searched for where the ini file says, and command lines give the shell driver's phases.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from typing import ClassVar

import msgspec

from pinchpoint.benchmarks import mpi
from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import Began, Ended, Event, Failed, PhaseSource, Rate, State, phase_name
from pinchpoint.benchmarks.io500_output import Io500Reader, bare_phase
from pinchpoint.benchmarks.io500_plan import (
    MAX_CONFIG_BYTES,
    SHELL_PHASES,
    Io500Plan,
    ini_sections,
    phase_of_command,
    phases_of,
    plan_of,
)
from pinchpoint.benchmarks.io500_results import Results, planned_directory, read_text
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.tree import OpenFile, Tree
from pinchpoint.benchmarks.wrappers import LAUNCHERS
from pinchpoint.expressions import expression

__all__ = ["Io500"]

APP = "io500"
SCRIPTS = ("io500.sh", "io500_fixed.sh")
SHELLS = ("bash", "sh")
PROGRAMS = ("ior", "mdtest", "pfind")

MAX_STATUS_BYTES = 32
"""Bytes of a stonewall status file that are read: it holds one number."""
MAX_ASKED_RANKS = 16
"""Maximum number of ranks on a host that are checked for being rank 0."""
SEARCH_SHARE = 0.25
MAX_SEARCH_INTERVAL_SECONDS = 5.0
"""Longest pause between two searches for the result directory, in seconds; until then, relative to their duration."""
ASSUMED_START_SECONDS = 5.0
"""Seconds after which an invisible run is assumed to have begun its phases."""

MAX_HELD_EVENTS = 64
"""Maximum number of events held back until the descriptors agree with them."""

RESULT_FILE = "result.txt"
NO_PHASE = frozenset({RESULT_FILE, "result_summary.txt", "result_pretty.txt"})
SCRIPT = expression(r"io500[\w.-]*\.sh")
SHELL_OUTPUT = expression(r"((?:ior|mdtest)_\w+|find|mdreal)\.txt")
DATA = {
    "ior-easy": "ior_easy",
    "ior-hard": "ior_hard",
    "mdtest-easy": "mdtest_easy",
    "mdtest-hard": "mdtest_hard",
    "ior_easy": "ior_easy",
    "ior_hard": "ior_hard",
    "mdt_easy": "mdtest_easy",
    "mdt_hard": "mdtest_hard",
}
"""The phases whose files are in a directory of the data directory, by its name: first the app's, then the driver's."""
ITEM = expression(r"/file\.mdtest\.\d+\.(\d{1,15})$")


def _is_script(tree: Tree, pid: int) -> bool:
    """Return whether a process is a shell that runs one of IO500's scripts."""
    comm = tree.comm(pid)
    if comm not in SHELLS and not SCRIPT.fullmatch(comm):
        return False
    argv = tree.argv(pid)
    words = iter(argv[1:])
    for word in words:
        if word in ("-o", "+o", "-O", "+O"):
            next(words, None)
        elif word[:1] not in ("-", "+"):
            return SCRIPT.fullmatch(os.path.basename(word)) is not None
        elif not word.startswith("--") and "c" in word:
            return False
    return not argv and SCRIPT.fullmatch(comm) is not None


def _ranks(tree: Tree, pid: int) -> list[int]:
    """Return the app's processes that have the same parent."""
    task = tree.processes.get(pid)
    return sorted(child for child in tree.children(task.ppid) if tree.comm(child) == APP) if task is not None else []


def _writes(tree: Tree, pid: int) -> bool:
    """Return whether a process has result.txt open: rank 0 alone has. Raises PermissionError."""
    return any(os.path.basename(file.path) == RESULT_FILE for file in tree.open_files(pid))


def _writer(tree: Tree, ranks: Sequence[int]) -> int | None:
    try:
        return next((pid for pid in ranks[:MAX_ASKED_RANKS] if _writes(tree, pid)), None)
    except PermissionError:
        return None


class Io500(Benchmark):
    """One IO500 run: led by rank 0 of the app, or by the script that starts it or is the shell driver."""

    name: ClassVar[str] = "io500"
    comms: ClassVar[Collection[str]] = frozenset({APP, *SCRIPTS, *SHELLS})
    reader: ClassVar[type[OutputReader]] = Io500Reader
    documented = (
        Documented(
            "IO500",
            "`ior_easy_write` ..., including unknown ones",
            "the `<phase>.txt` that rank 0 holds open, otherwise `result.txt`",
            "`result.txt`, as each phase ends; standard output",
            "standard output, `result.txt`, `result_summary.txt`",
            variant="C app from isc20 on",
        ),
        Documented(
            "IO500",
            "the same",
            "output file and command line of the phase's program",
            "standard output",
            "standard output, `result_summary.txt`",
            variant="shell driver",
        ),
    )

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process leads a run; if ranks can't be read, one beside the launcher does."""
        if tree.comm(pid) != APP and not _is_script(tree, pid):
            return False
        if any(_is_script(tree, ancestor) for ancestor in tree.ancestors(pid)):
            return False
        if tree.comm(pid) != APP:
            return True
        if tree.comm(tree.processes[pid].ppid) == APP:
            return False
        if (known := mpi.rank(tree, pid)) is not None:
            return known == 0
        ranks = _ranks(tree, pid)
        # Beside the launcher the first one remains leader: `look` finds out which is rank 0.
        return pid == ranks[0] if mpi.beside_launcher(tree, pid) else pid == _writer(tree, ranks)

    def __init__(self, tree: Tree, leader: int) -> None:
        self._script = tree.comm(leader) != APP
        self._rank: int | None = None
        self._results = Results()
        self._directory = ""
        self._held: tuple[Event, ...] = ()
        self._passed: str | None = None
        self._searches: tuple[float, float] | None = None
        """Times of the first and the last search for the result directory."""
        self._configured = ""
        """The result directory whose configuration was read."""
        self._phases: tuple[str, ...] = ()
        """The app's."""
        self._before: tuple[str, ...] = ()
        """The phases of the driver that ran before the present one."""
        self._shell = False
        """Whether the shell driver is, or was last, running."""
        self._looked = False
        self._phase: str | None = None
        self._began: float | None = None
        self._plan = Io500Plan()
        self._command: tuple[str, ...] = ()
        self._numbers: dict[str, int] = {}

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return what can be seen now."""
        ranks = self._app_ranks(tree, leader)
        sight = self._look_at_app(tree, ranks, now) if ranks else self._look_at_shell(tree, leader, now)
        self._looked = True
        return sight

    def last_words(self) -> tuple[Event, ...]:
        """Return the last events from result.txt: without a score the run failed."""
        cut = self._results.known
        events = self._rest()
        if cut and not self._shell and not self._results.file.complete:
            return (*events, Failed("result.txt ends before the score"))
        return events

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event of the output, None if result.txt shows that it belongs to another run."""
        if isinstance(event, Rate) or not self._results.file.phases:
            return event
        told = self._results.file.phases.get(event.phase)
        own = event.phase == self._phase if told is None else told == event.results
        return event if own else None

    def _rest(self) -> tuple[Event, ...]:
        events = (*self._held, *self._results.read())
        self._held = ()
        self._results.close()
        return tuple(event for event in events if not isinstance(event, Began))

    def _app_ranks(self, tree: Tree, leader: int) -> list[int]:
        """Return the app's ranks on this host: rank 0 first, or alone once it is known."""
        if self._rank is not None and tree.comm(self._rank) == APP:
            return [self._rank]
        ranks = _ranks(tree, leader)
        if self._script:
            ranks = sorted(pid for pid in tree.descendants(leader) if tree.comm(pid) == APP)
        first = next((pid for pid in ranks[:MAX_ASKED_RANKS] if mpi.rank(tree, pid) == 0), _writer(tree, ranks))
        if first is not None:
            self._rank = first
            return [first]
        return ranks

    def _look_at_app(self, tree: Tree, ranks: Sequence[int], now: float) -> Sight:
        rank = ranks[0]
        events: tuple[Event, ...] = ()
        if self._shell:
            self._shell, self._before = False, SHELL_PHASES
        # Read the file before the descriptors, so that it can't be ahead of them.
        if not self._directory:
            self._directory = self._find_directory(tree, rank, now)
        if self._directory:
            events = self._results.follow(tree, rank, os.path.join(self._directory, RESULT_FILE))
        told, known = self._results.file, self._results.known
        blind, files = self._files(tree, rank)
        state, phase, source = State.RUNNING, self._open_phase(files), PhaseSource.FD
        events = self._released(events, phase, certain=bool(blind) or not _has_text(told.phase))
        if phase is not None and self._passed_over(told.phase, phase):
            events = (*events, Began(told.phase or ""))
        if phase is None and told.phase is not None:
            phase, source = told.phase, PhaseSource.RESULT_FILE
            if bare_phase(phase):
                phase = None
        elif phase is None and not known and not blind:
            phase, source = _phase_of_data(tree, rank, files), PhaseSource.DATA_FD
        if not known and (blind or self._directory):
            blind = (*blind, "result_file")
        if phase is None:
            if blind and not known and self._phase is None and self._waits(now) > ASSUMED_START_SECONDS:
                return Sight(State.RUNNING, APP, vague=True, blind=blind)
            state = told.state
            if state is not State.PAUSED:
                state = State.BETWEEN if self._phase or told.state is State.BETWEEN else State.SETUP
            return Sight(state, events=events, blind=blind)
        if self._directory and self._configured != self._directory:
            self._configured = self._directory
            config = read_text(tree, rank, os.path.join(self._directory, "config.ini"), MAX_CONFIG_BYTES)
            self._phases = phases_of(ini_sections(config), extended=told.extended)
        self._enter(phase, now)
        self._make_plan(tree, rank, told.command if told.phase == phase else (), told.processes)
        if _syncs(tree, rank):
            state = State.SYNCING
        return self._measured(tree, rank, files, now, Sight(state, phase, source, events=events, blind=blind))

    def _passed_over(self, told: str | None, opened: str) -> bool:
        """Return whether the phase named by result.txt began and ended unseen between two looks."""
        ahead = any(isinstance(event, Ended) and event.phase == opened for event in self._held)
        fresh = told not in (None, opened, self._phase, self._passed) and not bare_phase(told or "") and not ahead
        self._passed = told
        return fresh

    def _waits(self, now: float) -> float:
        """Return for how long the result directory has been searched, in seconds."""
        return now - self._searches[0] if self._searches is not None else 0.0

    def _released(self, events: Sequence[Event], opened: str | None, *, certain: bool) -> tuple[Event, ...]:
        """Return what may be reported from result.txt, whose phase ends precede what the descriptors show.

        A phase whose text is open has not ended, nor has any after it. Without `certain`, if the file names a phase
        that has a text but none is open, that phase has not been seen to begin: what follows the last phase seen is
        held back until the next look.
        """
        waiting = [*self._held, *(event for event in events if not isinstance(event, Began))]
        ends = [event.phase if isinstance(event, Ended) else "" for event in waiting]
        count = len(waiting)
        if opened is not None:
            count = ends.index(opened) if opened in ends else count
        elif not certain and count <= MAX_HELD_EVENTS:
            count = max((index + 1 for index, phase in enumerate(ends) if phase == self._phase), default=0)
        self._held = tuple(waiting[count:])
        return tuple(waiting[:count])

    def _look_at_shell(self, tree: Tree, leader: int, now: float) -> Sight:
        events = self._leave_app()
        phase, source = None, PhaseSource.FD
        launcher: list[str] = []
        rank: int | None = None
        for pid in tree.descendants(leader) if self._script else ():
            comm = tree.comm(pid)
            if comm in LAUNCHERS:
                found = SHELL_OUTPUT.fullmatch(os.path.basename(tree.link(pid, 1)))
                phase = phase_name(found[1]) if found else phase
                launcher = tree.argv(pid)
            elif comm in PROGRAMS and (rank is None or pid < rank):
                rank = pid
        argv = tree.argv(rank) if rank is not None else []
        if phase is None and rank is not None:
            # pfind overwrites its own command line while it reads it; its name is enough.
            phase, source = phase_of_command([tree.comm(rank), *argv[1:]]), PhaseSource.ARGV
        if phase is None:
            return Sight(State.BETWEEN if self._phase else State.SETUP, events=events)
        if not self._shell:
            self._shell, self._before = True, self._phases
        self._enter(phase, now)
        if rank is None:
            return self._measured(tree, leader, (), now, Sight(State.RUNNING, phase, source, events=events))
        blind, files = self._files(tree, rank)
        self._make_plan(tree, rank, tuple(argv), _processes(launcher))
        state = State.SYNCING if _syncs(tree, leader) else State.RUNNING
        return self._measured(tree, rank, files, now, Sight(state, phase, source, events=events, blind=blind))

    def _leave_app(self) -> tuple[Event, ...]:
        """Forget the app, which has gone; return the last events from its result.txt."""
        if self._rank is None and not self._directory:
            return ()
        events = self._rest()
        self._rank, self._directory, self._results = None, "", Results()
        return events

    def _enter(self, phase: str, now: float) -> None:
        if phase == self._phase:
            return
        # A phase that goes on at the first look began some time before it.
        self._phase, self._began = phase, now if self._looked else None
        self._plan, self._command = Io500Plan(), ()
        self._numbers.clear()

    def _make_plan(self, tree: Tree, pid: int, command: tuple[str, ...], processes: int | None) -> None:
        if not command or command == self._command:
            return
        self._command = command
        plan = plan_of(command, processes)
        status = read_text(tree, pid, plan.limit, MAX_STATUS_BYTES).strip() if plan.limit else ""
        if re.fullmatch("[1-9][0-9]{0,15}", status):
            count = float(status)
            plan = plan._replace(items=count if plan.items else None, position=count * plan.step or None)
        self._plan = plan

    def _measured(self, tree: Tree, rank: int, files: Sequence[OpenFile], now: float, sight: Sight) -> Sight:
        """Return the sight with its phase's progress."""
        plan = self._plan
        work, share = None, 0.0
        for file in files:
            if os.path.dirname(file.path) == self._directory:
                continue
            if (item := ITEM.search(file.path)) is not None:
                work = float(item[1]) + 1
                share = work / plan.items if plan.items else 0.0
            elif plan.shows and _data(file.path).startswith("ior"):
                position = tree.position(rank, file.descriptor)
                # Where it stays 0 each call may say its own place (pwrite(2)): then nothing shows.
                if position is not None and position.offset > 0:
                    work = float(position.offset)
                    share = work / plan.position if plan.position else 0.0
        if plan.seconds and self._began is not None:
            share = max(share, (now - self._began) / plan.seconds)
        number, total = self._place()
        return msgspec.structs.replace(
            sight,
            progress=min(1.0, share) if share > 0 else None,
            work=work,
            expected=plan.seconds,
            number=number,
            total=total,
        )

    def _place(self) -> tuple[int | None, int | None]:
        """Return the position of the phase in the run, and the number of phases."""
        phases = SHELL_PHASES if self._shell else self._phases
        if self._phase not in phases:
            return None, None
        number = len(self._before) + phases.index(self._phase) + 1
        if self._script and (self._shell or self._directory.endswith("-app")):
            # isc20's io500.sh runs the app as well as the shell driver, in random order.
            return number, len(SHELL_PHASES) + (len(self._phases) or len(SHELL_PHASES))
        return number, len(phases)

    def _files(self, tree: Tree, pid: int) -> tuple[tuple[str, ...], list[OpenFile]]:
        """Return what we lack permission to read, and a rank's open files.

        Files that show the phase and its progress mostly keep their descriptors: these are read first.
        """
        quick = {name: tree.link(pid, number) for name, number in self._numbers.items()}
        if self._phase and _text(quick.get("text", "")) == self._phase and _data(quick.get("data", "")):
            return (), [OpenFile(self._numbers[name], path) for name, path in quick.items()]
        try:
            files = tree.open_files(pid)
        except PermissionError:
            return ("descriptors",), []
        for file in files:
            if self._directory and os.path.dirname(file.path) == self._directory:
                if _text(file.path) is not None:
                    self._numbers["text"] = file.descriptor
            elif _data(file.path) and os.path.basename(file.path) not in DATA:
                self._numbers["data"] = file.descriptor
        return (), files

    def _open_phase(self, files: Sequence[OpenFile]) -> str | None:
        """Return the phase whose PHASE.txt is open."""
        beside = (_text(file.path) for file in files if os.path.dirname(file.path) == self._directory)
        return next((phase for phase in beside if phase is not None), None) if self._directory else None

    def _find_directory(self, tree: Tree, rank: int, now: float) -> str:
        """Return the result directory; empty if not known, or not yet."""
        try:
            paths = [file.path for file in tree.open_files(rank)]
        except PermissionError:
            first, last = self._searches or (now, now - MAX_SEARCH_INTERVAL_SECONDS)
            if now - last < min((now - first) * SEARCH_SHARE, MAX_SEARCH_INTERVAL_SECONDS):
                return ""
            self._searches = (first, now)
            return planned_directory(tree, rank)
        return next((os.path.dirname(path) for path in paths if os.path.basename(path) == RESULT_FILE), "")


def _has_text(phase: str | None) -> bool:
    """Return whether rank 0 has a PHASE.txt open in a phase; find has none (src/phase_find.c)."""
    return phase is not None and not bare_phase(phase) and not phase.startswith("find")


def _text(path: str) -> str | None:
    """Return the phase of a PHASE.txt file."""
    name = os.path.basename(path)
    if not name.endswith(".txt") or name in NO_PHASE:
        return None
    return phase_name(name.removesuffix(".txt")) or None


def _data(path: str) -> str:
    """Return the benchmark of a data file, such as ``ior_easy``; empty for any other file."""
    return next((DATA[part] for part in reversed(path.split("/")) if part in DATA), "")


def _phase_of_data(tree: Tree, pid: int, files: Sequence[OpenFile]) -> str | None:
    """Return the phase shown by the open data files; stat and delete open none."""
    for file in files:
        kind = _data(file.path)
        if kind.startswith("ior") and (position := tree.position(pid, file.descriptor)) is not None:
            return f"{kind}_{'write' if position.writes else 'read'}"
        # mdtest-hard opens its files for writing when it reads them, too; easy ones are never read.
        if kind == "mdtest_easy" and ITEM.search(file.path) is not None:
            return "mdtest_easy_write"
    return None


def _syncs(tree: Tree, pid: int) -> bool:
    """Return whether mdtest waits for sync(1), which ``-Y`` makes each rank run after creating the files."""
    return any(
        tree.comm(child) == "sync" or (tree.comm(child) in SHELLS and tree.argv(child)[-1:] == ["sync"])
        for child in tree.descendants(pid)
    )


def _processes(command: Sequence[str]) -> int | None:
    """Return the number of ranks requested by a launcher's command line."""
    words = iter(command)
    for word in words:
        if word in ("-np", "-n", "--np", "-c"):
            value = next(words, "")
            return int(value) if re.fullmatch("[1-9][0-9]{0,8}", value) else None
    return None
