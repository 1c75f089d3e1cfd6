"""The public results of the IO500 list, as a clone of their repository has them.

https://github.com/IO500/submission-data has a folder for each submission, such as
``INSTITUTION/SYSTEM/STORAGE/2025/submission-745``; a name with a slash in it makes one more level. Below it are the
files that were submitted, see `pinchpoint.benchmarks.io500_folder`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from pinchpoint.benchmarks.io500_folder import FolderRun, Folders
from pinchpoint.benchmarks.io500_plan import SHELL_PHASES
from pinchpoint.benchmarks.result_files import ResultFilesError, directory_files
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import RunState
from pinchpoint.shipped import shipped
from pinchpoint.tomlfile import decode_toml

__all__ = ["TOTAL", "PublicRun", "file_systems", "io500_figures", "public_runs", "submissions"]

TOTAL = "total"
"""The score among the figures of a run; the others are its phases."""
SUBMISSION = expression(r"submission-\d{1,9}")
MAX_SUBMISSIONS = 10_000
"""Submissions that are read; 334 are public in 2026."""
MAX_VISITED = 100_000
"""Directories that are looked at."""
MAX_LEVELS = 12
"""Directories between the clone and a submission; the list has up to 7."""


class PublicRun(msgspec.Struct, frozen=True):
    """One run of the list."""

    submission: str
    """Its folder below the clone."""
    nodes: int | None
    """Client nodes; None where its files do not say."""
    figures: Mapping[str, float]
    """By phase, and the score as `TOTAL`: bytes or operations a second."""

    def is_of(self, words: tuple[str, ...]) -> bool:
        """Return whether the name of its system or storage has one of these words."""
        return any(re.search(rf"(?i)(?<![a-z]){re.escape(word)}", self.storage) for word in words)

    @property
    def storage(self) -> str:
        """System and storage as they were submitted: the names between institution and year."""
        return "/".join(self.submission.split("/")[1:-2])


@cache
def file_systems() -> Mapping[str, tuple[str, ...]]:
    """Return the words by which file systems are known in the names of systems and storages."""
    raw = shipped("benchmarks/file_systems.toml").read_bytes()
    return decode_toml(raw, dict[str, tuple[str, ...]], "file_systems.toml")


def io500_figures(state: RunState) -> dict[str, float]:
    """Return the figures of a run of IO500 that are above 0: of each scored phase, and its score."""
    found = {mark.name: mark.results[0].value for mark in state.phases if mark.results and mark.name in SHELL_PHASES}
    found |= {score.operation: score.value for score in state.scores if score.operation == TOTAL}
    return {name: value for name, value in found.items() if value > 0}


def submissions(root: Path) -> Iterator[str]:
    """Yield the folders of the submissions in a clone, in the order of their names; links are not followed."""
    found = 0
    for visited, (directory, below, _) in enumerate(os.walk(root), 1):
        path = os.path.relpath(directory, root)
        here = [name for name in below if SUBMISSION.fullmatch(name)]
        for name in sorted(here):
            if not os.path.islink(os.path.join(directory, name)):
                found += 1
                yield os.path.normpath(os.path.join(path, name))
        if found >= MAX_SUBMISSIONS or visited >= MAX_VISITED:
            return
        deep = path.count("/") >= MAX_LEVELS
        below[:] = [] if deep else sorted(name for name in below if name not in here and not name.startswith("."))


def public_runs(root: Path, submission: str) -> list[PublicRun]:
    """Return the valid runs of a submission that have a score; one that stands there twice counts once."""
    folders = Folders(only_results=True)
    try:
        for file in directory_files(root / submission, lambda line: None):
            folders.take(file)
    except ResultFilesError:
        return []
    found: dict[tuple[tuple[str, float], ...], PublicRun] = {}
    for run in folders.runs(0.0):
        figures = io500_figures(run.run.state)
        if TOTAL in figures and run.run.state.valid:
            found.setdefault(tuple(figures.items()), PublicRun(submission, _nodes_of(run), figures))
    return list(found.values())


def _nodes_of(run: FolderRun) -> int | None:
    return max((detail.nodes for detail in run.details if detail.nodes), default=None)
