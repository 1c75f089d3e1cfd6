"""Shorter runs of IO500: its config file with some of the phases, and those that make their files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pinchpoint.benchmarks.events import phase_name
from pinchpoint.benchmarks.io500_plan import MAX_CONFIG_BYTES, PHASE_SECTIONS, STANDARD, ini_lines, ini_sections, is_off
from pinchpoint.expressions import expression
from pinchpoint.host.procfs import read_bytes

__all__ = ["PhasesError", "find_config", "in_config", "phases_in", "remove_copy", "shortened"]

WRITERS = {
    "ior-easy": ("ior-easy-write",),
    "ior-rnd4K-easy": ("ior-easy-write",),
    "ior-hard": ("ior-hard-write",),
    "mdtest-easy": ("mdtest-easy-write",),
    "mdtest-hard": ("mdtest-hard-write",),
    "mdworkbench": ("mdworkbench-create",),
    "find-easy": ("mdtest-easy-write",),
    "find-hard": ("mdtest-hard-write",),
    "find": ("ior-easy-write", "mdtest-easy-write", "ior-hard-write", "mdtest-hard-write"),
}
"""Phases whose files a phase reads, by the beginning of its name; the longest one counts."""
OTHER_PHASES = expression(r"(?:ior|mdtest)-\w+-(?:write|read|stat|delete)")
"""Sections of versions that this one does not know, which are phases."""


class PhasesError(Exception):
    """The run can't be shortened: `str` says why, and what to do."""


def phases_in(text: str) -> list[str]:
    """Return the sections of IO500's phases that ``--phases`` names, also as Pinchpoint writes them.

    Raises PhasesError for anything else.
    """
    known = {phase_name(section): section for section in PHASE_SECTIONS}
    words = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := [word for word in words if phase_name(word) not in known]:
        raise PhasesError(f"no phase of IO500: {', '.join(unknown)}; the phases are {', '.join(known)}")
    if not words:
        raise PhasesError(f"names no phase; the phases are {', '.join(known)}")
    return list(dict.fromkeys(known[phase_name(word)] for word in words))


def _with_writers(phases: Sequence[str]) -> frozenset[str]:
    starts = [max((start for start in WRITERS if phase.startswith(start)), key=len) for phase in phases]
    return frozenset(phases).union(*(WRITERS[start] for start in starts))


def shortened(text: str, phases: Sequence[str]) -> str:
    """Return IO500's config with these phases and those that make their files; all others are switched off.

    Everything else stays as it is, also comments. Raises PhasesError if the config switches one of them off.
    """
    sections = ini_sections(text)
    wanted = _with_writers(phases)
    if off := [phase for phase in PHASE_SECTIONS if phase in wanted and is_off(sections, phase)]:
        raise PhasesError(f"the config switches {', '.join(off)} off (run = FALSE)")
    no_run = any("noRun" in options for options in sections.values())
    switch = "noRun = TRUE" if no_run else "run = FALSE"
    lines: list[str] = []
    for line in ini_lines(text):
        is_phase = line.section in PHASE_SECTIONS or OTHER_PHASES.fullmatch(line.section) is not None
        if not is_phase or line.section in wanted:
            lines.append(line.text)
        elif line.is_heading:
            lines += [line.text, switch]
        elif line.key not in ("run", "noRun"):
            lines.append(line.text)
    # A phase without a section runs too.
    for phase in STANDARD:
        if phase not in wanted and phase not in sections:
            lines += [f"[{phase}]", switch]
    return "\n".join(lines) + "\n"


def find_config(argv: Sequence[str], directory: Path) -> tuple[int, str]:
    """Return which word of a command is IO500's config, and its text. Raises PhasesError if none is, or several are."""
    found = []
    for number, word in enumerate(argv[1:], start=1):
        if not os.path.isfile(directory / word):  # unlike Path.is_file, False for a word that is too long for a name
            continue
        try:
            raw = read_bytes(directory / word, MAX_CONFIG_BYTES)
            text = raw.decode()
        except (OSError, ValueError):
            continue
        if len(raw) < MAX_CONFIG_BYTES and "global" in ini_sections(text):
            found.append((number, text))
    if len(found) != 1:
        what = "none of them is" if not found else "several are"
        raise PhasesError(
            f"the command has to name one config of IO500, with a section [global]; of its words {what} one"
        )
    return found[0]


@contextmanager
def in_config(argv: Sequence[str], directory: Path, phases: Sequence[str], name: str) -> Iterator[list[str]]:
    """Yield a command with a shortened config, a file beside the original that is removed at the end.

    It is there, not in a directory of this host's, so that ranks on other hosts find it. Raises PhasesError.
    """
    number, text = find_config(argv, directory)
    config = directory / argv[number]
    copy = config.with_name(f"{config.stem}.{name}{config.suffix}")
    try:
        with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as file:
            file.write(shortened(text, phases))
    except OSError as error:
        if not isinstance(error, FileExistsError):
            remove_copy(copy)
        raise PhasesError(f"{copy}: {error.strerror}: the shortened config has to be beside the original") from error
    try:
        yield [*argv[:number], str(copy), *argv[number + 1 :]]
    finally:
        remove_copy(copy)


def remove_copy(copy: Path) -> None:
    """Remove a shortened config, if it is still there."""
    with suppress(OSError):  # that it is left matters less than how the experiment ended
        copy.unlink()
