"""Names of functions by address: of ELF files, stripped ones too, and of the kernel.

Names stay in the file until they are needed: 25,000 functions of ceph-osd take 400 KB.
"""

from __future__ import annotations

import lzma
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from operator import gt, itemgetter
from typing import BinaryIO

from pinchpoint.expressions import expression
from pinchpoint.host.procfs import decode
from pinchpoint.profile.demangle import short_name
from pinchpoint.profile.elf import SHT_DYNSYM, SHT_SYMTAB, Elf, ElfError, Read, Section

__all__ = ["KernelSymbols", "Symbols"]

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
ADDRESS_DIGITS = 16
ADDRESS = expression(rb"[0-9a-f]{16}")
"""An address in kallsyms on a machine of 64 bits (%px, lib/vsprintf.c)."""
FUNCTIONS = frozenset({b" t ", b" T ", b" w ", b" W "})
"""How kallsyms marks functions."""
MAX_KALLSYMS_BYTES = 64 << 20
"""Of kallsyms, in bytes: Linux 6.18 with few modules has 5 MiB of it."""
KALLSYMS_PIECE_BYTES = 1 << 18
"""Bytes of kallsyms that are read at a time."""
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


class _Functions:
    """Functions of the kernel by address."""

    def __init__(self) -> None:
        self.starts = array("Q")
        self._offsets = array("I", [0])
        self._text = bytearray()

    def add(self, starts: array[int], lines: Iterable[bytes]) -> None:
        """Add lines of kallsyms; none begins before those that are here."""
        names = [line[ADDRESS_DIGITS + 3 :] for line in lines]
        self.starts.extend(starts)
        self._offsets.pop()
        self._offsets.extend(accumulate(map(len, names), initial=len(self._text)))
        self._text += b"".join(names)

    def last(self, address: int) -> int:
        """Return the index of the last one that does not begin after an address, -1 if there is none."""
        return bisect_right(self.starts, address) - 1

    def name(self, index: int) -> str | None:
        begin, end = self._offsets[index : index + 2]
        words = bytes(self._text[begin : min(end, begin + MAX_SHOWN_CHARACTERS)]).split(None, 1)
        return short_name(decode(words[0])) if words else None


class KernelSymbols:
    """The functions of the kernel, from ``/proc/kallsyms`` (s_show, kernel/kallsyms.c; man 5 proc).

    Without CAP_SYSLOG and with kernel.kptr_restrict all addresses are 0: then it knows no name. A kernel has more than
    a hundred thousand, so nothing here is done for each of them in Python that is not one expression, and only a piece
    of the file is in memory as lines, which take several times their length. Raises OSError.
    """

    def __init__(self, file: BinaryIO, piece: int = KALLSYMS_PIECE_BYTES) -> None:
        kernel, others = _Functions(), _Functions()
        unsorted: list[bytes] = []
        read = 0
        while read < MAX_KALLSYMS_BYTES and (lines := file.readlines(piece)):
            read += sum(map(len, lines))
            lines, starts = _functions(lines)
            last = kernel.starts[-1:]
            if any(map(gt, chain(last, starts), starts if last else starts[1:])):
                unsorted += lines  # modules, which follow the kernel
            else:
                kernel.add(starts, lines)
        unsorted.sort()  # by address, whose digits are as many in each line
        others.add(_functions(unsorted)[1], unsorted)
        self._tables = (kernel, others)

    def __len__(self) -> int:
        return sum(len(table.starts) - bisect_right(table.starts, 0) for table in self._tables)

    def name(self, address: int) -> str | None:
        """Return the name of the function that has an address, or None."""
        start, index, table = max(
            ((table.starts[index], index, table) for table in self._tables if (index := table.last(address)) >= 0),
            key=itemgetter(0),
            default=(0, 0, None),
        )
        return table.name(index) if start and table is not None else None


def _functions(lines: list[bytes]) -> tuple[list[bytes], array[int]]:
    """Return those lines of kallsyms that show functions, and their addresses."""
    found = [line for line in lines if line[ADDRESS_DIGITS : ADDRESS_DIGITS + 3] in FUNCTIONS]
    if (starts := _addresses(found)) is None:
        found = [line for line in found if ADDRESS.match(line)]
        starts = _addresses(found) or array("Q")
    return found, starts


def _addresses(lines: Sequence[bytes]) -> array[int] | None:
    """Return the addresses that lines begin with; None if one does not begin with `ADDRESS_DIGITS` digits."""
    try:
        raw = bytes.fromhex(b"".join([line[:ADDRESS_DIGITS] for line in lines]).decode("latin-1"))
    except ValueError:
        return None
    found = array("Q")
    if len(raw) != len(lines) * found.itemsize:
        return None  # it skips spaces
    found.frombytes(raw)
    if sys.byteorder == "little":
        found.byteswap()
    return found
