from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from machine import CEPH, Machine
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.threads.identity import MAX_SHOWN, MAX_SHOWN_PER_USER, ShownOwners, mark
from polling import until

USERS = {0, CEPH, os.geteuid()}
NAME = re.compile("ceph-osd")
REAL = Path("/proc")
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")


def marked(machine: Machine, users: Collection[int] = USERS) -> str:
    return mark(machine.procfs, 10, NAME, users)


@pytest.mark.parametrize("uid", [0, CEPH])
def test_a_program_of_that_name_that_root_or_ceph_runs_is_the_daemon(machine: Machine, uid: int) -> None:
    machine.process(10, "ceph-osd", uid=uid)

    assert marked(machine) == ""


def test_what_another_user_runs_is_not_though_the_program_is_the_packages(machine: Machine) -> None:
    machine.process(10, "ceph-osd", uid=1000)

    assert marked(machine) == "@uid1000"


def test_a_name_does_not_make_another_program_the_daemon(machine: Machine) -> None:
    machine.process(10, "ceph-osd", program="usr/bin/sudo")

    assert marked(machine) == "@unverified"


def test_a_program_that_an_upgrade_replaced_is_still_the_daemon(machine: Machine) -> None:
    machine.process(10, "ceph-osd", program="usr/bin/ceph-osd (deleted)")

    assert marked(machine) == ""


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o4755, 0o2755])
def test_a_program_that_others_may_change_or_run_as_its_owner_is_not(machine: Machine, mode: int) -> None:
    machine.process(10, "ceph-osd")
    machine.runs_as(10, 0, "usr/bin/ceph-osd").chmod(mode)

    assert marked(machine) == "@unverified"


@as_root
def test_a_program_that_belongs_to_another_user_is_not(machine: Machine) -> None:
    machine.process(10, "ceph-osd")
    os.chown(machine.runs_as(10, 0, "usr/bin/ceph-osd"), NOBODY, NOBODY)

    assert marked(machine) == "@unverified"


def test_where_the_program_may_not_be_seen_the_user_suffices(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)  # proc_pid_readlink (fs/proc/base.c)

    monkeypatch.setattr("pinchpoint.threads.identity.os.readlink", refuse)
    machine.process(10, "ceph-osd")
    machine.process(11, "ceph-osd", uid=1000)

    assert marked(machine) == ""
    assert mark(machine.procfs, 11, NAME, USERS) == "@uid1000"


@pytest.mark.parametrize("file", ["status", "exe"])
def test_a_process_that_is_gone_is_not(machine: Machine, file: str) -> None:
    machine.process(10, "ceph-osd")
    (machine.procfs / "10" / file).unlink()

    assert marked(machine) == "@unverified"


def test_a_process_without_a_uid_is_not(machine: Machine) -> None:
    machine.process(10, "ceph-osd")
    machine.write("proc/10/status", "Name:\tceph-osd\n")

    assert marked(machine) == "@unverified"


@contextmanager
def running(*command: str, program: Path = Path("/bin/sh"), uid: int = 0) -> Iterator[int]:
    """Run a shell under a process name of "ceph-osd" and give its pid."""
    process = subprocess.Popen(
        command, executable=program, stdin=subprocess.PIPE, user=uid, group=uid, extra_groups=[], cwd="/"
    )
    try:
        assert until(10, lambda: (REAL / str(process.pid) / "comm").read_text() == "ceph-osd\n")
        yield process.pid
    finally:
        process.kill()
        process.communicate()


RENAMED = ("sh", "-c", "printf ceph-osd >/proc/$$/comm; read line", "-i", "0")


@as_root
def test_root_may_keep_the_program_anywhere(tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir(mode=0o1777)
    place.chmod(0o1777)
    shutil.copyfile("/bin/sh", place / "ceph-osd")
    (place / "ceph-osd").chmod(0o755)

    with running("ceph-osd", "-c", "read line", program=place / "ceph-osd") as pid:
        assert mark(REAL, pid, NAME, {0}) == ""
        (place / "ceph-osd").unlink()
        assert mark(REAL, pid, NAME, {0}) == ""


@as_root
def test_a_process_that_calls_itself_so_is_not_the_daemon() -> None:
    with running(*RENAMED) as pid:
        assert mark(REAL, pid, NAME, {0}) == "@unverified"
    with running(*RENAMED, uid=NOBODY) as pid:
        assert mark(REAL, pid, NAME, {0}) == "@uid65534"


@as_root
def test_root_of_a_user_namespace_is_the_user_who_made_it() -> None:
    unshare = shutil.which("unshare")
    command = ("unshare", "--user", "--map-root-user", *RENAMED)
    if unshare is None or subprocess.run([unshare, *command[1:3], "true"], user=NOBODY, check=False).returncode:
        pytest.skip("no user namespaces for users")
    with running(*command, program=Path(unshare), uid=NOBODY) as pid:
        assert mark(REAL, pid, NAME, {0}) == "@uid65534"


def test_of_one_user_and_of_all_only_so_many_owners_are_shown() -> None:
    chosen = list(
        ShownOwners().choose((f"osd.{number}@uid{user}" for user in range(20) for number in range(6)), now=0.0)
    )

    assert len(chosen) == MAX_SHOWN
    assert chosen[:5] == ["osd.0@uid0", "osd.1@uid0", "osd.2@uid0", "osd.3@uid0", "osd.0@uid1"]


def test_an_owner_stays_while_it_is_there_and_makes_room_when_its_series_are_gone() -> None:
    shown = ShownOwners()
    first = [f"osd.{number}@uid1" for number in range(MAX_SHOWN_PER_USER)]
    shown.choose(first, 0.0)
    shown.choose(first[:1], 10.0)

    assert "osd.9@uid1" not in shown.choose(["osd.9@uid1"], KEEP_ENDED_SECONDS - 1)
    assert set(shown.choose(["osd.9@uid1"], KEEP_ENDED_SECONDS + 1)) == {"osd.0@uid1", "osd.9@uid1"}


def test_an_id_that_imitates_a_mark_is_counted_for_its_user() -> None:
    assert len(ShownOwners().choose((f"osd.0@uid{number}@uid7" for number in range(9)), 0.0)) == MAX_SHOWN_PER_USER
