from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.sysfs import block_device_name, read_int, read_text


def test_text_is_told_with_single_blanks(tmp_path: Path) -> None:
    file = tmp_path / "tcp_rmem"
    file.write_bytes(b" 4096\t131072  6291456\n")
    assert read_text(file) == "4096 131072 6291456"
    assert read_text(tmp_path / "gone") is None


@pytest.mark.parametrize(("raw", "value"), [(b"42\n", 42), (b"-1", -1), (b"", None), (b"x", None), (b"9" * 30, None)])
def test_a_number_is_told_only_where_there_is_one(tmp_path: Path, raw: bytes, value: int | None) -> None:
    file = tmp_path / "value"
    file.write_bytes(raw)
    assert read_int(file) == value


@given(raw=st.binary(max_size=64))
def test_any_bytes_give_printable_text(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.mktemp("sysfs") / "value"
    file.write_bytes(raw)
    assert (read_text(file) or "").isprintable()
    assert read_int(file) is None or isinstance(read_int(file), int)


def test_block_devices_are_named_by_their_link(tmp_path: Path) -> None:
    links = tmp_path / "dev" / "block"
    links.mkdir(parents=True)
    (links / "8:16").symlink_to("../../devices/pci0000:00/block/sdb")
    (links / "104:0").symlink_to("../../devices/block/cciss!c0d0")
    assert block_device_name(tmp_path, "8:16") == "sdb"
    assert block_device_name(tmp_path, "104:0") == "cciss/c0d0"
    assert block_device_name(tmp_path, "9:9") == "9:9"
