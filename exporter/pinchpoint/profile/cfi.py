"""Finds the caller of a function: reads .eh_frame by its table .eh_frame_hdr.

Formats: Linux Standard Base, Core, "Exception Frames"; DWARF 5, 6.4 "Call Frame Information". Compilers write it for
exceptions, for C too, so that it is there in stripped binaries without frame pointers. Any user may have written the
file: a row costs at most `MAX_INSTRUCTIONS`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple

from pinchpoint.profile.elf import Elf, ElfError

__all__ = ["Budget", "CfiError", "FrameTable", "Row", "Rule"]

MAX_FRAME_TABLE_BYTES = 2 << 20
"""Bytes of .eh_frame_hdr that are read: ceph-osd 16.2.15 has 270 KB."""
MAX_ENTRY_BYTES = 16 << 10
FIRST_BYTES = 256
"""Bytes of an entry that are read at first: nearly all are shorter."""
MAX_INSTRUCTIONS = 4096
MAX_REMEMBERED = 16
MAX_CIES = 64
MAX_ROWS_BYTES = 4 << 20
"""About how much memory remembered rows of one file take: 4,000 of usual ones."""
ROW_BYTES, RULE_BYTES = 300, 100
"""About how much one takes, and each of its rules without its code (CPython 3.11)."""
MAX_REGISTER = 128

TABLE = struct.Struct("<4B")
VERSION, POINTER_PCREL_SDATA4, COUNT_UDATA4, TABLE_DATAREL_SDATA4 = 1, 0x1B, 0x03, 0x3B
"""What all linkers write in .eh_frame_hdr (binutils, bfd/elf-eh-frame.c)."""
POINTER_FORMATS = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}
"""DW_EH_PE_ formats of a fixed size."""
PCREL = 0x10
NO_POINTER = 0xFF
OF_A_REGISTER = frozenset((0x05, 0x06, 0x07, 0x08, 0x09, 0x10, 0x11, 0x14, 0x15, 0x16))
"""Instructions with a rule for a register (DWARF 5, 7.24): offset_extended, restore_extended, undefined, same_value,
register, expression, offset_extended_sf, val_offset, val_offset_sf, val_expression."""


class CfiError(ValueError):
    """A damaged table, or one with something that is not supported."""


class Rule(NamedTuple):
    """How to find a register of the caller."""

    kind: str
    """``offset``: stored at CFA + `value`; ``value``: is CFA + `value`; ``register``: is in register `value`;
    ``expression``: stored at what `code` gives; ``value_expression``: is what `code` gives; ``undefined``."""
    value: int = 0
    code: bytes = b""


class Row(NamedTuple):
    """How to find the caller of a function from one of its instructions."""

    cfa: Rule
    """``register`` with `base`, or an expression."""
    base: int
    """The register to which the rule's value is added."""
    rules: tuple[tuple[int, Rule], ...]
    """Rules by register of the caller; others keep their values."""
    return_register: int
    signal: bool
    """Whether the caller was interrupted by a signal rather than made a call."""


class Budget:
    """How many instructions of tables may still be executed for one sample."""

    def __init__(self, instructions: int = 5 * MAX_INSTRUCTIONS) -> None:
        self.instructions = instructions

    def spend(self) -> None:
        """Spend one. Raises CfiError if there is none left."""
        self.instructions -= 1
        if self.instructions < 0:
            raise CfiError("too many instructions")


class _Cie(NamedTuple):
    code_factor: int
    data_factor: int
    return_register: int
    encoding: int
    augmented: bool
    signal: bool
    program: bytes


class FrameTable:
    """The rows of one file. Raises ElfError if it has no such table."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        segment = elf.frame_table
        if segment is None:
            raise ElfError("no .eh_frame_hdr")
        self._base = segment.address
        raw = elf.read(segment.offset, min(segment.size, MAX_FRAME_TABLE_BYTES))
        if len(raw) < 12 or TABLE.unpack_from(raw) != (
            VERSION,
            POINTER_PCREL_SDATA4,
            COUNT_UDATA4,
            TABLE_DATAREL_SDATA4,
        ):
            raise ElfError("not an .eh_frame_hdr with a sorted table")
        count = min(int.from_bytes(raw[8:12], "little"), (len(raw) - 12) // 8)
        pairs = array("i")
        pairs.frombytes(raw[12 : 12 + 8 * count])
        self._starts = pairs[::2]
        self._entries = pairs[1::2]
        self._cies: dict[int, _Cie] = {}
        self._rows: dict[int, Row | None] = {}
        self._rows_bytes = 0

    @property
    def size(self) -> int:
        """About how much memory it takes, in bytes."""
        return 8 * len(self._starts) + self._rows_bytes

    def row(self, address: int, budget: Budget) -> Row | None:
        """Return the row for an instruction, None if the file says nothing about it.

        Raises CfiError, and OSError.
        """
        if address in self._rows:
            return self._rows[address]
        try:
            row = self._find(address, budget)
        except (CfiError, IndexError, struct.error) as error:
            self._remember(address, None)
            raise CfiError(str(error)) from error
        self._remember(address, row)
        return row

    def _remember(self, address: int, row: Row | None) -> None:
        rules = () if row is None else (row.cfa, *(rule for _, rule in row.rules))
        size = ROW_BYTES + sum(RULE_BYTES + len(rule.code) for rule in rules)
        if self._rows_bytes + size > MAX_ROWS_BYTES:
            self._rows.clear()
            self._rows_bytes = 0
        self._rows[address] = row
        self._rows_bytes += size

    def _find(self, address: int, budget: Budget) -> Row | None:
        index = bisect_right(self._starts, address - self._base) - 1
        if index < 0:
            return None
        entry = self._base + self._entries[index]
        raw, body = self._entry(entry)
        pointer = int.from_bytes(raw[body : body + 4], "little")
        cie = self._cie(entry + body - pointer)
        reader = _Reader(raw, body + 4)
        start = reader.pointer(cie.encoding, entry)
        size = reader.pointer(cie.encoding & 0x0F, entry)
        if not start <= address < start + size:
            return None
        if cie.augmented:
            reader.at += reader.uleb()
        machine = _Machine(cie, budget)
        machine.run(_Reader(cie.program), 0, 0)
        machine.initial = dict(machine.rules)
        machine.run(_Reader(raw[reader.at :]), start, address)
        return machine.row()

    def _entry(self, address: int) -> tuple[bytes, int]:
        """Return an entry, and where what follows its length begins."""
        raw = self._elf.at(address, FIRST_BYTES)
        length = int.from_bytes(raw[:4], "little")
        if not 4 <= length <= MAX_ENTRY_BYTES:
            raise CfiError("an entry without an end")
        if length + 4 > len(raw):
            raw = self._elf.at(address, length + 4)
        return raw[: length + 4], 4

    def _cie(self, address: int) -> _Cie:
        if (known := self._cies.get(address)) is not None:
            return known
        if len(self._cies) >= MAX_CIES:
            self._cies.clear()
        raw, body = self._entry(address)
        if raw[body : body + 4] != bytes(4) or raw[body + 4] not in (1, 3):
            raise CfiError("not a common entry")
        augmentation = raw[body + 5 : body + 21].partition(b"\0")[0]
        reader = _Reader(raw, body + 6 + len(augmentation))
        code_factor, data_factor = reader.uleb(), reader.sleb()
        return_register = reader.byte() if raw[body + 4] == 1 else reader.uleb()
        encoding, signal = 0, False
        if augmentation[:1] == b"z":
            end = reader.uleb()
            end += reader.at
            for letter in augmentation[1:]:
                if letter == ord("R"):
                    encoding = reader.byte()
                elif letter == ord("P"):
                    reader.pointer(reader.byte(), address)
                elif letter == ord("L"):
                    reader.byte()
                elif letter == ord("S"):
                    signal = True
                else:
                    break
            reader.at = end
        elif augmentation:
            raise CfiError("an unknown augmentation")
        found = self._cies[address] = _Cie(
            code_factor,
            data_factor,
            return_register,
            encoding,
            bool(augmentation),
            signal,
            raw[reader.at :],
        )
        return found


class _Reader:
    """Reads numbers, one after the other. Raises IndexError and struct.error at the end."""

    __slots__ = ("at", "raw")

    def __init__(self, raw: bytes, at: int = 0) -> None:
        self.raw = raw
        self.at = at

    def byte(self) -> int:
        self.at += 1
        return self.raw[self.at - 1]

    def fixed(self, format_: str) -> int:
        (found,) = struct.unpack_from(format_, self.raw, self.at)
        self.at += struct.calcsize(format_)
        return int(found)

    def uleb(self) -> int:
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
            if shift > 63:
                raise CfiError("a number without an end")

    def sleb(self) -> int:
        start = self.at
        found = self.uleb()
        last = self.raw[self.at - 1]
        return found - (1 << 7 * (self.at - start)) if last & 0x40 else found

    def block(self) -> bytes:
        size = self.uleb()
        found = self.raw[self.at : self.at + size]
        self.at += size
        return found

    def register(self) -> int:
        found = self.uleb()
        if found > MAX_REGISTER:
            raise CfiError("an unknown register")
        return found

    def pointer(self, encoding: int, entry: int) -> int:
        """Return an encoded pointer; `entry` is the address of what is read, from its length on."""
        if encoding == NO_POINTER:
            return 0
        format_ = POINTER_FORMATS.get(encoding & 0x0F)
        if format_ is None:
            raise CfiError("an unknown encoding")
        where = entry + self.at
        found = self.fixed(format_)
        return found + where if encoding & 0x70 == PCREL else found


class _Machine:
    """Executes the instructions up to an address."""

    def __init__(self, cie: _Cie, budget: Budget) -> None:
        self._cie = cie
        self._budget = budget
        self._left = MAX_INSTRUCTIONS
        self.cfa = Rule("undefined")
        self.base = 0
        self.rules: dict[int, Rule] = {}
        self.initial: dict[int, Rule] = {}
        self._remembered: list[tuple[Rule, int, dict[int, Rule]]] = []

    def row(self) -> Row:
        if self.cfa.kind == "undefined":
            raise CfiError("no frame address")
        return Row(self.cfa, self.base, tuple(self.rules.items()), self._cie.return_register, self._cie.signal)

    def run(self, reader: _Reader, location: int, wanted: int) -> None:
        size = len(reader.raw)
        while reader.at < size:
            self._left -= 1
            if self._left < 0:
                raise CfiError("too many instructions in one row")
            self._budget.spend()
            code = reader.byte()
            high, low = code & 0xC0, code & 0x3F
            if high == 0x40:
                location += low * self._cie.code_factor
            elif high == 0x80:
                self.rules[low] = Rule("offset", reader.uleb() * self._cie.data_factor)
            elif high == 0xC0:
                self._restore(low)
            elif low in (0x02, 0x03, 0x04):
                location += reader.fixed(("<B", "<H", "<I")[low - 2]) * self._cie.code_factor
            elif low == 0x01:
                raise CfiError("an absolute location")
            else:
                self._other(low, reader)
            if location > wanted:
                return

    def _restore(self, register: int) -> None:
        if register in self.initial:
            self.rules[register] = self.initial[register]
        else:
            self.rules.pop(register, None)

    def _other(self, code: int, reader: _Reader) -> None:
        factor = self._cie.data_factor
        if code in OF_A_REGISTER:
            register = reader.register()
            if code == 0x05:
                self.rules[register] = Rule("offset", reader.uleb() * factor)
            elif code == 0x06:
                self._restore(register)
            elif code == 0x07:
                self.rules[register] = Rule("undefined")
            elif code == 0x08:
                self.rules.pop(register, None)
            elif code == 0x09:
                self.rules[register] = Rule("register", reader.register())
            elif code == 0x11:
                self.rules[register] = Rule("offset", reader.sleb() * factor)
            elif code in (0x10, 0x16):
                kind = "expression" if code == 0x10 else "value_expression"
                self.rules[register] = Rule(kind, code=reader.block())
            else:
                number = reader.uleb() if code == 0x14 else reader.sleb()
                self.rules[register] = Rule("value", number * factor)
        elif code == 0x0A:
            if len(self._remembered) >= MAX_REMEMBERED:
                raise CfiError("too many remembered states")
            self._remembered.append((self.cfa, self.base, dict(self.rules)))
        elif code == 0x0B:
            if not self._remembered:
                raise CfiError("no state is remembered")
            self.cfa, self.base, self.rules = self._remembered.pop()
        elif code in (0x0C, 0x0D, 0x12):
            self.base = reader.register()
            if code != 0x0D:
                self.cfa = Rule("register", reader.uleb() if code == 0x0C else reader.sleb() * factor)
        elif code == 0x0E:
            self.cfa = Rule("register", reader.uleb())
        elif code == 0x0F:
            self.cfa = Rule("value_expression", code=reader.block())
        elif code == 0x13:
            self.cfa = Rule("register", reader.sleb() * factor)
        elif code == 0x2E:  # DW_CFA_GNU_args_size
            reader.uleb()
        elif code != 0x00:
            raise CfiError("an unknown instruction")
