from __future__ import annotations

import lzma
import struct
import subprocess
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.profile.demangle import short_name
from pinchpoint.profile.elf import Elf, Read
from pinchpoint.profile.symbols import KernelSymbols, Symbols
from profile_samples import PROGRAM

LEAF = 0x238
KALLSYMS = (
    b"ffffffff81000000 T _stext\nffffffff81000010 t do_work.isra.0\nffffffff81000020 D data\n"
    b"ffffffffc0000000 t ceph_con_workfn\t[libceph]\nzz T bad\nffffffff81000030\n"
)


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


def test_kernel_functions_are_named_without_suffixes_and_modules() -> None:
    found = KernelSymbols(BytesIO(KALLSYMS))

    assert found.name(0xFFFFFFFF81000005) == "_stext"
    assert found.name(0xFFFFFFFF81000025) == "do_work"
    assert found.name(0xFFFFFFFFC0000001) == "ceph_con_workfn"
    assert found.name(0x1000) is None


def test_without_the_right_to_see_addresses_no_kernel_function_has_a_name() -> None:
    assert len(KernelSymbols(BytesIO(b"0000000000000000 T _stext\n"))) == 0


@given(st.binary(max_size=400), st.integers(0, 2**64 - 1))
def test_any_bytes_are_kernel_symbols_or_none(raw: bytes, address: int) -> None:
    KernelSymbols(BytesIO(raw)).name(address)


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from("tTwWdD"), st.text("abc_", min_size=1)), max_size=9),
    st.booleans(),
    st.integers(1, 200),
)
def test_an_address_belongs_to_the_last_function_that_does_not_begin_after_it(
    symbols: list[tuple[int, str, str]], sort: bool, piece: int
) -> None:
    symbols = sorted(symbols) if sort else symbols
    raw = "".join(f"{address:016x} {kind} {name}\n" for address, kind, name in symbols).encode()
    functions = [(address, name) for address, kind, name in symbols if kind in "tTwW" and address]
    found = KernelSymbols(BytesIO(b"not an address! t x\n" + raw), piece)

    for asked, _, _ in symbols:
        before = [address for address, _ in functions if address <= asked]
        names: list[str | None] = [name for address, name in functions if before and address == max(before)]
        assert found.name(asked) in (names or [None])


def test_the_functions_of_this_kernel_are_named() -> None:
    raw = Path("/proc/kallsyms").read_bytes()
    functions = [words for words in map(bytes.split, raw.splitlines()) if len(words) == 3 and words[1] in (b"t", b"T")]
    shown = [(int(words[0], 16), words[2].decode()) for words in functions if int(words[0], 16)]
    if not shown:
        pytest.skip("this kernel shows no addresses")
    at = Counter(address for address, _ in shown)
    found = KernelSymbols(BytesIO(raw))

    for address, name in shown[:: len(shown) // 50 + 1]:
        if at[address] == 1:
            assert found.name(address) == short_name(name)
