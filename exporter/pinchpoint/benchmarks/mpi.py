"""Ranks: which process represents a parallel run, and what launchers add to the ranks' output."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.wrappers import LAUNCHERS
from pinchpoint.expressions import expression
from pinchpoint.runs import RankMark
from pinchpoint.threads.slurm import SLURMSTEPD

__all__ = ["Ranks", "beside_launcher", "is_first_rank", "rank", "unprefixed"]

VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
"""Variables in which launchers set the rank: Open MPI 4, PMIx, MPICH's hydra and Intel MPI, MVAPICH2,
Slurm."""
REMOTE = frozenset({"orted", "prted", SLURMSTEPD})
"""Parents of ranks that may be on a host other than the launcher's (Open MPI 4 and 5, Slurm)."""
PROXIES = frozenset({"hydra_pmi_proxy", "pmi_proxy"})
"""Parents of ranks on every host, the launcher's too (MPICH and Intel MPI)."""

CTIME = r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})"
PREFIX = expression(
    # mpirun --tag-output and --timestamp-output, of Open MPI 4: [1,0]<stdout>:, Sat Nov 21 00:20:17 2026<stdout>:, and
    # of 5: [prterun-host-4711@1,0]<stdout>: (src/mca/iof/base/iof_base_output.c of PRRTE 3.0)
    rf"(?:{CTIME}|{CTIME}?\[[\w.@-]{{0,255}}\b\d{{1,9}},\d{{1,9}}\])<(?:stdout|stderr)>: ?"
    # mpiexec.mpich -prepend-rank
    r"|\[\d{1,9}\] "
    # srun --label
    r"|^ {0,8}\d{1,9}: "
)


def rank(tree: Tree, pid: int) -> int | None:
    """Return a process' rank, None if it has none or we may not see it."""
    for name in VARIABLES:
        if re.fullmatch("[0-9]{1,9}", value := tree.variable(pid, name)):
            return int(value)
    return None


class Ranks:
    """The ranks of some processes, each read once.

    A process' environment is its own memory, which its user may have made to hang: only a process of that user reads
    it here.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, str], RankMark | None] = {}
        """By pid, start and name: what a launcher's child has before exec is not its own yet."""

    def look(self, tree: Tree, pids: Iterable[int]) -> Sequence[RankMark]:
        """Return the ranks among these processes that were not known at the last look."""
        known, self._known = self._known, {}
        new = []
        for pid in pids:
            task = tree.processes[pid]
            key = pid, task.start, task.comm
            if key in known:
                self._known[key] = known[key]
                continue
            number = rank(tree, pid)
            self._known[key] = mark = None if number is None else RankMark(pid, task.start, number)
            if mark is not None:
                new.append(mark)
        return new

    @property
    def known(self) -> Sequence[RankMark]:
        """All ranks of the last look."""
        return [mark for mark in self._known.values() if mark is not None]


def beside_launcher(tree: Tree, pid: int) -> bool:
    """Return whether a rank is on the launcher's host, as far as known: rank 0 usually is."""
    parent = tree.processes[pid].ppid
    comm = tree.comm(parent)
    if comm in PROXIES or comm == SLURMSTEPD:
        return any(tree.comm(above) in LAUNCHERS for above in tree.ancestors(parent))
    return comm not in REMOTE


def is_first_rank(tree: Tree, pid: int, comms: Collection[str]) -> bool:
    """Return whether a process represents its run: rank 0, or the only process.

    If ranks can't be seen it is the oldest child of its parent of the kind, if the launcher is on this host; on other
    hosts no process is.
    """
    task = tree.processes[pid]
    if tree.comm(task.ppid) in comms:
        return False
    if (known := rank(tree, pid)) is not None:
        return known == 0
    siblings = [child for child in tree.children(task.ppid) if tree.comm(child) in comms]
    return beside_launcher(tree, pid) and pid == min(siblings, default=pid)


def unprefixed(line: str) -> str:
    """Return a line without what launchers insert before a rank's output, at its start and in its middle."""
    return PREFIX.sub("", line) if "[" in line or "<" in line or ": " in line[:20] else line
