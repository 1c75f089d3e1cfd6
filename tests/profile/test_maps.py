from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.profile.maps import MAX_MAPPINGS, parse_maps
from profile_samples import MAPS, toy_image


def test_executable_mappings_are_found_by_address() -> None:
    found = parse_maps(MAPS)

    assert [mapping.path for mapping in found.mappings] == ["[vdso]", "/opt/toy", "[vsyscall]"]
    toy = found.find(0x7F204B696240)
    assert toy is not None
    assert (toy.name, toy.offset, toy.device, toy.inode) == ("toy", 0, "254:0", 6291486)
    assert found.find(toy.end) is None
    assert found.find(0) is None


def test_a_deleted_file_keeps_its_name() -> None:
    found = parse_maps(b"00001000-00002000 r-xp 00000000 fe:00 7    /usr/bin/ceph osd (deleted)\n")

    assert found.mappings[0].name == "ceph osd"


def test_a_process_with_60000_mappings_is_read_in_part() -> None:
    raw = b"".join(b"%012x-%012x r-xp 00000000 00:00 0 \n" % (place << 12, place + 1 << 12) for place in range(60_000))

    assert len(parse_maps(raw).mappings) == MAX_MAPPINGS
    assert parse_maps(raw.replace(b"r-xp", b"rw-p")).mappings == ()


def test_this_process_executes_libc_and_the_vdso() -> None:
    names = {mapping.name for mapping in parse_maps(Path("/proc/self/maps").read_bytes()).mappings}

    assert any(name.startswith("libc") for name in names)
    assert "[vdso]" in names


@given(st.binary(max_size=300))
def test_any_bytes_are_maps(raw: bytes) -> None:
    assert all(mapping.path.isprintable() for mapping in parse_maps(raw).mappings)


def test_a_file_in_the_root_of_the_process_is_used(tmp_path: Path) -> None:
    place = toy_image(Machine(tmp_path / "host")).place(0x7F204B696240)

    assert place is not None
    assert place.binary is not None
    assert (place.file, place.address) == ("toy", 0x240)


def test_another_file_at_the_same_path_is_not_used(tmp_path: Path) -> None:
    place = toy_image(Machine(tmp_path / "host"), inode=1).place(0x7F204B696240)

    assert place is not None
    assert (place.file, place.binary) == ("toy", None)


def test_files_that_a_server_may_withhold_are_not_opened(tmp_path: Path) -> None:
    for fstype in ("fuse.sshfs", "ceph", "nfs4"):
        place = toy_image(Machine(tmp_path / fstype), fstype=fstype).place(0x7F204B696240)

        assert place is not None
        assert place.binary is None


def test_the_vdso_is_read_from_this_process(tmp_path: Path) -> None:
    image = toy_image(Machine(tmp_path / "host"))

    place = image.place(0x7F204B694000)

    assert place is not None
    assert place.binary is not None
    assert place.binary.frames is not None
