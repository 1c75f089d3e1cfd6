"""A benchmark as the helpers of its user report it, one after the other. Times are Unix seconds."""

from __future__ import annotations

import msgspec

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.events import State
from pinchpoint.benchmarks.talk import MAX_TOLD_PHASES, Found
from pinchpoint.runs import PhaseMark, RunState

__all__ = ["UserRun", "continued"]


class UserRun:
    """One benchmark: its leader, and what helpers found out about its run."""

    def __init__(self, kind: type[Benchmark], owner: int, pid: int, start: int, began: float, job: str = "") -> None:
        self.kind = kind
        self.owner = owner
        self.pid = pid
        self.start = start
        self.began = began
        self.job = job
        self.ended: float | None = None
        self.blind: tuple[str, ...] = ()
        """What cannot be seen because no helper reads it now."""
        self._helper: int | None = None
        """Number of the helper that reported it last."""
        self._earlier: RunState | None = None
        """What the helpers before that one reported."""
        self._latest = RunState("", kind.name, began)

    def update(self, found: Found, helper: int) -> None:
        """Take in what a helper says; it does not know what its predecessor saw."""
        if self._helper not in (None, helper):
            self._earlier = self._whole()
        self._helper, self._latest, self.ended, self.blind = helper, found.run, found.ended, ()

    def end(self, wall: float) -> None:
        """Record that its leader has gone while no helper watched it."""
        whole = self._whole()
        phases = [_closed(mark, wall) for mark in whole.phases]
        self._earlier, self.ended = None, wall
        self._latest = msgspec.structs.replace(whole, phases=phases, state=State.FINISHED)

    def state(self, run: str) -> RunState:
        """Return what is known about it under this name."""
        whole = self._whole()
        blind = sorted({*whole.blind, *self.blind})
        return msgspec.structs.replace(whole, run=run, benchmark=self.kind.name, start=self.began, blind=blind)

    def _whole(self) -> RunState:
        return self._latest if self._earlier is None else continued(self._earlier, self._latest)


def continued(earlier: RunState, later: RunState) -> RunState:
    """Return one run from what two helpers saw: the later one found it in the middle."""
    if not later.phases:
        return msgspec.structs.replace(later, phases=earlier.phases)
    first, *others = later.phases
    before = []
    for mark in earlier.phases:
        if mark.end is None and mark.name == first.name:
            first = msgspec.structs.replace(first, start=min(mark.start, first.start))
        else:
            before.append(_closed(mark, first.start))
    return msgspec.structs.replace(later, phases=[*before, first, *others][-MAX_TOLD_PHASES:])


def _closed(mark: PhaseMark, wall: float) -> PhaseMark:
    """Return a phase that has ended by now."""
    if mark.end is not None:
        return mark
    return msgspec.structs.replace(mark, end=max(wall, mark.start), state=State.FINISHED, rates=[])
