"""Chooses how it is found out what threads wait for: the best way that works here, found by trying."""

from __future__ import annotations

import logging
from pathlib import Path

from pinchpoint.bpf.choice import UnusableSourceError
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.choices import AUTO
from pinchpoint.waits.kernel_looks import KernelLooks
from pinchpoint.waits.stack_files import StackFiles
from pinchpoint.waits.stack_rules import Stacks
from pinchpoint.waits.watched import Place, WaitSource

__all__ = ["choose_source", "files_for"]

log = logging.getLogger(__name__)


def choose_source(procfs: Path, stacks: Stacks, place: Place, wanted: str = AUTO) -> WaitSource:
    """Return the `wanted` source, or the best that works here. Raises UnusableSourceError if it does not work."""
    if wanted == StackFiles.name:
        return StackFiles(stacks, place)
    try:
        return KernelLooks(procfs, stacks, place)
    except (BpfError, OSError) as error:
        if wanted == KernelLooks.name:
            raise UnusableSourceError(f"no {KernelLooks.name}: {error}") from error
        return files_for(stacks, place, error)


def files_for(stacks: Stacks, place: Place, error: Exception) -> WaitSource:
    """Return the source that works everywhere, in place of one that failed."""
    reason = f"no {KernelLooks.name}: {error}"
    log.info("stacks are read from procfs, %s", reason)
    return StackFiles(stacks, place, reason)
