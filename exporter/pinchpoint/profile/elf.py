"""Reads ELF files (System V ABI; man 5 elf): 64 bits, little endian.

A file is read with ``pread``, never mapped: one that becomes shorter while it is read would end this process by SIGBUS.
Any user may have written it, so each table has a limit.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import NamedTuple

from pinchpoint.host.procfs import decode

__all__ = ["X86_64", "Elf", "ElfError", "Section", "file_reader"]

Read = Callable[[int, int], bytes]
"""Returns up to SIZE bytes from OFFSET on; fewer at the end of the file. Raises OSError."""

X86_64 = 62
"""EM_X86_64."""
PT_LOAD, PT_NOTE, PT_GNU_EH_FRAME = 1, 4, 0x6474E550
SHT_SYMTAB, SHT_DYNSYM, SHT_NOBITS = 2, 11, 8
NT_GNU_BUILD_ID = 3
MAX_SEGMENTS = 128
MAX_SECTIONS = 1024
MAX_NOTE_BYTES = 4096
MAX_BUILD_ID_BYTES = 64
MAX_SECTION_NAME_BYTES = 64
MAX_OFFSET = 1 << 63
"""No file has an offset from here on: ``pread`` takes a signed one."""

HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
NOTE = struct.Struct("<III")


class ElfError(ValueError):
    """Not an ELF file that can be used, or a damaged one; the message says why."""


class Segment(NamedTuple):
    """A part of the file that is mapped."""

    type: int
    offset: int
    address: int
    size: int
    """Bytes in the file."""


class Section(NamedTuple):
    """A named part of the file."""

    name: str
    type: int
    offset: int
    size: int
    link: int
    """Index of a related section: the names of a symbol table."""


def file_reader(fd: int) -> Read:
    """Return how to read the open file `fd`, which the caller keeps open."""

    def read(offset: int, size: int) -> bytes:
        if offset >= MAX_OFFSET - size:
            return b""
        return os.pread(fd, size, offset)

    return read


class Elf:
    """An ELF file: its segments, and its sections where it has them. Raises ElfError, and OSError from `read`."""

    def __init__(self, read: Read) -> None:
        self.read = read
        raw = read(0, HEADER.size)
        if len(raw) < HEADER.size or raw[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        fields = HEADER.unpack(raw)
        if fields[1:3] != (2, 1):
            raise ElfError("not an ELF file of 64 bits, little endian")
        self.machine: int = fields[7]
        """One of the EM_ numbers."""
        self._sections_at: int = fields[11]
        self._sections: tuple[Section, ...] | None = None
        self._section_numbers: tuple[int, int, int] = fields[16], fields[17], fields[18]
        self.segments = self._read_segments(fields[10], fields[14], fields[15])

    def _read_segments(self, offset: int, size: int, number: int) -> tuple[Segment, ...]:
        if size != SEGMENT.size or number > MAX_SEGMENTS:
            return ()
        raw = self.read(offset, size * number)
        found = []
        for start in range(0, len(raw) - size + 1, size):
            type_, _, at, address, _, in_file, _, _ = SEGMENT.unpack_from(raw, start)
            found.append(Segment(type_, at, address, in_file))
        return tuple(found)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections; none where the file has none, or more than `MAX_SECTIONS`."""
        if self._sections is None:
            self._sections = self._read_sections(*self._section_numbers)
        return self._sections

    def _read_sections(self, size: int, number: int, names: int) -> tuple[Section, ...]:
        if size != SECTION.size or not names < number <= MAX_SECTIONS:
            return ()
        raw = self.read(self._sections_at, size * number)
        rows = [SECTION.unpack_from(raw, start) for start in range(0, len(raw) - size + 1, size)]
        if names >= len(rows):
            return ()
        texts = self.read(rows[names][4], min(rows[names][5], MAX_SECTIONS * MAX_SECTION_NAME_BYTES))
        found = []
        for row in rows:
            name = texts[row[0] : row[0] + MAX_SECTION_NAME_BYTES].partition(b"\0")[0]
            in_file = 0 if row[1] == SHT_NOBITS else row[5]
            found.append(Section(decode(name), row[1], row[4], in_file, row[6]))
        return tuple(found)

    def section(self, name: str) -> Section | None:
        """Return the first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def address_of(self, offset: int) -> int | None:
        """Return the address, as the file counts them, of what is mapped from `offset`; None if nothing is."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.offset <= offset < segment.offset + segment.size:
                return segment.address + offset - segment.offset
        return None

    def at(self, address: int, size: int) -> bytes:
        """Return up to `size` bytes from an address of the file on."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.address <= address < segment.address + segment.size:
                into = address - segment.address
                return self.read(segment.offset + into, min(size, segment.size - into))
        return b""

    @property
    def frame_table(self) -> Segment | None:
        """The segment of .eh_frame_hdr, which needs no section table."""
        return next((segment for segment in self.segments if segment.type == PT_GNU_EH_FRAME), None)

    @property
    def build_id(self) -> str:
        """The build id in hexadecimal digits; empty if it has none."""
        for segment in self.segments:
            if segment.type == PT_NOTE:
                raw = self.read(segment.offset, min(segment.size, MAX_NOTE_BYTES))
                if found := _build_id(raw):
                    return found
        return ""


def _build_id(raw: bytes) -> str:
    start = 0
    while start + NOTE.size <= len(raw):
        name_size, size, type_ = NOTE.unpack_from(raw, start)
        name = start + NOTE.size
        content = name + (name_size + 3 & ~3)
        if type_ == NT_GNU_BUILD_ID and raw[name : name + name_size] == b"GNU\0" and size <= MAX_BUILD_ID_BYTES:
            return raw[content : content + size].hex()
        start = content + (size + 3 & ~3)
    return ""
