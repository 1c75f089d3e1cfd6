"""The benchmarks that Pinchpoint knows: one file each. Adding one is its file, and its line here."""

from __future__ import annotations

from pinchpoint.benchmarks.base import Benchmark, Tree
from pinchpoint.benchmarks.fio import Fio

__all__ = ["BENCHMARKS", "Benchmark", "Tree", "leaders"]

BENCHMARKS: tuple[type[Benchmark], ...] = (Fio,)


def leaders(tree: Tree) -> list[tuple[int, type[Benchmark]]]:
    """Return the pid and kind of each known benchmark in a tree: processes whose parent is not of the same kind."""
    found = []
    for process in tree.processes.values():
        parent = tree.processes.get(process.ppid)
        for benchmark in BENCHMARKS:
            if process.comm == benchmark.comm and (parent is None or parent.comm != benchmark.comm):
                found.append((process.pid, benchmark))
    return found
