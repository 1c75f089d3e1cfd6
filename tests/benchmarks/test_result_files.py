from __future__ import annotations

import bz2
import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinchpoint.benchmarks import result_files
from pinchpoint.benchmarks.result_files import ResultFilesError, archive_files, directory_files, is_archive


def packed(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for member in members:
            if isinstance(member, tuple):
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
            else:
                archive.addfile(member)
    return raw.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def read(path: Path, raw: bytes) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of an archive with these bytes, and what was said about it."""
    path.write_bytes(raw)
    said: list[str] = []
    return {file.name: b"".join(file.pieces()) for file in archive_files(path, said.append)}, said


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "x.tgz"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_an_archive_is_read_whatever_packed_it(archive: Path, pack: type[bytes]) -> None:
    found, said = read(archive, pack(packed(("a/result.txt", b"one"), ("a/b/config.ini", b"two"))))

    assert is_archive(archive)
    assert (found, said) == ({"a/result.txt": b"one", "a/b/config.ini": b"two"}, [])


def test_no_name_leads_out_of_an_archive(archive: Path) -> None:
    found, _ = read(archive, packed(("../../etc/passwd", b"x"), ("/abs/./result.txt", b"y")))

    assert [*found] == ["etc/passwd", "abs/result.txt"]


def test_links_and_devices_are_left_out_and_named(archive: Path) -> None:
    found, said = read(
        archive, packed(link("a", "/etc/passwd"), link("b", "a", tarfile.LNKTYPE), link("c", "", tarfile.FIFOTYPE))
    )

    assert found == {}
    assert [line.partition(": ")[2] for line in said] == [
        "'a' is a link; it is left out",
        "'b' is a link; it is left out",
        "'c' is a device or pipe; it is left out",
    ]


def test_an_archive_that_unpacks_to_too_much_is_refused(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "MAX_ARCHIVE_BYTES", 1 << 20)

    with pytest.raises(ResultFilesError, match="unpacks to more than"):
        read(archive, gzip.compress(packed(("result.txt", bytes(2 << 20)))))


def test_a_header_of_many_megabytes_is_not_read(archive: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 5 << 20

    with pytest.raises(ResultFilesError, match="a header of more than 1 MiB"):
        read(archive, info.tobuf(tarfile.USTAR_FORMAT) + bytes(5 << 20))


def test_a_chain_of_headers_ends(archive: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 11
    one = info.tobuf(tarfile.USTAR_FORMAT) + b"11 a=bcdef\n".ljust(512, b"\0")

    with pytest.raises(ResultFilesError, match="not a tar archive that can be read"):
        read(archive, one * 5000)


def test_a_cut_archive_gives_what_comes_before_the_cut(archive: Path) -> None:
    raw = gzip.compress(packed(("a", b"1"), ("b", os.urandom(1 << 20))))
    archive.write_bytes(raw[: len(raw) // 2])
    files = archive_files(archive, lambda line: None)

    first = next(files)
    assert (first.name, b"".join(first.pieces())) == ("a", b"1")
    second = next(files)
    with pytest.raises(ResultFilesError, match="name the directory"):
        b"".join(second.pieces())


@given(st.binary(max_size=2000), st.integers(0, 4000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(archive: Path, raw: bytes, place: int) -> None:
    whole = bytearray(packed(("a", b"1" * 600), link("b", "c"), ("d", b"2")))
    whole[place : place + len(raw)] = raw

    try:
        read(archive, bytes(whole))
    except ResultFilesError:
        pass


def names(root: Path) -> tuple[list[str], list[str]]:
    said: list[str] = []
    return [file.name for file in directory_files(root, said.append)], said


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in ("b/x", "a/y", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    assert names(tmp_path) == (["a/y", "b/x", "c"], [])


def test_links_in_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "secret.txt").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")

    found, said = names(tmp_path)

    assert found == []
    assert [line.partition(": ")[2] for line in said] == ["a link; it is not followed"] * 2


def test_depth_and_number_of_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "MAX_FILES", 30)
    deep = tmp_path.joinpath(*"abcdefghijklmnop")
    deep.mkdir(parents=True)
    for number in range(40):
        (tmp_path / f"z{number:02}").touch()

    found, said = names(tmp_path)

    assert len(found) < 30
    assert [line.partition(": ")[2] for line in said] == [
        "12 directories deep; it is left out",
        "more than 30 files; the rest is left out",
    ]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    def files() -> Iterator[object]:
        yield from directory_files(tmp_path / "none", print)

    with pytest.raises(ResultFilesError, match="none: No such file"):
        [*files()]
