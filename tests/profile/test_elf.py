from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.profile.elf import X86_64, Elf, ElfError, file_reader
from profile_samples import PROGRAM


def elf(raw: bytes) -> Elf:
    return Elf(lambda offset, size: raw[offset : offset + size])


def test_a_program_has_segments_sections_and_a_build_id() -> None:
    found = elf(PROGRAM)

    assert found.machine == X86_64
    assert found.address_of(0x240) == 0x240
    assert found.address_of(0xF30) == 0x1F30
    assert found.address_of(len(PROGRAM)) is None
    assert found.at(0x1F30, 4) == PROGRAM[0xF30:0xF34]
    assert found.at(0x10000, 4) == b""
    assert {".text", ".symtab", ".eh_frame"} < {section.name for section in found.sections}
    assert len(found.build_id) == 40


def test_the_same_as_readelf_of_this_python() -> None:
    with open(sys.executable, "rb") as file:
        found = Elf(file_reader(file.fileno()))
        said = subprocess.run(["readelf", "-nSW", sys.executable], capture_output=True, text=True, check=True).stdout

        assert f"Build ID: {found.build_id}\n" in said or not found.build_id
        assert all(section.name in said for section in found.sections)
        assert f"There are {len(found.sections)} section headers" in said


@pytest.mark.parametrize("raw", [b"", b"\x7fELF", b"#!/bin/sh\n" * 10, b"\x7fELF\x01" + bytes(80)])
def test_other_files_are_refused(raw: bytes) -> None:
    with pytest.raises(ElfError):
        elf(raw)


@given(st.integers(0, len(PROGRAM)))
def test_a_truncated_file_has_less(size: int) -> None:
    try:
        found = elf(PROGRAM[:size])
    except ElfError:
        assert size < 64
        return

    assert len(found.sections) in (0, len(elf(PROGRAM).sections))
    assert found.build_id in ("", elf(PROGRAM).build_id)


def test_offsets_beyond_any_file_read_nothing(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x")
    with (tmp_path / "short").open("rb") as file:
        assert file_reader(file.fileno())(1 << 63, 8) == b""
        assert file_reader(file.fileno())(0, 8) == b"x"
