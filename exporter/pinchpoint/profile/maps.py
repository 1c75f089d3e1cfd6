"""What a process executes: the executable mappings of ``/proc/PID/maps`` (man 5 proc)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from pinchpoint.expressions import expression
from pinchpoint.host.procfs import decode

__all__ = ["MAX_MAPS_BYTES", "Mapping", "Mappings", "parse_maps"]

MAX_MAPS_BYTES = 8 << 20
"""Bytes that are read: 65,530 mappings (vm.max_map_count) of 90 bytes each have 6 MB."""
MAX_MAPPINGS = 4096
MAX_PATH_BYTES = 4096
LINE = expression(rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..x. ([0-9a-f]{1,16}) ([0-9a-f]+:[0-9a-f]+) (\d{1,20}) *(.*)")
DELETED = " (deleted)"


class Mapping(NamedTuple):
    """Executable memory."""

    start: int
    end: int
    offset: int
    """Where in the file it begins, in bytes."""
    device: str
    """MAJOR:MINOR of the file system, in decimal digits as in ``mountinfo``."""
    inode: int
    """0 where no file is mapped."""
    path: str
    """The path of the file, ``[vdso]``, or empty for memory without a file."""

    @property
    def name(self) -> str:
        """The name of the file without its directory, and without the mark of one that was deleted."""
        return self.path.removesuffix(DELETED).rpartition("/")[2]


class Mappings:
    """The executable mappings of a process."""

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        self.mappings = tuple(sorted(mappings))
        self._starts = [mapping.start for mapping in self.mappings]

    def find(self, address: int) -> Mapping | None:
        """Return the mapping that has an address."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self.mappings[index].end:
            return None
        return self.mappings[index]


def parse_maps(raw: bytes) -> Mappings:
    """Return the first executable mappings; damaged lines are left out."""
    found = []
    for line in raw.split(b"\n"):
        if b"x" not in line[18:40] or (fields := LINE.fullmatch(line[:MAX_PATH_BYTES])) is None:
            continue
        major, _, minor = fields[4].partition(b":")
        if len(fields[4]) > 17:
            continue
        device = f"{int(major, 16)}:{int(minor, 16)}"
        start, end = int(fields[1], 16), int(fields[2], 16)
        found.append(Mapping(start, end, int(fields[3], 16), device, int(fields[5]), decode(fields[6])))
        if len(found) >= MAX_MAPPINGS:
            break
    return Mappings(found)
