"""Names of functions by address in ELF files, stripped ones too.

Names stay in the file until they are needed: 25,000 functions of ceph-osd take 400 KB.
"""

from __future__ import annotations

import lzma
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from pinchpoint.host.procfs import decode
from pinchpoint.profile.demangle import short_name
from pinchpoint.profile.elf import SHT_DYNSYM, SHT_SYMTAB, Elf, ElfError, Read, Section

__all__ = ["MAX_SHOWN_CHARACTERS", "Symbols"]

SYMBOL = struct.Struct("<IBBHQQ")
"""Elf64_Sym: name, info, other, section, address, size."""
STT_FUNC, STT_GNU_IFUNC = 2, 10
MAX_SYMBOLS = 1 << 18
"""Symbols of one table: ceph-osd 16.2.15 has 32,000 dynamic ones; the largest table takes 0.2 s."""
MAX_SYMBOL_BYTES = 2048
"""Bytes of a name that are read; longer ones are cut."""
MAX_SHOWN_CHARACTERS = 160
"""Characters of a name that are kept."""
MAX_UNPACKED_BYTES = 12 << 20
"""Bytes of .gnu_debugdata after unpacking ..."""
MAX_PACKED_BYTES = 4 << 20
"""... and before."""
MAX_UNPACKING_BYTES = 24 << 20
"""Memory for unpacking."""
MAX_NAMES = 1 << 12
"""Names that are remembered for one file."""


class _Table:
    """A symbol table: addresses, sizes and where the names are."""

    def __init__(self, elf: Elf, section: Section) -> None:
        self._read: Read = elf.read
        strings = elf.sections[section.link] if section.link < len(elf.sections) else None
        self._strings = (strings.offset, strings.size) if strings is not None else (0, 0)
        size = min(section.size, MAX_SYMBOLS * SYMBOL.size)
        raw = elf.read(section.offset, size)
        raw = raw[: len(raw) - len(raw) % SYMBOL.size]
        rows = sorted(
            (address, extent, name)
            for name, info, _, where, address, extent in SYMBOL.iter_unpack(raw)
            if where and info & 15 in (STT_FUNC, STT_GNU_IFUNC)
        )
        self._starts = array("Q", [row[0] for row in rows])
        self._sizes = array("Q", [row[1] for row in rows])
        self._names = array("I", [row[2] for row in rows])

    @property
    def size(self) -> int:
        """How much memory it takes, in bytes."""
        return sum(len(column) * column.itemsize for column in (self._starts, self._sizes, self._names))

    def find(self, address: int) -> str | None:
        last = bisect_right(self._starts, address) - 1
        if last < 0:
            return None
        first = bisect_left(self._starts, self._starts[last], 0, last)
        for index in range(last, max(first, last - 8) - 1, -1):
            if address - self._starts[index] < max(1, self._sizes[index]):
                return self._name(self._names[index])
        return None

    def _name(self, offset: int) -> str | None:
        start, size = self._strings
        if offset >= size:
            return None
        raw = self._read(start + offset, min(MAX_SYMBOL_BYTES, size - offset))
        name = short_name(decode(raw.partition(b"\0")[0]))
        return name[:MAX_SHOWN_CHARACTERS] or None


class Symbols:
    """The functions of an ELF file.

    Sources, the best first: .symtab, that of the file with debugging information (`debug_file` returns how to read the
    one with a build id, or None), that in .gnu_debugdata (Red Hat's MiniDebugInfo), .dynsym.
    """

    def __init__(self, elf: Elf, debug_file: Callable[[str], Read | None] = lambda build_id: None) -> None:
        self._tables = [_Table(elf, section) for section in elf.sections if section.type == SHT_DYNSYM][:1]
        self._unpacked = 0
        full = _full_table(elf)
        if full is None and (build_id := elf.build_id) and (read := debug_file(build_id)) is not None:
            full = _debug_table(read, build_id)
        if full is None:
            full, self._unpacked = _mini_table(elf)
        if full is not None:
            self._tables.insert(0, full)
        self._known: dict[int, str | None] = {}

    @property
    def size(self) -> int:
        """How much memory it takes, in bytes, but for the names that were asked for."""
        return self._unpacked + sum(table.size for table in self._tables)

    def name(self, address: int) -> str | None:
        """Return the name of the function that has an address, None if no table knows it. Raises OSError."""
        if address in self._known:
            return self._known[address]
        if len(self._known) >= MAX_NAMES:
            self._known.clear()
        found = next((name for table in self._tables if (name := table.find(address)) is not None), None)
        self._known[address] = found
        return found


def _full_table(elf: Elf) -> _Table | None:
    section = next((section for section in elf.sections if section.type == SHT_SYMTAB), None)
    return _Table(elf, section) if section is not None else None


def _debug_table(read: Read, build_id: str) -> _Table | None:
    try:
        elf = Elf(read)
        return _full_table(elf) if elf.build_id == build_id else None
    except (ElfError, OSError):
        return None


def _mini_table(elf: Elf) -> tuple[_Table | None, int]:
    """Return the table in .gnu_debugdata, None if there is none, and the size of the unpacked file, which is kept."""
    section = elf.section(".gnu_debugdata")
    if section is None or section.size > MAX_PACKED_BYTES:
        return None, 0
    try:
        unpacker = lzma.LZMADecompressor(memlimit=MAX_UNPACKING_BYTES)
        raw = unpacker.decompress(elf.read(section.offset, section.size), MAX_UNPACKED_BYTES)
        return _full_table(Elf(lambda offset, size: raw[offset : offset + size])), len(raw)
    except (lzma.LZMAError, ElfError, EOFError):
        return None, 0
