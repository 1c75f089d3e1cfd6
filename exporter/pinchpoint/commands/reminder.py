"""Reminds of a knob that a killed experiment left set; imports what it needs only if there may be one."""

from __future__ import annotations

import os

from pinchpoint.state import state_root
from pinchpoint.terminal.plain import warn

__all__ = ["remind"]


def remind() -> None:
    """Write to standard error how to restore each knob whose experiment was killed."""
    try:
        if not any(name.endswith(".json") for name in os.listdir(state_root() / "open")):
            return
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        pass  # it is said why
    from pinchpoint.experiment.journal import journals

    for journal in journals(warn):
        if journal.owner.lost:
            warn(
                f"experiment {journal.experiment} ended without restoring its knob, which may still be set: "
                "`pinchpoint experiment restore` restores it"
            )
