"""Whether an IO500 run follows the rules of the list, as far as its files show.

The rules are version 2.0 of the list's submission rules (templates/Pages/rules_submission.php of IO500/webpage,
2026-06-13), and what the benchmark itself checks (src/main.c, src/phase_*.c of io500-isc26_v2). What only people know
(persistence, read-after-write, changed sources) is not here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec

from pinchpoint.benchmarks.events import phase_name
from pinchpoint.benchmarks.io500_detail import PhaseDetail
from pinchpoint.benchmarks.io500_folder import FolderRun, last_digit
from pinchpoint.benchmarks.io500_hash import config_hash, score_hash
from pinchpoint.benchmarks.io500_plan import SHELL_PHASES, ini_sections
from pinchpoint.compat import StrEnum, re
from pinchpoint.diagnosis.tail import contradictions, weight
from pinchpoint.expressions import expression
from pinchpoint.runs import PhaseMark, RunState
from pinchpoint.shipped import shipped
from pinchpoint.tomlfile import decode_toml
from pinchpoint.units import BYTES_PER_GIBIBYTE

__all__ = ["RULES_VERSION", "ChangedOption", "ResultFolder", "Rule", "RuleState", "result_folder"]

RULES_VERSION = "version 2.0 of the list's submission rules (2026-06-13), io500-isc26_v2"
DEFAULTS_OF = "io500-isc26_v2"
MIN_WRITE_SECONDS = 300.0
STUDENT_WRITE_SECONDS = 30.0
"""Seconds that a write phase of a student cluster competition takes at least."""
CLIENT_NODES = 10
"""Client nodes from which a run can win an award; the 10 node challenge has exactly so many."""
MAX_REASONS = 20
MAX_WORDS = 300


class RuleState(StrEnum):
    """Whether a rule is kept."""

    KEPT = "kept"
    BROKEN = "broken"
    UNSEEN = "not seen"
    """The files do not say."""
    NOTE = "note"
    """Allowed, and worth knowing."""


class Rule(msgspec.Struct, frozen=True):
    """One rule and what the files show of it."""

    name: str
    state: RuleState
    words: str
    phase: str = ""
    """The phase that it is about; empty: the run."""


class ChangedOption(msgspec.Struct, frozen=True):
    """An option of config.ini that is not the default."""

    section: str
    option: str
    value: str
    default: str | None
    """None for an option without a known default."""


class ResultFolder(msgspec.Struct, omit_defaults=True):
    """What the result folder of an IO500 run says beyond the figures."""

    version: str = ""
    """Of IO500."""
    details: list[PhaseDetail] = []
    rules: list[Rule] = []
    options: list[ChangedOption] = []
    notes: list[str] = []
    """What contradicts, is missing or is not understood."""

    @property
    def nodes(self) -> int | None:
        """Number of client nodes."""
        return max((detail.nodes for detail in self.details if detail.nodes), default=None)

    @property
    def tasks(self) -> int | None:
        """Number of ranks."""
        return max((detail.tasks for detail in self.details if detail.tasks), default=None)


@cache
def defaults() -> Mapping[str, Mapping[str, str]]:
    """Return the defaults of the options by section."""
    raw = shipped("diagnosis/io500_defaults.toml").read_bytes()
    return decode_toml(raw, dict[str, dict[str, str]], "io500_defaults.toml")


def result_folder(found: FolderRun) -> ResultFolder:
    """Return what a run's folder says."""
    marks = {mark.name: mark for mark in found.run.state.phases}
    sections = ini_sections(found.result)
    version = sections.get("run", {}).get("version", "") or _version(found.result)
    config = ini_sections(found.config)
    known = ResultFolder(
        version=version[:MAX_WORDS], details=found.details, options=[*_changed(config)], notes=[*found.notes]
    )
    known.notes += contradictions(found.details, marks)
    known.rules = [*_rules(found, marks, config, known)]
    return known


def _version(result: str) -> str:
    """Return the version in a result.txt of isc20 and sc20, which has no section before the phases."""
    found = re.match(r"\s*version\s*=\s*(\S*)", result)
    return found[1] if found else ""


def _changed(config: Mapping[str, Mapping[str, str]]) -> Iterator[ChangedOption]:
    for section, options in config.items():
        known = defaults().get(section)
        if known is None:
            continue
        for option, value in options.items():
            if option in known and value != known[option] and value:
                yield ChangedOption(section, option, value[:MAX_WORDS], known[option])


def _rules(
    found: FolderRun, marks: Mapping[str, PhaseMark], config: Mapping[str, Mapping[str, str]], known: ResultFolder
) -> Iterator[Rule]:
    state = found.run.state
    student = config.get("global", {}).get("scc", "").upper() == "TRUE"
    yield from _all_phases(marks)
    yield from _long_enough(marks, STUDENT_WRITE_SECONDS if student else MIN_WRITE_SECONDS)
    yield from _stonewall(config, known.details, student=student)
    yield from _called_invalid(state, found.result)
    yield from _options(config)
    yield from _score(state, marks)
    yield from _hashes(found, valid=state.valid)
    yield from _nodes(known.nodes, student=student)


def _all_phases(marks: Mapping[str, PhaseMark]) -> Iterator[Rule]:
    missing = [name for name in SHELL_PHASES if name not in marks or not _value(marks[name])]
    if missing:
        yield Rule("all phases", RuleState.BROKEN, f"without a result: {', '.join(missing)}")
    else:
        yield Rule("all phases", RuleState.KEPT, f"all {len(SHELL_PHASES)} phases have a result")


def _value(mark: PhaseMark) -> float:
    return mark.results[0].value if mark.results else 0.0


def _long_enough(marks: Mapping[str, PhaseMark], least: float) -> Iterator[Rule]:
    name = f"writes take {least:.0f} s"
    writes = [marks[phase] for phase in SHELL_PHASES if phase.endswith("_write") and phase in marks]
    for mark in writes:
        if mark.seconds is None:
            yield Rule(name, RuleState.UNSEEN, "the files have no time for it", mark.name)
        elif mark.seconds < least:
            yield Rule(name, RuleState.BROKEN, f"it took {mark.seconds:.1f} s", mark.name)
    if writes and all(mark.seconds is not None and mark.seconds >= least for mark in writes):
        shortest = min(writes, key=lambda mark: mark.seconds or 0.0)
        yield Rule(name, RuleState.KEPT, f"the shortest, {shortest.name}, took {shortest.seconds:.1f} s")


def _stonewall(
    config: Mapping[str, Mapping[str, str]], details: Sequence[PhaseDetail], *, student: bool
) -> Iterator[Rule]:
    right = STUDENT_WRITE_SECONDS if student else MIN_WRITE_SECONDS
    name = f"stonewall is {right:.0f} s"
    option = config.get("debug", {}).get("stonewall-time", "")
    found = [
        (f"its command line says {detail.wall:.0f} s", detail.wall, detail.phase)
        for detail in details
        if detail.wall is not None and detail.phase in SHELL_PHASES and detail.phase.endswith("_write")
    ]
    if option.isascii() and option.isdigit() and len(option) < 9:
        found.append((f"stonewall-time = {option} in section debug of the configuration", float(option), ""))
    for words, wall, phase in found:
        if wall < right:
            yield Rule(name, RuleState.BROKEN, words, phase)
        elif wall > right and not student:
            yield Rule(
                name, RuleState.NOTE, f"{words}: {DEFAULTS_OF} calls that invalid, earlier versions do not", phase
            )
    if not found:
        yield Rule(name, RuleState.UNSEEN, "neither command lines nor the configuration are in the folder")
    elif all(wall == right or (student and wall > right) for _, wall, _ in found):
        yield Rule(name, RuleState.KEPT, "so say the command lines" if found[0][2] else "so says the configuration")


REASON = expression(r"^\s*;\s*ERROR INVALID\s*(.*)$")
SECTION = expression(r"^\s*\[\s*([\w.-]{1,64})\s*\]\s*$")


def _called_invalid(state: RunState, result: str) -> Iterator[Rule]:
    """Yield what IO500 itself calls invalid: with the reasons that result.txt has."""
    name = "valid for IO500"
    phase, reasons = "", 0
    marked = not state.valid or any(not mark.valid for mark in state.phases)
    for line in result.splitlines():
        if (section := SECTION.match(line)) is not None:
            phase = phase_name(section[1])
        elif (found := REASON.match(line)) is not None and reasons < MAX_REASONS:
            reasons += 1
            words = found[1].strip()[:MAX_WORDS]
            if not marked:
                words += " (so says result.txt; but it marks neither a phase nor the score as invalid)"
            yield Rule(name, RuleState.BROKEN if marked else RuleState.NOTE, words, phase if phase != "run" else "")
    for mark in state.phases:
        if not mark.valid and not reasons:
            yield Rule(name, RuleState.BROKEN, "IO500 marks it as invalid, without a reason in result.txt", mark.name)
    if not state.valid and not reasons:
        yield Rule(name, RuleState.BROKEN, "IO500 marks the score as invalid")
    elif not reasons and not marked:
        yield Rule(name, RuleState.KEPT, "it marks nothing as invalid")


def _options(config: Mapping[str, Mapping[str, str]]) -> Iterator[Rule]:
    name = "options that the rules forbid"
    if not config:
        yield Rule(name, RuleState.UNSEEN, "the folder has no ini file")
        return
    bad = [
        f"[{section}] run = FALSE"
        for section, options in config.items()
        if options.get("run", "").upper() == "FALSE" and _is_scored(phase_name(section))
    ]
    for section, option in (("debug", "pause-dir"), ("mdtest-hard", "files-per-dir")):
        if value := config.get(section, {}).get(option, ""):
            bad.append(f"[{section}] {option} = {value[:MAX_WORDS]}")
    for words in bad:
        yield Rule(name, RuleState.BROKEN, words)
    if config.get("global", {}).get("scc", "").upper() == "TRUE":
        yield Rule(name, RuleState.NOTE, "scc = TRUE: a student cluster competition, which has a list of its own")
    if script := config.get("find", {}).get("external-script", ""):
        words = f"find runs {script[:MAX_WORDS]}: it must behave like pfind, and its source belongs in the submission"
        yield Rule(name, RuleState.NOTE, words)
    if not bad:
        yield Rule(name, RuleState.KEPT, "none is set")


def _score(state: RunState, marks: Mapping[str, PhaseMark]) -> Iterator[Rule]:
    """Yield whether the score is that of the figures."""
    name = "score is that of the figures"
    figures = {phase: _value(marks[phase]) for phase in SHELL_PHASES if phase in marks and _value(marks[phase]) > 0}
    totals = [result.value for result in state.scores if result.operation == "total"]
    if len(figures) < len(SHELL_PHASES) or not totals:
        yield Rule(name, RuleState.UNSEEN, "figures or the score are missing")
        return
    units = {phase: BYTES_PER_GIBIBYTE if phase.startswith("ior") else 1000 for phase in figures}
    score = math.exp(sum(weight(phase) * math.log(value / units[phase]) for phase, value in figures.items()))
    digits = {phase: last_digit(marks[phase].results[0]) / value for phase, value in figures.items()}
    error = score * sum(weight(phase) * digit for phase, digit in digits.items())
    total = totals[-1]
    if abs(score - total) <= error + last_digit(state.scores[-1]):
        yield Rule(name, RuleState.KEPT, f"the figures give {score:.6g}")
    elif abs(score * score - total) <= 2 * score * error + last_digit(state.scores[-1]):
        yield Rule(name, RuleState.NOTE, f"{total:.6g} is the square of {score:.6g}: io500.sh of 2017 took no root")
    else:
        yield Rule(name, RuleState.BROKEN, f"the figures give {score:.6g}, the file says {total:.6g}")


def _hashes(found: FolderRun, *, valid: bool) -> Iterator[Rule]:
    sections = ini_sections(found.result)
    name = "hash of the figures"
    written = sections.get("SCORE", {}).get("hash", "")
    if not written:
        yield Rule(
            name, RuleState.UNSEEN, "no hash in a result.txt" if found.result else "the folder has no result.txt"
        )
    elif written == score_hash(found.result):
        yield Rule(name, RuleState.KEPT, f"{written} belongs to the figures")
    elif written == score_hash(found.result, valid=False):
        yield Rule(
            name,
            RuleState.BROKEN,
            f"{written} is that of an invalid run" + ("" if not valid else ", which is not marked as one"),
        )
    else:
        yield Rule(name, RuleState.BROKEN, f"result.txt has {written}, its figures give {score_hash(found.result)}")
    name = "hash of the options"
    header = re.search(r"^[ \t]*config-hash[ \t]*=[ \t]*([0-9A-Fa-f]{1,8})[ \t\r]*$", found.result, re.MULTILINE)
    if header is None or found.config_name.lower() != "config.ini":
        missing = "a result.txt with a hash" if header is None else "the config.ini that IO500 writes"
        yield Rule(name, RuleState.UNSEEN, f"the folder lacks {missing}")
    elif header[1].upper() == config_hash(found.config):
        yield Rule(name, RuleState.KEPT, f"{header[1]} belongs to config.ini")
    else:
        words = f"result.txt has {header[1]}, config.ini gives {config_hash(found.config)}: they do not belong together"
        yield Rule(name, RuleState.BROKEN, words)


def _is_scored(section: str) -> bool:
    """Return whether a section of the configuration is about a phase that is scored."""
    return any(phase == section or phase.startswith(f"{section}_") for phase in SHELL_PHASES)


def _nodes(nodes: int | None, *, student: bool) -> Iterator[Rule]:
    name = "client nodes"
    if nodes is None:
        yield Rule(name, RuleState.UNSEEN, "the files do not say how many there were")
    elif nodes < CLIENT_NODES and not student:
        yield Rule(
            name, RuleState.NOTE, f"{nodes}: accepted, but a run on fewer than {CLIENT_NODES} cannot win an award"
        )
    else:
        list_of = "; exactly that many are needed for the 10 node challenge" if nodes == CLIENT_NODES else ""
        yield Rule(name, RuleState.KEPT, f"{nodes}{list_of}")
