from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from machine import KERNEL_THREAD, KWORKER, stat_line
from pinchpoint.host.procfs import (
    FormatError,
    decode,
    first_names,
    kworker_work,
    parse_cpu_list,
    parse_cpus_allowed,
    parse_file_info,
    parse_mounts,
    parse_process_io,
    parse_real_uid,
    parse_schedstat,
    parse_sleeps,
    parse_stat,
    parse_thread_group,
    read_bytes,
)
from reader_seeds import PROCESS_IO

COMMS = st.binary(min_size=0, max_size=63)
"""A name is at most 15 bytes for a user's thread, 63 for a kernel thread (proc_task_name, fs/proc/array.c)."""


@given(COMMS)
@example(b"a b")
@example(b"a) R 1 (b")
@example(b") S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 20 0 1 0 5 (")
@example(b"new\nline")
@example(b"\xff\xfe")
@example(b"")
def test_every_name_is_found_between_the_outer_parentheses(comm: bytes) -> None:
    stat = parse_stat(stat_line(7, comm, ppid=3, utime=11, stime=12, start=987))

    assert stat == (decode(comm), "S", 3, 0, 11, 12, 987)


@given(st.binary(max_size=300))
@example(b"1 (x) S " + b"9" * 5000)
@example(b"1 (x) S 1 1 1 0 -1 0 0 0 0 0 " + b"9" * 5000 + b" 0 0 0 20 0 1 0 5")
@example(b")(" + b" 1" * 30)
def test_bytes_that_are_no_stat_line_raise_the_parsers_own_error(raw: bytes) -> None:
    try:
        stat = parse_stat(raw)
    except FormatError:
        return

    assert stat.comm.isprintable()


def test_a_stat_line_that_was_cut_is_an_error_and_not_a_number_too_small() -> None:
    line = stat_line(7, "fio", start=987)

    for cut in range(line.index(b"987") + 4):
        with pytest.raises(FormatError):
            parse_stat(line[:cut])
    assert parse_stat(line[: cut + 2]).start == 987


def test_flags_and_not_the_name_say_what_a_kernel_thread_is() -> None:
    imitation = parse_stat(stat_line(7, "kworker/0:1+flush-x"))
    kswapd = parse_stat(stat_line(8, "kswapd0", flags=KERNEL_THREAD))
    worker = parse_stat(stat_line(9, "kworker/0:1+flush-x", flags=KWORKER))

    assert (imitation.kernel_thread, imitation.kworker) == (False, False)
    assert (kswapd.kernel_thread, kswapd.kworker) == (True, False)
    assert (worker.kernel_thread, worker.kworker) == (True, True)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_schedstat_gives_run_and_wait_in_nanoseconds(run: int, wait: int, slices: int) -> None:
    assert parse_schedstat(b"%d %d %d\n" % (run, wait, slices)) == (run, wait)


@given(st.binary(max_size=100))
@example(b"9" * 5000 + b" 1 1")
@example(b"1 2")
@example(b"-1 2 3")
@example(b"1 2 x")
@example("٣ 2 3".encode())
def test_bytes_that_are_no_schedstat_line_raise_the_parsers_own_error(raw: bytes) -> None:
    try:
        run, wait = parse_schedstat(raw)
    except FormatError:
        return

    assert run >= 0
    assert wait >= 0


@pytest.mark.parametrize(
    ("comm", "work"),
    [
        ("kworker/u8:1+flush-254:0", "flush-254:0"),
        ("kworker/u8:1-flush-254:0", "flush-254:0"),
        ("kworker/u8:1-flush-ceph-1", "flush-ceph-1"),
        ("kworker/1:1H+kblockd", "kblockd"),
        ("kworker/u257:3-writeback", "writeback"),
        ("kworker/0:0-a+b:c", "a+b:c"),
        ("kworker/1:0", ""),
        ("kworker/dying", ""),
        ("kworker/R-writeback", "writeback"),
        ("kworker/R-writeback+flush-254:0", "flush-254:0"),
        ("kworker/R-ext4-rsv-conversion", "ext4-rsv-conversion"),
        ("kswapd0", ""),
        ("fio", ""),
        ("", ""),
    ],
)
def test_work_of_a_worker_is_behind_the_sign_in_its_name(comm: str, work: str) -> None:
    assert kworker_work(comm) == work


@given(st.text(max_size=70) | st.text(max_size=60).map("kworker/".__add__))
def test_any_name_has_a_work_or_none(comm: str) -> None:
    assert kworker_work(comm) in comm


@given(st.binary(max_size=200))
def test_decoded_text_can_be_printed_and_encoded(raw: bytes) -> None:
    text = decode(raw)

    assert text.isprintable()
    assert text.encode().decode() == text


def test_no_more_is_read_of_a_file_than_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)

    assert read_bytes(file, 10) == b"x" * 10
    assert read_bytes(file) == b"x" * 100
    with pytest.raises(OSError, match="No such file"):
        read_bytes(tmp_path / "missing")


def test_a_list_of_cpus_is_ranges_and_single_ones() -> None:
    assert parse_cpu_list(b"0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list(b"5") == {5}
    assert parse_cpu_list(b"\n") == frozenset()


@given(st.sets(st.integers(0, 300)))
def test_every_set_of_cpus_is_read_back(cpus: set[int]) -> None:
    assert parse_cpu_list(",".join(map(str, sorted(cpus))).encode()) == cpus


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from([b"0", b"7", b"-", b",", b" ", b"9" * 12, b"Cpus_allowed_list:", b"\n"])).map(b"".join)
)
@example(b"0-99999999")
@example(b"3-1")
@example(b",")
def test_any_bytes_give_cpus_or_a_format_error(raw: bytes) -> None:
    for parse in (parse_cpu_list, parse_cpus_allowed):
        try:
            assert all(0 <= cpu < 1 << 14 for cpu in parse(raw))
        except FormatError:
            pass


def test_the_cpus_of_a_thread_are_in_its_status() -> None:
    raw = (
        b"Name:\tCpus_allowed_li\nState:\tS (sleeping)\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,3\nMems_allowed:\t1\n"
    )

    assert parse_cpus_allowed(raw) == {0, 1, 3}
    with pytest.raises(FormatError):
        parse_cpus_allowed(raw[:60])


def test_the_user_who_started_a_process_is_the_first_of_its_uids() -> None:
    assert parse_real_uid(b"Name:\tsu\nState:\tS (sleeping)\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n") == 1000
    assert parse_real_uid(Path("/proc/self/status").read_bytes()) == os.getuid()


def test_a_name_imitates_no_uid() -> None:
    # proc_task_name (fs/proc/array.c) writes a newline as a backslash and n.
    assert parse_real_uid(b"Name:\ta\\nUid:\t0\t0\nState:\tS\nUid:\t1000\t1000\t1000\t1000\n") == 1000


@given(
    st.binary(max_size=40) | st.lists(st.sampled_from([b"\nUid:\t", b"0", b"9" * 12, b"\t", b"-", b"\n"])).map(b"".join)
)
def test_any_bytes_give_a_uid_or_a_format_error(raw: bytes) -> None:
    try:
        assert 0 <= parse_real_uid(raw) < 10**10
    except FormatError:
        pass


def test_a_thread_belongs_to_the_process_that_its_status_names() -> None:
    found = []

    def look() -> None:
        found.append(parse_thread_group(Path(f"/proc/{threading.get_native_id()}/status").read_bytes()))

    (thread := threading.Thread(target=look)).start()
    thread.join()
    assert found == [os.getpid()]


def test_a_name_imitates_no_process() -> None:
    assert parse_thread_group(b"Name:\ta\\nTgid:\t1\nTgid:\t42\nPid:\t43\n") == 42
    with pytest.raises(FormatError):
        parse_thread_group(b"Tgid:\t42\n")


def test_what_a_process_has_read_and_written_is_in_its_io() -> None:
    assert parse_process_io(PROCESS_IO) == (323934931 + 323929600, 323932160)
    moved = parse_process_io(Path("/proc/self/io").read_bytes())
    assert parse_process_io(Path("/proc/self/io").read_bytes()).asked > moved.asked
    with pytest.raises(FormatError):
        parse_process_io(PROCESS_IO.replace(b"wchar: ", b"wchar: -"))


def test_a_thread_that_sleeps_switches_of_its_own_will() -> None:
    before = parse_sleeps(Path("/proc/thread-self/status").read_bytes())
    for _ in range(5):
        time.sleep(0.001)
    assert parse_sleeps(Path("/proc/thread-self/status").read_bytes()) >= before + 5
    assert parse_sleeps(b"Name:\ta\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n") == 7
    with pytest.raises(FormatError):
        parse_sleeps(b"Name:\ta\\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n")


def test_the_mount_of_an_open_file_is_in_its_fdinfo() -> None:
    assert parse_file_info(b"pos:\t2108\nflags:\t0100001\nmnt_id:\t27\nino:\t13181000\n") == (27, 0o100001)
    # A lock or a driver adds lines, but only after the first three.
    raw = b"pos:\t0\nflags:\t02\nmnt_id:\t15\nlock:\t1: FLOCK  ADVISORY  WRITE 7 00:1f:2 0 EOF\nmnt_id:\t99\n"
    assert parse_file_info(raw) == (15, 2)
    with pytest.raises(FormatError):
        parse_file_info(b"pos:\t0\nflags:\t02\n")


@given(
    st.binary(max_size=100)
    | st.lists(st.sampled_from([b"mnt_id:", b"flags:", b"\t", b"7", b"9", b"\n", b"8" * 20, b"\xff"])).map(b"".join)
)
def test_any_bytes_give_an_open_file_or_a_format_error(raw: bytes) -> None:
    try:
        info = parse_file_info(raw)
    except FormatError:
        return
    assert info.mount >= 0
    assert info.flags >= 0


def test_a_mount_has_its_device_and_its_source() -> None:
    raw = (
        b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
        b"40 35 0:45 / /data rw - ceph 10.0.0.1:6789:/ rw,name=admin\n"
        b"x 35 0:46 / /odd rw - tmpfs some\\040text rw\n"
    )

    first, second, third = parse_mounts(raw)

    assert (first.number, first.device, first.point, first.source) == (36, "98:0", "/mnt 2", "/dev/root")
    assert (second.number, second.device, second.source) == (40, "0:45", "10.0.0.1:6789:/")
    assert (third.number, third.source) == (None, "some text")
    (old,) = parse_mounts(b"/dev/sda1 / ext4 rw 0 0\n")
    assert (old.number, old.device, old.source, old.fstype) == (None, "", "/dev/sda1", "ext4")


def test_of_many_names_only_the_first_are_read(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()

    assert len(first_names(tmp_path, 10)) == 10
    assert len(first_names(tmp_path, 1000)) == 100
    with pytest.raises(FileNotFoundError):
        first_names(tmp_path / "gone", 10)


def test_the_name_of_a_mount_point_is_no_other_mount() -> None:
    """The kernel escapes blanks, tabs and newlines alone."""
    name = b"/home/x\r777\v1\v8:0\v/\v/victim\vrw\v-\vext4\vsda\vrw"
    (found,) = parse_mounts(b"36 35 0:46 / " + name + b" rw - tmpfs none rw\n")

    assert (found.number, found.device, found.fstype) == (36, "0:46", "tmpfs")


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"1 ", b"0:5 ", b"/ ", b"- ", b"ext4 ", b"rw", b"\n", b"9" * 30 + b" ", b"\\040"])).map(
        b"".join
    )
)
def test_any_bytes_give_mounts(raw: bytes) -> None:
    for mount in parse_mounts(raw):
        assert mount.number is None or mount.number >= 0
        assert mount.source.isprintable()
        assert mount.device.isprintable()
