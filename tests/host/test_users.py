from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.users import (
    NOBODY,
    Subordinates,
    Users,
    ceph_uids,
    named_uids,
    parse_passwd,
    parse_subuid,
    process_user,
    read_subuid,
)

PASSWD = b"root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n"
ALICES = Subordinates(1000, 100_000, 65_536)


def test_root_and_those_who_are_named_are_trusted_and_have_no_mark() -> None:
    users = Users([1000])

    assert [users.trusts(uid) for uid in (0, 1000, 1001)] == [True, True, False]
    assert [users.mark(uid) for uid in (0, 1000, 1001)] == ["", "", "@uid1001"]


def test_a_subordinate_uid_is_its_user() -> None:
    users = Users((), lambda: [ALICES])

    assert users.mark(100_000) == users.mark(165_535) == users.mark(1000) == "@uid1000"
    assert users.mark(99_999) == "@uid99999"
    assert users.mark(165_536) == "@uid165536"


def test_the_containers_of_a_trusted_user_are_one_user_who_is_not_trusted() -> None:
    users = Users((), lambda: [Subordinates(0, 1_000_000, 1 << 20)])

    assert users.mark(1_000_000) == users.mark(1_000_033) == "@uid1000000"


def test_subordinate_uids_that_are_given_later_are_found() -> None:
    now, ranges = [0.0], [ALICES]
    users = Users((), lambda: list(ranges), lambda: now[0])
    assert users.user(200_000) == 200_000

    ranges.append(Subordinates(1001, 200_000, 10))
    now[0] = 60.0
    assert users.user(200_000) == 1001


def test_a_process_is_that_of_who_started_it() -> None:
    assert process_user(Path("/proc"), os.getpid()) == os.getuid()
    assert process_user(Path("/proc"), 2**22 + 1) == NOBODY


def test_a_process_of_another_user_is_that_users() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    with subprocess.Popen(["sleep", "60"], user=NOBODY) as process:
        try:
            assert process_user(Path("/proc"), process.pid) == NOBODY
        finally:
            process.kill()


def test_users_are_given_by_name_or_uid(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_bytes(PASSWD)

    assert list(named_uids(["alice", 1005], tmp_path)) == [1000, 1005]
    with pytest.raises(LookupError, match="bob"):
        named_uids(["bob"], tmp_path)


def test_ranges_of_subordinate_uids_begin_with_a_name_or_a_uid() -> None:
    raw = b"alice:100000:65536\n1001:200000:10\nbob:300000:10\n\nalice:x:1\nalice:1\n:1:2\nalice:1:12345678901\n"

    assert parse_subuid(raw, {"alice": 1000}) == [ALICES, Subordinates(1001, 200_000, 10)]


def test_without_a_list_nobody_has_subordinate_uids(tmp_path: Path) -> None:
    assert list(read_subuid(tmp_path)) == []


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


WORDS = st.lists(st.sampled_from([b"alice", b":", b"x", b"9" * 12, b"1000", b"\n", b"-1", b"\xff"])).map(b"".join)


@given(st.binary(max_size=60) | WORDS)
def test_any_bytes_give_users_with_uids_and_ranges(raw: bytes) -> None:
    assert all(0 <= uid < 10**10 for uid in parse_passwd(raw).values())
    assert all(min(found) >= 0 and max(found) < 10**10 for found in parse_subuid(raw, {"alice": 1000}))
