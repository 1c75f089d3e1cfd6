"""The plan of an IO500 run: its phases from the ini file, and a phase's duration and extent from its command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pinchpoint.benchmarks.events import phase_name
from pinchpoint.expressions import expression

__all__ = [
    "MAX_CONFIG_BYTES",
    "PHASE_SECTIONS",
    "SHELL_PHASES",
    "STANDARD",
    "Io500Plan",
    "ini_lines",
    "ini_pairs",
    "ini_sections",
    "is_off",
    "phase_of_command",
    "phases_of",
    "plan_of",
]

MAX_CONFIG_BYTES = 64 << 10
"""Bytes of config.ini that are read; it has 2 KiB."""
MAX_PLANNED_FILE_BYTES = 2.0**63
"""Upper bound of a file's length in bytes."""

STANDARD = (
    "ior-easy-write",
    "mdtest-easy-write",
    "ior-hard-write",
    "mdtest-hard-write",
    "find",
    "ior-easy-read",
    "mdtest-easy-stat",
    "ior-hard-read",
    "mdtest-hard-stat",
    "mdtest-easy-delete",
    "mdtest-hard-read",
    "mdtest-hard-delete",
)
SHELL_PHASES = tuple(map(phase_name, STANDARD))
"""The phases of the shell driver (utilities/io500_fixed.sh), in its order."""
OPTIONAL = frozenset({"mdworkbench-create", "find-easy", "find-hard", "mdworkbench-bench", "mdworkbench-delete"})
"""Phases of the extended mode only (IO500_PHASE_FLAG_OPTIONAL, io500-isc26_v2)."""
GROUPS = {
    "ior-easy": "ior-easy",
    "ior-rnd4K-easy": "ior-easy",
    "ior-hard": "ior-hard",
    "mdtest-easy": "mdtest-easy",
    "mdtest-hard": "mdtest-hard",
    "mdworkbench": "mdworkbench",
}
"""Sections whose options apply to several phases, by the prefix of those phases' names."""
NOT_RUN = frozenset({"global", "debug", "timestamp", *GROUPS.values()})
PHASE_SECTIONS = (*STANDARD, "ior-rnd4K-easy-read", *sorted(OPTIONAL))
"""The sections of phases, in no order of their own after the first twelve."""
KNOWN = NOT_RUN.union(PHASE_SECTIONS)

SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Units of ior's sizes (``StringToBytes`` in src/utilities.c, ior 3.0 to 4.1)."""

COMMENT = expression("[;#]")

Sections = Mapping[str, Mapping[str, str]]


class IniLine(NamedTuple):
    """One line of an ini file."""

    text: str
    section: str
    """Empty before the first one."""
    is_heading: bool
    key: str
    """Empty where the line sets nothing."""
    value: str


def ini_lines(text: str) -> Iterator[IniLine]:
    """Yield the lines of an ini file; see ``u_parse_ini`` in src/ini-parse.c."""
    section = ""
    for line in text.splitlines():
        bare = COMMENT.split(line, maxsplit=1)[0].strip()
        if is_heading := bare.startswith("[") and bare.endswith("]"):
            section = bare[1:-1].strip()
            bare = ""
        key, equals, value = bare.partition("=")
        yield IniLine(line, section, is_heading, key.strip() if equals else "", value.strip())


def ini_pairs(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield section, key and value of an ini file in its order; a section also comes by itself, with an empty key."""
    for line in ini_lines(text):
        if line.is_heading or line.key or line.value:
            yield line.section, line.key, line.value


def ini_sections(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of an ini file in their order."""
    found: dict[str, dict[str, str]] = {}
    for section, key, value in ini_pairs(text):
        if section:
            options = found.setdefault(section, {})
            if key:
                options[key] = value
    return found


def phases_of(sections: Sections, *, extended: bool = False) -> tuple[str, ...]:
    """Return the phases of a run from its config.ini, which names all of them in order.

    It is empty if a section is unknown: that may stand for one phase or several.
    """
    if not sections or not KNOWN.issuperset(sections):
        return ()
    return tuple(
        phase_name(section)
        for section in sections
        if section not in NOT_RUN and (extended or section not in OPTIONAL) and not is_off(sections, section)
    )


def is_off(sections: Sections, phase: str) -> bool:
    """Return whether a config switches a phase off, in its own section or in one for several phases."""
    groups = (group for start, group in GROUPS.items() if phase.startswith(f"{start}-"))
    return any(_off(sections.get(section, {})) for section in (phase, *groups))


def _off(options: Mapping[str, str]) -> bool:
    # isc20 and sc20 had noRun.
    return options.get("run", "").upper() == "FALSE" or options.get("noRun", "").upper() == "TRUE"


def phase_of_command(argv: Sequence[str]) -> str | None:
    """Return the shell driver's phase that a command line of ior, mdtest or pfind belongs to."""
    program = os.path.basename(argv[0]) if argv else ""
    options = _options(argv)
    if program == "pfind":
        return "find"
    if program == "ior":
        level = "hard" if "ior_hard" in options.get("-o", "") or options.get("-t") == "47008" else "easy"
        operation = "write" if "-w" in options else "read" if "-r" in options else ""
    elif program == "mdtest":
        level = "hard" if "mdt_hard" in options.get("-d", "") or options.get("-w") == "3901" else "easy"
        words = {"-C": "write", "-T": "stat", "-E": "read", "-r": "delete"}
        operation = next((word for option, word in words.items() if option in options), "")
    else:
        return None
    return f"{program}_{level}_{operation}" if operation else None


class Io500Plan(NamedTuple):
    """What a phase will do, as far as its command line shows."""

    seconds: float | None = None
    """When the stonewall stops it."""
    position: float | None = None
    """Rank 0's position in its data file at the end."""
    items: float | None = None
    """Files that a rank makes or reads."""
    limit: str = ""
    """File that says how far the writing phase came, if there was a stonewall."""
    step: float = 1
    """Bytes by which the position grows with each transfer of that file's count."""
    shows: bool = True
    """Whether the position in the data file shows the phase's progress."""


def plan_of(argv: Sequence[str], processes: int | None = None) -> Io500Plan:
    """Return the plan in an ior or mdtest command line for one of so many processes."""
    program = os.path.basename(argv[0]) if argv else ""
    options = _options(argv)
    if program == "ior":
        transfer, block = _size(options.get("-t", "256k")), _size(options.get("-b", "1m"))
        segments = _size(options.get("-s", "1"))
        # In a shared file the segments of all ranks follow one another (-F: a file for each rank).
        sharers = 1 if "-F" in options else processes
        whole = block * segments * sharers if block and segments and sharers else None
        limit = re.search(r"(?:^| )stoneWallingStatusFile=(\S+)", options.get("-O", ""))
        return Io500Plan(
            _size(options.get("-D", "")),
            whole if whole is not None and whole < MAX_PLANNED_FILE_BYTES else None,
            limit=limit[1] if limit and "-r" in options else "",
            step=transfer * sharers if transfer and sharers else 0,
            shows="-z" not in options,
        )
    if program == "mdtest":
        reads = any(option in options for option in ("-E", "-T", "-r"))
        wall = _size(options.get("-W", ""))
        return Io500Plan(wall, items=_size(options.get("-n", "")), limit=options.get("-x", "") if reads else "")
    return Io500Plan()


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Return options by name: a value follows ``=``, or is the next word. All of several ``-O`` are kept."""
    found: dict[str, str] = {}
    several: list[str] = []
    for word, after in pairwise((*argv, "")):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            found[name] = value if equals else after
            if name == "-O":
                several.append(found[name])
    return found | {"-O": " ".join(several)}


def _size(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,18})([bkmgt]?)", text.lower())
    size = float(found[1]) * SIZES[found[2]] if found else 0.0
    return size or None
