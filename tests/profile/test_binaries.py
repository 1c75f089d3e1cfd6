from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pinchpoint.profile import binaries as module
from pinchpoint.profile import cfi
from pinchpoint.profile.binaries import Binaries, Image
from pinchpoint.profile.cfi import Budget, CfiError
from pinchpoint.profile.maps import parse_maps

PROC = Path("/proc")
MAPPINGS = parse_maps((PROC / "self/maps").read_bytes()).mappings


@pytest.fixture
def binaries() -> Iterator[Binaries]:
    with closing(Binaries(PROC, Path("/"))) as found:
        yield found


def opened() -> Counter[str]:
    """Return how often this process has files open; other tests may have left some so."""
    return Counter(os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path))


def test_a_file_is_opened_once_and_closed_at_the_end() -> None:
    files = [mapping for mapping in MAPPINGS if mapping.path.endswith(".so.6")]
    before = opened()
    with closing(Binaries(PROC, Path("/"))) as binaries:
        for mapping in files:
            assert binaries.of(os.getpid(), mapping) is binaries.of(os.getpid(), mapping) is not None
        assert opened() - before == Counter(mapping.path for mapping in files)
    assert opened() == before


def test_files_whose_tables_take_too_much_memory_are_forgotten_the_oldest_first(
    binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened()
    libc, libm = (next(one for one in MAPPINGS if name in one.path) for name in ("libc.so", "libm.so"))
    first, second = (binaries.of(os.getpid(), mapping) for mapping in (libc, libm))
    assert first is not None
    assert second is not None
    image = Image(PROC, os.getpid(), binaries)
    place = image.place(libm.start + 64)
    assert place is not None
    assert place.binary is second
    before = second.size

    monkeypatch.setattr(module, "MAX_TABLES_BYTES", first.size + before)
    binaries.name(place)

    assert second.size > before, "its names count"
    assert {path for path in opened() - files if not path.endswith(".debug")} == {libm.path}
    assert binaries.of(os.getpid(), libc) is not first, "it is opened again when it is needed again"
    binaries.close()
    assert opened() == files, "also the file with its names"


def test_remembered_rows_take_no_more_memory_than_allowed(binaries: Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    libc = next(one for one in MAPPINGS if "libc.so" in one.path)
    binary = binaries.of(os.getpid(), libc)
    assert binary is not None
    assert binary.frames is not None
    monkeypatch.setattr(cfi, "MAX_ROWS_BYTES", 10_000)
    table = binary.frames.size
    start = binary.elf.address_of(libc.offset)
    assert start is not None
    rows = {}
    for address in range(start, start + 20_000, 64):
        try:
            rows[address] = binary.frames.row(address, Budget())
        except CfiError:
            continue
        assert binary.frames.size <= table + 10_000

    assert len(set(rows.values())) > 10
    assert rows == {address: binary.frames.row(address, Budget()) for address in rows}
