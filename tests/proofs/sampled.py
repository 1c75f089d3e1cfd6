"""Stack samples of real threads, classed as the exporter classes them; for scenarios whose costs are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from pinchpoint.profile.binaries import Binaries, Image
from pinchpoint.profile.classes import Frame, load_costs
from pinchpoint.profile.collected import Collector
from pinchpoint.profile.perf_events import PerfError, ThreadEvent, parse_records
from pinchpoint.profile.unwind import unwind

__all__ = ["Sampled"]

FREQUENCY = 49.0
PROC = Path("/proc")


class Sampled:
    """Samples threads of one process from now on; as a context manager, until the end of the block.

    Skips the test where threads may not be sampled.
    """

    def __init__(self, pid: int, tids: Iterable[int]) -> None:
        self._collector = Collector(load_costs())
        self._events = []
        try:
            for tid in tids:
                with suppress(ProcessLookupError):  # it has ended
                    self._events.append(ThreadEvent(tid, FREQUENCY))
        except PerfError as error:
            pytest.skip(str(error))
        self._image = Image(PROC, pid, Binaries(PROC, Path("/")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for event in self._events:
            event.close()

    def read(self) -> int:
        """Read what was sampled since the last call; return how many samples there are."""
        for event in self._events:
            for sample in parse_records(event.read()).samples:
                found = unwind(sample.registers, sample.stack, self._image.row, self._image.is_code)
                self._collector.add([self._frame(address) for address in found.frames], 1)
        return self._collector.samples

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of each class in all samples."""
        return {name: count / self._collector.samples for name, count in self._collector.classes.items()}

    def _frame(self, address: int) -> Frame:
        place = self._image.place(address)
        if place is None or place.binary is None:
            return Frame("[unknown]", "[unknown]")
        return Frame(place.binary.symbols.name(place.address) or f"[{place.file}]", place.file)
