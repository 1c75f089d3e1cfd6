from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from machine import KERNEL_THREAD, KWORKER, stat_line
from pinchpoint.procfs import FormatError, decode, kworker_work, parse_schedstat, parse_stat, read_bytes

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
