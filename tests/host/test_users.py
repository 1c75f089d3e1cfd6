from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.users import ceph_uids, parse_passwd

DEBIAN = "ceph:x:64045:64045:Ceph storage service:/var/lib/ceph:/usr/sbin/nologin\n"
RED_HAT = "ceph:x:167:167:Ceph daemons:/var/lib/ceph:/sbin/nologin\n"


@pytest.mark.parametrize(
    ("passwd", "uids"),
    [
        (DEBIAN, {64045, 167}),
        (RED_HAT, {167}),
        ("root:x:0:0::/root:/bin/sh\n", {167}),
        ("backup:x:167:167::/:/bin/sh\n", set()),
        (DEBIAN + "backup:x:167:167::/:/bin/sh\n", {64045}),
    ],
)
def test_ceph_has_the_uid_of_its_packages_and_of_its_images_unless_the_host_gave_that_away(
    tmp_path: Path, passwd: str, uids: set[int]
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(passwd)

    assert ceph_uids(tmp_path) == uids


def test_without_a_list_of_users_ceph_has_the_uid_of_its_images(tmp_path: Path) -> None:
    assert ceph_uids(tmp_path) == {167}


def test_the_first_line_of_a_name_counts_and_damaged_lines_do_not() -> None:
    raw = b"+::::::\nceph\nceph:x:-1:0\nceph:x:12345678901:0::\nceph:x:64045:0\nceph:x:1000:0::/:/bin/sh\n"

    assert parse_passwd(raw) == {"ceph": 64045}


@given(st.binary(max_size=60) | st.lists(st.sampled_from([b"ceph", b":", b"x", b"9" * 12, b"\n", b"-1"])).map(b"".join))
def test_any_bytes_give_users_with_uids(raw: bytes) -> None:
    assert all(0 <= uid < 10**10 for uid in parse_passwd(raw).values())
