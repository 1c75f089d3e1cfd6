"""An IO500 result folder: which of its files belong to one run, and what they say together.

The C app writes ``result.txt``, ``result_summary.txt``, ``config.ini``, ``config-orig.ini`` and, for each phase,
``ior-easy-write.txt`` and ``.csv``; the shell driver before it ``result_summary.txt``, ``io-500-summary.*.txt`` and
``ior_easy_write.txt``. Folders of the list have them in any depth, beside copies. What contradicts is reported, and
nothing is corrected.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pinchpoint.benchmarks.events import phase_name
from pinchpoint.benchmarks.io500_detail import Nodes, PhaseDetail, PhaseText, RankTable, WallRate, rank_times, rounded
from pinchpoint.benchmarks.io500_plan import SHELL_PHASES, ini_sections
from pinchpoint.benchmarks.output import text
from pinchpoint.benchmarks.reading import KINDS, FoundRun, TextReader
from pinchpoint.benchmarks.result_files import FoundFile, ResultFilesError, archive_files, directory_files
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result, shifted
from pinchpoint.units import BYTES_PER_GIBIBYTE

__all__ = ["FolderRun", "Folders", "folder_runs", "last_digit"]

MAX_RESULT_FILE_BYTES = 2 << 20
"""Bytes of a result file or ini file that are kept; the list's largest has 100 KiB."""
MAX_KEPT_BYTES = 64 << 20
"""Bytes of all of them together."""
MAX_PHASE_FILE_BYTES = 256 << 20
"""Bytes of a phase's file that are read: a row for each of 2 million ranks."""
PHASE_HEAD_BYTES = 64 << 10
"""Bytes of a phase's file that are read where only results are wanted: its beginning names the nodes."""
MAX_DIRECTORIES = 1000
"""Directories with files of runs."""
MAX_NOTES = 100
"""Notes that are kept on a run; the others are counted."""

PHASE = expression(
    r"(?<![a-z0-9])(?:(ior|mdtest|mdt)[-_](easy|hard)[-_](write|read|stat|delete)|(find|mdworkbench-\w+))(?![a-z-])"
)
"""A phase in a file's name, which may have been renamed: ``node1-ior_easy_write.txt``."""
SUMMARY = expression(r"(?:result_summary|io-500-summary|result).*\.txt|(?:stdout|output|log).*|.*\.(?:log|out)")
LOG = 3
"""Rank of texts that may hold anything else beside results."""
RESULT_FILE = expression(r"result[^_]*\.txt")
AS_PRINTED = expression(r"\s*[-+]?(\d{1,18}(?:\.(\d{0,18}))?)")
"""The beginning of a printed result: its figure without an exponent, and that one's decimals."""
CONFIG = "config.ini"
WRITTEN = ("throughput-stonewall", "rate-stonewall")


class FolderRun(msgspec.Struct):
    """A run that a folder holds."""

    directory: str
    """Its directory below the folder."""
    name: str
    """The file that its results are from, below the folder."""
    run: FoundRun
    digest: str
    """SHA-256 of the text that its results are from."""
    details: list[PhaseDetail]
    result: str
    """The text of result.txt; empty if there is none."""
    config: str
    """The text of config.ini, or of another ini file; empty if there is none."""
    config_name: str
    notes: list[str]
    """What contradicts, is missing or is not understood."""


def folder_runs(path: Path, start: float, say: Callable[[str], None]) -> list[FolderRun]:
    """Return the IO500 runs in a directory or tar archive; one without a date began at `start`, in Unix seconds.

    `say` is told what is left out. Raises ResultFilesError if there is none, or if nothing can be read.
    """
    folders = Folders(say)
    broken = ""
    try:
        for file in directory_files(path, say) if path.is_dir() else archive_files(path, say):
            folders.take(file)
    except ResultFilesError as error:
        broken = str(error)
    runs = folders.runs(start)
    if not runs:
        raise ResultFilesError(
            broken
            or f"{path}: no IO500 run is in it: it has no result.txt and no result_summary.txt with results; "
            "for another benchmark name the files with its output"
        )
    if broken:
        say(broken)
        for run in runs:
            run.notes.append(f"{path.name} could only be read in part: files may lack")
    return runs


class _Directory(msgspec.Struct):
    """What a directory holds of runs."""

    results: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Texts with results, by the name of the file."""
    configs: dict[str, bytes] = msgspec.field(default_factory=dict)
    texts: dict[str, PhaseText] = msgspec.field(default_factory=dict)
    """By phase."""
    tables: dict[str, tuple[str, RankTable]] = msgspec.field(default_factory=dict)
    """By phase: the name of the file, and the table."""
    notes: list[str] = msgspec.field(default_factory=list)
    changed: float = 0.0


class Folders:
    """Takes the files of a folder one by one, and returns the runs.

    With `only_results` the runs have results and numbers of nodes and ranks, but no times of ranks and no options.
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None, *, only_results: bool = False) -> None:
        self._say = say
        self._only_results = only_results
        self._directories: dict[str, _Directory] = {}
        self._kept = 0

    def take(self, file: FoundFile) -> None:
        """Take in a file; one that has nothing of a run is not opened. Raises ResultFilesError for a broken archive."""
        directory, name = os.path.split(file.name)
        if name.startswith("._"):  # what macOS puts beside each file of an archive
            return
        lower = name.lower()
        phase = _phase(lower)
        is_result = SUMMARY.fullmatch(lower) is not None
        if not (phase or is_result or lower.endswith((".ini", ".cfg"))):
            return
        if self._only_results and lower.endswith((".csv", ".ini", ".cfg")):
            return
        if directory not in self._directories and len(self._directories) >= MAX_DIRECTORIES:
            self._say(f"{file.name}: more than {MAX_DIRECTORIES} directories with results; it is left out")
            return
        found = self._directories.setdefault(directory, _Directory())
        found.changed = max(found.changed, file.changed)
        try:
            if phase and lower.endswith(".csv"):
                table = RankTable(phase)
                self._read(file, table.feed, MAX_PHASE_FILE_BYTES, found)
                table.close()
                found.tables.setdefault(phase, (name, table))
            elif phase:
                reader = PhaseText(phase, name)
                self._read(file, reader.feed, PHASE_HEAD_BYTES if self._only_results else MAX_PHASE_FILE_BYTES, found)
                reader.close()
                found.texts.setdefault(phase, reader)
            elif lower.endswith((".ini", ".cfg")):
                self._keep(file, name, found.configs, found)
            else:
                self._keep(file, name, found.results, found)
        except OSError as error:
            found.notes.append(f"{file.name}: {error.strerror}; it is left out")

    def _read(self, file: FoundFile, feed: Callable[[bytes], None], limit: int, found: _Directory) -> None:
        left = limit
        for piece in file.pieces():
            feed(piece[:left])
            left -= len(piece)
            if left <= 0:
                found.notes.append(f"{file.name}: longer than {limit >> 20} MiB; only its beginning is read")
                return

    def _keep(self, file: FoundFile, name: str, among: dict[str, bytes], found: _Directory) -> None:
        raw = bytearray()
        self._read(file, raw.extend, MAX_RESULT_FILE_BYTES, found)
        if self._kept + len(raw) > MAX_KEPT_BYTES:
            self._say(f"{file.name}: more than {MAX_KEPT_BYTES >> 20} MiB of results; it is left out")
            return
        self._kept += len(raw)
        among[name] = bytes(raw)

    def runs(self, start: float) -> list[FolderRun]:
        """Return the runs, by their directories. One without a date began at `start`, in Unix seconds."""
        found = {}
        for directory, held in sorted(self._directories.items()):
            if (run := _run(directory, held, start)) is not None:
                found[directory] = run
        for directory in sorted(found, key=lambda name: name.count("/")):
            self._copy(directory, found)
        for run in found.values():
            if len(run.notes) > MAX_NOTES:
                run.notes[MAX_NOTES:] = [f"{len(run.notes) - MAX_NOTES} more like these"]
        return [found[directory] for directory in sorted(found)]

    def _copy(self, directory: str, found: dict[str, FolderRun]) -> None:
        """Leave out a summary that stands above or beside the only folder that it was copied from."""
        run, held = found[directory], self._directories[directory]
        if held.texts or held.tables:
            return
        inside = [other for other in self._directories if other != directory and _below(other, directory)]
        others = [found[other] for other in inside if other in found]
        compared = [_compared(other.run, run.run, other.name, run.name) for other in others]
        if any(same for same, _ in compared):
            del found[directory]
        if len(others) == 1:
            others[0].notes += compared[0][1]
        elif not others:
            details = [other for other in inside if self._directories[other].texts or self._directories[other].tables]
            if len(details) == 1:
                more = self._directories[details[0]]
                run.details = _details(more, run.result, run.run, run.notes)
                run.notes += more.notes
                if not run.config:
                    run.config_name, run.config = _config(more)


def _below(path: str, directory: str) -> bool:
    return not directory or path.startswith(f"{directory}/")


def _phase(name: str) -> str:
    """Return the phase that a file is named after, empty if it is none."""
    found = PHASE.search(os.path.splitext(name)[0])
    if found is None or not name.endswith((".txt", ".csv", ".log", ".out")):
        return ""
    program = "mdtest" if found[1] == "mdt" else found[1]
    return phase_name(found[4] or f"{program}_{found[2]}_{found[3]}")


def _run(directory: str, held: _Directory, start: float) -> FolderRun | None:
    """Return the run in a directory, None if it has no results."""
    notes: list[str] = []
    read: dict[str, FoundRun] = {}
    for name, raw in sorted(held.results.items(), key=lambda item: _rank(item[0])):
        if (run := _reading(name, raw, held.changed or start, notes, chosen=not read)) is not None:
            read[name] = run
    if not read:
        return None
    name = next(iter(read))
    chosen = read[name]
    for other, run in read.items():
        if other != name and not _is_log(other):
            notes += _compared(chosen, run, name, other)[1]
    result = text(held.results[name]) if _rank(name)[0] == 0 else ""
    config_name, config = _config(held)
    found = FolderRun(
        directory,
        os.path.join(directory, name),
        chosen,
        hashlib.sha256(held.results[name]).hexdigest(),
        [],
        result,
        config,
        config_name,
        notes,
    )
    found.details = _details(held, result, chosen, notes)
    found.notes += held.notes
    dates = [reader.began for reader in held.texts.values() if reader.began is not None]
    if chosen.state.start == (held.changed or start) and dates:  # its own text has no date
        found.run = chosen._replace(state=shifted(chosen.state, min(dates) - chosen.state.start))
    return found


def _rank(name: str) -> tuple[int, str]:
    """Order texts with results: result.txt has the most, then the summary; a log may hold several runs."""
    lower = name.lower()
    if lower == "result_summary.txt":
        return 1, name
    if "summary" in lower:
        return 2, name
    return (0 if RESULT_FILE.fullmatch(lower) else LOG, name)


def _reading(name: str, raw: bytes, start: float, notes: list[str], *, chosen: bool) -> FoundRun | None:
    reader = TextReader([kind for kind in KINDS if kind.benchmark == "io500"])
    reader.feed(raw)
    runs = [run for run in reader.close(start) if run.state.phases]
    if not _is_log(name):
        notes += (
            f"{name}:{line}: looks like a result, and is not understood: {words}" for line, words in reader.unread
        )
    if chosen and len(runs) > 1:
        notes.append(f"{name}: it has {len(runs)} runs; the last one is used")
    return runs[-1] if runs else None


def _is_log(name: str) -> bool:
    return _rank(name)[0] == LOG


def _compared(run: FoundRun, also: FoundRun, name: str, other: str) -> tuple[bool, list[str]]:
    """Return whether two texts are of the same run, and where they disagree more than by rounding."""
    mine, theirs = _printed(run), _printed(also)
    common = [what for what in mine if what in theirs]
    found = []
    for what in common:
        first, second = mine[what], theirs[what]
        if abs(first.value - second.value) > max(last_digit(first), last_digit(second)):
            found.append(f"{what}: {name} has {first.printed}, {other} has {second.printed}; {name} is used")
    if len(found) <= len(common) / 2:
        return True, found
    return False, [f"{other} is of another run: {len(found)} of {len(common)} figures differ from those of {name}"]


def _printed(run: FoundRun) -> dict[str, Result]:
    """Return the figures of the standard phases, and the score."""
    results = {mark.name: mark.results[0] for mark in run.state.phases if mark.results and mark.name in SHELL_PHASES}
    if run.state.scores:
        results["score"] = run.state.scores[-1]
    return results


def last_digit(result: Result) -> float:
    """Return what the last digit of a figure stands for, in base units: as far as it may be rounded.

    0 if the result does not say how it was printed.
    """
    if (printed := AS_PRINTED.match(result.printed)) is None:
        return 0.0
    shown = float(printed[1])
    step = 10.0 ** -len(printed[2] or "")
    return abs(step * result.value / shown) if shown else step


def _config(held: _Directory) -> tuple[str, str]:
    """Return the name and text of the ini file that a run was made with: the app's own copy, or the only one."""
    names = sorted(held.configs, key=lambda name: (name.lower() != CONFIG, name.lower() != "config-orig.ini", name))
    return (names[0], text(held.configs[names[0]])) if names else ("", "")


def _details(held: _Directory, result: str, run: FoundRun, notes: list[str]) -> list[PhaseDetail]:
    """Return what the files say of each phase, in the run's order."""
    sections = ini_sections(result) if result else {}
    processes = sections.get("run", {}).get("procs", "")
    tasks = int(processes) if re.fullmatch("[1-9][0-9]{0,8}", processes) else None
    seen = {phase_name(section): options for section, options in sections.items()}
    names = [mark.name for mark in run.state.phases]
    names += sorted((held.texts.keys() | held.tables.keys()) - {*names})
    nodes, hosts = _nodes(held)
    details = []
    for phase in names:
        reader = held.texts.get(phase)
        detail = reader.detail if reader is not None else PhaseDetail(phase)
        detail.tasks = detail.tasks or tasks
        if tasks and detail.tasks != tasks:
            notes.append(f"{phase}: it ran with {detail.tasks} ranks, {_of(result)} says {tasks}")
        detail.wall_rates = [*_result_wall(phase, seen.get(phase, {})), *detail.wall_rates]
        if phase in held.tables:
            name, table = held.tables[phase]
            notes += table.notes(name, detail.tasks if phase != "find" else None)
            detail.ranks = rank_times(table.seconds, nodes, hosts)
            if table.runtime and table.searching:
                share = sum(table.searching) / len(table.searching) / table.runtime
                detail.searching = share if share <= 1 else None
        if reader is not None or phase in held.tables or detail.wall_rates:
            details.append(detail)
    return details


def _of(result: str) -> str:
    return "result.txt" if result else "the summary"


def _result_wall(phase: str, options: dict[str, str]) -> Iterator[WallRate]:
    """Yield the rate until the stonewall that result.txt has for a phase (``ior_process_write``, isc21 and later)."""
    for key, factor in ((WRITTEN[0], float(BYTES_PER_GIBIBYTE)), (WRITTEN[1], 1000.0)):
        if (rate := rounded(options.get(key, ""), factor, f"result.txt: {key}")) is not None:
            yield rate


def _nodes(held: _Directory) -> tuple[Nodes | None, dict[int, str]]:
    """Return which ranks share a node: the hosts by name, or the order that mdtest's map shows."""
    hosts: dict[int, str] = {}
    count = per_node = None
    cyclic: bool | None = None
    for reader in held.texts.values():
        hosts = hosts or reader.hosts
        detail = reader.detail
        count, per_node = detail.nodes or count, detail.per_node or per_node
        if reader.cyclic is not None:
            cyclic = reader.cyclic
    if count is None or per_node is None or count < 2 or (cyclic is None and per_node > 1):
        return None, hosts
    return Nodes(count, per_node, bool(cyclic)), hosts
