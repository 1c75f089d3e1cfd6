from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.profile.cfi import MAX_INSTRUCTIONS, Budget, CfiError, FrameTable, Row, Rule
from pinchpoint.profile.elf import Elf, ElfError, file_reader
from profile_samples import PROGRAM

REGISTERS = dict(zip(("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"), range(8), strict=True)) | {
    f"r{number}": number for number in range(8, 16)
}
LEAF, MIDDLE = 0x238, 0x26E
HEADER_AT, FIRST_ENTRY = 0x2D0, 0x300


def table(raw: bytes) -> FrameTable:
    return FrameTable(Elf(lambda offset, size: raw[offset : offset + size]))


def readelf_rows(program: Path) -> dict[int, tuple[str, dict[int, int]]]:
    """Return what readelf says: the frame address and where each register is, by the address of an instruction."""
    said = subprocess.run(
        ["readelf", "--debug-dump=frames-interp", str(program)], capture_output=True, text=True, check=True
    ).stdout
    rows: dict[int, tuple[str, dict[int, int]]] = {}
    columns: list[str] = []
    for line in said.splitlines():
        words = line.split()
        if line.startswith("   LOC"):
            columns = words[2:]
        elif re.match(r"[0-9a-f]{8} ", line):
            columns = []
            is_function = "FDE" in line
        elif columns and is_function and re.match(r"[0-9a-f]{16} ", line):
            saved = {
                16 if column == "ra" else REGISTERS[column]: int(value[1:])
                for column, value in zip(columns, words[2:], strict=False)
                if value.startswith("c")
            }
            rows[int(words[0], 16)] = words[1], saved
    return rows


def said_by(row: Row) -> tuple[str, dict[int, int]]:
    names = {number: name for name, number in REGISTERS.items()}
    cfa = f"{names[row.base]}{row.cfa.value:+d}" if row.cfa.kind == "register" else "exp"
    return cfa, {register: rule.value for register, rule in row.rules if rule.kind == "offset"}


@pytest.mark.parametrize("program", [Path(sys.executable), Path("/usr/bin/readelf")], ids=["python", "readelf"])
def test_rows_are_those_of_readelf(program: Path) -> None:
    with program.open("rb") as file:
        found = FrameTable(Elf(file_reader(file.fileno())))
        expected = dict(list(readelf_rows(program).items())[:2000])

        rows = {address: found.row(address, Budget()) for address in expected}

    assert {address: said_by(row) for address, row in rows.items() if row is not None} == expected


def test_code_without_a_row_has_none() -> None:
    found = table(PROGRAM)

    assert found.row(0, Budget()) is None
    assert found.row(0x100000, Budget()) is None


def test_the_return_address_of_a_function_is_below_its_frame() -> None:
    row = table(PROGRAM).row(LEAF, Budget())

    assert row is not None
    assert (row.base, row.cfa, row.return_register, row.signal) == (7, Rule("register", 8), 16, False)
    assert (16, Rule("offset", -8)) in row.rules


@pytest.mark.parametrize("raw", [PROGRAM[:HEADER_AT], PROGRAM[:HEADER_AT] + bytes(64) + PROGRAM[HEADER_AT + 64 :]])
def test_a_file_without_a_sorted_table_is_refused(raw: bytes) -> None:
    with pytest.raises(ElfError):
        table(raw)


def test_an_entry_that_is_its_own_common_entry_is_refused() -> None:
    entry = int.from_bytes(PROGRAM[HEADER_AT + 16 : HEADER_AT + 20], "little", signed=True) + HEADER_AT
    raw = bytearray(PROGRAM)
    raw[entry + 4 : entry + 8] = (4).to_bytes(4, "little")
    first = int.from_bytes(PROGRAM[HEADER_AT + 12 : HEADER_AT + 16], "little", signed=True) + HEADER_AT

    with pytest.raises(CfiError):
        table(bytes(raw)).row(first, Budget())


def test_a_sample_has_a_budget_of_instructions() -> None:
    spent = Budget(2)

    with pytest.raises(CfiError, match="too many instructions"):
        table(PROGRAM).row(MIDDLE + 40, spent)
    assert MAX_INSTRUCTIONS > 1000


@given(st.integers(HEADER_AT, len(PROGRAM) - 1), st.integers(0, 255), st.integers(0, 0x400))
def test_no_byte_of_the_table_breaks_it(place: int, byte: int, address: int) -> None:
    raw = PROGRAM[:place] + bytes([byte]) + PROGRAM[place + 1 :]
    try:
        table(raw).row(address, Budget())
    except (ElfError, CfiError):
        pass
