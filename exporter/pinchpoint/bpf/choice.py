"""Chooses the source of thread times: the best that works here, found by trying."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.tasks import IteratorSource, SyscallSource
from pinchpoint.choices import AUTO
from pinchpoint.threads.task_source import ProcfsSource, TaskSource, choose_times

__all__ = ["BPF", "UnusableSourceError", "choose_source"]

BPF = {source.name: source for source in (SyscallSource, IteratorSource)}
"""Those that need BPF, the best first."""

log = logging.getLogger(__name__)


class UnusableSourceError(Exception):
    """The source that was asked for does not work here."""


def choose_source(
    procfs: Path,
    period: Callable[[int, str], int],
    wanted: str = AUTO,
    most: Callable[[int], int] = lambda tgid: sys.maxsize,
) -> TaskSource:
    """Return the `wanted` source of `pinchpoint.choices.TASK_SOURCES`, or the best that works here.

    `most` returns how many threads of a process are followed where each has to be read by itself.

    Raises UnusableSourceError if the wanted one does not work, OSError if there is no procfs.
    """
    source = _best(procfs, period, wanted, most)
    if source.reason:
        log.info("threads are read by %s: %s", source.name, source.reason)
    return source


def _best(procfs: Path, period: Callable[[int, str], int], wanted: str, most: Callable[[int], int]) -> TaskSource:
    missing: dict[str, list[str]] = {}
    for name, source in BPF.items():
        if wanted not in (AUTO, name):
            continue
        try:
            return source(procfs, _reason(missing))
        except BpfError as error:
            missing.setdefault(str(error), []).append(name)
    if wanted in BPF:
        raise UnusableSourceError(_reason(missing))
    times = choose_times(procfs)
    reason = "; ".join(part for part in (_reason(missing), times.reason) if part)
    return ProcfsSource(procfs, times._replace(reason=reason), period=period, most=most, keep=wanted != "plain")


def _reason(missing: dict[str, list[str]]) -> str:
    """Return in one line why better sources do not work."""
    return "; ".join(f"no {' and '.join(names)}: {error}" for error, names in missing.items())
