from __future__ import annotations

import lzma
import struct
import subprocess
from pathlib import Path

import pytest

from pinchpoint.profile.elf import Elf, Read
from pinchpoint.profile.symbols import Symbols
from profile_samples import PROGRAM

LEAF = 0x238


def reader(raw: bytes) -> Read:
    return lambda offset, size: raw[offset : offset + size]


def stripped(program: bytes, tmp_path: Path) -> bytes:
    (tmp_path / "program").write_bytes(program)
    subprocess.run(["strip", str(tmp_path / "program")], check=True)
    return (tmp_path / "program").read_bytes()


def test_a_function_is_named_by_each_of_its_addresses() -> None:
    found = Symbols(Elf(reader(PROGRAM)))

    assert found.name(LEAF) == "leaf"
    assert found.name(LEAF + 5) == "leaf"
    assert found.name(LEAF - 0x100) is None
    assert found.name(1 << 40) is None


def test_a_stripped_program_gets_names_from_the_file_with_its_build_id(tmp_path: Path) -> None:
    asked = []

    def debug_file(build_id: str) -> Read:
        asked.append(build_id)
        return reader(PROGRAM)

    elf = Elf(reader(stripped(PROGRAM, tmp_path)))

    assert Symbols(elf).name(LEAF) is None
    assert Symbols(elf, debug_file).name(LEAF) == "leaf"
    assert asked == [elf.build_id]


def test_a_file_with_another_build_id_is_not_believed(tmp_path: Path) -> None:
    other = PROGRAM.replace(bytes.fromhex(Elf(reader(PROGRAM)).build_id), bytes(20))

    assert Symbols(Elf(reader(stripped(PROGRAM, tmp_path))), lambda build_id: reader(other)).name(LEAF) is None


def with_mini_table(tmp_path: Path, packed: bytes) -> Elf:
    program = tmp_path / "mini"
    program.write_bytes(stripped(PROGRAM, tmp_path))
    (tmp_path / "packed").write_bytes(packed)
    subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={tmp_path / 'packed'}", str(program)], check=True)
    return Elf(reader(program.read_bytes()))


def test_names_of_minidebuginfo_are_used(tmp_path: Path) -> None:
    assert Symbols(with_mini_table(tmp_path, lzma.compress(PROGRAM))).name(LEAF) == "leaf"


@pytest.mark.parametrize("packed", [b"", b"no xz", lzma.compress(b"no ELF"), lzma.compress(PROGRAM)[:-200]])
def test_damaged_minidebuginfo_gives_no_names(tmp_path: Path, packed: bytes) -> None:
    assert Symbols(with_mini_table(tmp_path, packed)).name(LEAF) is None


def test_minidebuginfo_that_unpacks_without_end_is_cut(tmp_path: Path) -> None:
    assert Symbols(with_mini_table(tmp_path, lzma.compress(bytes(200 << 20), preset=0))).name(LEAF) is None


def symbol_table(name: bytes) -> Elf:
    """Return a file with one function at 0x1000, of that name."""
    names = b"\0.shstrtab\0"
    symbol = struct.pack("<IBBHQQ", 1, 2, 0, 1, 0x1000, 16)
    strings = b"\0" + name + b"\0"
    at = 64 + 4 * 64
    header = struct.pack("<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 3, 62, 1, 0, 0, 64, 0, 64, 56, 0, 64, 4, 3)

    def section(type_: int, offset: int, size: int, link: int = 0) -> bytes:
        return struct.pack("<IIQQQQIIQQ", 0, type_, 0, 0, offset, size, link, 0, 0, 0)

    sections = (
        section(0, 0, 0)
        + section(2, at, len(symbol), 2)
        + section(3, at + len(symbol), len(strings))
        + section(3, at + len(symbol) + len(strings), len(names))
    )
    return Elf(reader(header + sections + symbol + strings + names))


@pytest.mark.parametrize("name", [b"x" * (10 << 20), b"\x1b]0;title\x07", b"\xff\xfe\n", "\u202eevil".encode()])
def test_a_hostile_name_is_cut_and_printable(name: bytes) -> None:
    found = Symbols(symbol_table(name)).name(0x1000)

    assert found is not None
    assert len(found) <= 160
    assert found.isprintable()
