from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.dd import Dd, DdReader, size
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.procfs import parse_stat, read_bytes
from pinchpoint.runs import Result
from polling import until

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROGRESS = (FIXTURES / "bench" / "dd-progress.txt").read_bytes().decode()
PID = 100
GIB = 1 << 30

RECORDS = "1024+0 records in\n1024+0 records out\n"
PLAIN = RECORDS + "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.508462 s, 2.1 GB/s\n"
FULL = """\
dd: error writing '/dev/full': No space left on device
1+0 records in
0+0 records out
0 bytes copied, 3.7204e-05 s, 0.0 kB/s
"""


def events(text: str) -> list[Event]:
    reader = DdReader()
    return [*reader.feed(text.encode()), *reader.close()]


def the_end(text: str) -> Ended:
    (ended,) = [event for event in events(text) if isinstance(event, Ended)]
    return ended


def test_the_value_is_bytes_over_seconds_since_the_rate_is_rounded() -> None:
    assert events(PLAIN) == [
        RunBegan(),
        Ended(
            "copy",
            (
                Result("copy", "bytes_per_second", GIB / 0.508462, "2.1 GB/s"),
                Result("copy", "bytes", GIB, "1073741824 bytes"),
            ),
            0.508462,
        ),
        Completed(),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "1073741824 bytes (1.1 GB) copied, 0.5 s, 2.1 GB/s",
        "1073741824 bytes (1.1 GB) copied, 0.5 seconds, 2.1 GB/s",
        "1073741824 bytes (1.0GB) copied, 0.5 seconds, 2.0GB/s",
        "1073741824 bytes transferred in 0.5 secs (2147483648 bytes/sec)",
        "1073741824 Bytes (1,1 GB, 1,0 GiB) kopiert, 0,5 s, 2,1 GB/s",
    ],
    ids=["old", "older", "busybox", "BSD", "German"],
)
def test_other_releases_and_languages(line: str) -> None:
    ended = the_end(f"{RECORDS}{line}\n")

    assert (ended.seconds, ended.results[0].value) == (0.5, 2 * GIB)
    assert the_end(line) == ended


def test_one_byte_has_no_sizes_in_parentheses() -> None:
    assert the_end("1+0 records in\n1+0 records out\n1 byte copied, 1.6e-05 s, 62.5 kB/s\n").results[0].value == 62500


def test_lines_of_progress_are_rates() -> None:
    found = events(PROGRESS)
    kinds = [type(event) for event in found]
    rates = [event for event in found if isinstance(event, Rate)]

    assert kinds == [RunBegan, Rate, Rate, Ended, Completed]
    assert [rate.work for rate in rates] == [55155097600, 110909980672]
    assert [rate.results[0].value for rate in rates] == [55155097600, 55454990336]


def test_old_releases_print_fractions_of_seconds_then_and_only_a_carriage_return_tells() -> None:
    text = PROGRESS.replace(" 1 s", " 1.00031 s").replace(" 2 s", " 2.00064 s")

    assert [type(event) for event in events(text)] == [RunBegan, Rate, Rate, Ended, Completed]


def test_progress_whose_carriage_returns_were_lost() -> None:
    assert [type(event) for event in events(PROGRESS.replace("\r", "\n"))] == [
        RunBegan, Rate, Rate, Ended, Completed,
    ]  # fmt: skip


def test_lines_that_end_in_both_are_no_progress() -> None:
    assert events(PLAIN.replace("\n", "\r\n")) == events(PLAIN)


def test_progress_without_an_end_fails() -> None:
    text = PROGRESS[: PROGRESS.index("\n")]

    assert events(text)[-1] == Failed("the output ends before the summary")


def test_lines_that_were_picked_from_several_outputs_are_several_runs() -> None:
    text = "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.508462 s, 2.1 GB/s\n" * 3

    assert [type(event) for event in events(text)] == [RunBegan, Ended, Completed] * 3


def test_a_single_line_of_whole_seconds_is_a_result() -> None:
    assert the_end("1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2 s, 537 MB/s\n").seconds == 2


def test_whole_seconds_behind_the_records_are_a_result() -> None:
    assert the_end(RECORDS + "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2 s, 537 MB/s\n").seconds == 2


def test_an_error_fails_the_run_and_its_results_stay() -> None:
    found = events(FULL)

    assert [type(event) for event in found] == [RunBegan, Failed, Ended]
    assert found[1] == Failed("dd: error writing '/dev/full': No space left on device")


def test_a_file_that_cannot_be_opened() -> None:
    assert [type(event) for event in events("dd: failed to open 'x': No such file or directory\n")] == [
        RunBegan,
        Failed,
    ]


def test_no_time_is_no_rate() -> None:
    ended = the_end("1+0 records in\n1+0 records out\n512 bytes copied, 0 s, Infinity B/s\n")

    assert [result.unit for result in ended.results] == ["bytes"]


@pytest.mark.parametrize("name", ["fio-terse", "iperf2-seed", "io500-main-openmpi-pipe", "rbd-bench-write"])
def test_foreign_output_tells_nothing(name: str) -> None:
    assert events((FIXTURES / "captures" / name / "stdout.txt").read_text()) == []
    assert events("1+1 makes two\n3+4 records in\nddd: error x\n") == []


WHOLE = (PROGRESS + PLAIN.replace("\n", "\r\n") + FULL + PROGRESS).encode()


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = DdReader()
    found = [
        event for start, end in pairwise([0, *sorted(cuts), len(WHOLE)]) for event in reader.feed(WHOLE[start:end])
    ]

    assert [*found, *reader.close()] == events(WHOLE.decode())


@given(st.lists(st.binary(max_size=40) | st.sampled_from(WHOLE.split(b"\n")), max_size=40))
def test_nothing_raises(lines: list[bytes]) -> None:
    reader = DdReader()
    reader.feed(b"\n".join(lines))
    reader.close()


@given(st.text("0123456789.,e+-", max_size=400))
def test_no_figure_raises(figure: str) -> None:
    for known in ("1073741824", "0.508462", "2.1"):
        events(PLAIN.replace(known, figure))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("512", 512),
        ("4k", 4096),
        ("4K", 4096),
        ("1M", 1 << 20),
        ("1MB", 1_000_000),
        ("1MiB", 1 << 20),
        ("2kB", 2000),
        ("3b", 1536),
        ("5w", 10),
        ("2x512", 1024),
        ("2x3x4k", 24576),
        ("10B", 10),
        ("", None),
        ("-1", None),
        ("1q", None),
        ("9" * 80, None),
        ("9" * 60, None),
    ],
)
def test_numbers_with_suffixes(text: str, number: int | None) -> None:
    assert size(text) == number


def tree_of(machine: Machine, argv: str) -> Tree:
    machine.process(PID, "dd", argv=tuple(argv.split()))
    return Tree(machine.procfs, {PID: parse_stat(read_bytes(machine.procfs / str(PID) / "stat"))})


@pytest.mark.parametrize(
    ("argv", "phase"),
    [
        ("dd if=/dev/zero of=/mnt/file bs=1M count=1024 oflag=direct", "write"),
        ("dd of=/mnt/file if=/dev/urandom", "write"),
        ("dd if=/mnt/file of=/dev/null bs=4M", "read"),
        ("dd of=/dev/null", "read"),
        ("dd if=/mnt/a of=/mnt/b", "copy"),
        ("dd of=/mnt/b", "copy"),
        ("dd if=/dev/zero of=/dev/null", "copy"),
        ("dd if=/dev/zero", "copy"),
        ("dd", "copy"),
    ],
)
def test_the_phase_is_what_it_does_with_which_files(machine: Machine, argv: str, phase: str) -> None:
    tree = tree_of(machine, argv)
    sight = Dd(tree, PID).look(tree, PID, 0.0)

    assert (sight.state, sight.phase, sight.source) == (State.RUNNING, phase, PhaseSource.ARGV)


@pytest.mark.parametrize(
    ("argv", "zero", "one", "work", "progress"),
    [
        ("dd if=/dev/zero of=/f bs=1M count=4", 0, 1 << 20, 1 << 20, 0.25),
        ("dd if=/dev/zero of=/f bs=1M count=4 seek=2", 0, 3 << 20, 1 << 20, 0.25),
        ("dd if=/f of=/dev/null bs=4k count=10 skip=10", 15 * 4096, 0, 5 * 4096, 0.5),
        ("dd if=/dev/zero of=/f bs=1M count=4MB iflag=count_bytes", 0, 1_000_000, 1_000_000, 0.25),
        ("dd if=/dev/zero of=/f bs=1M", 0, 5, 5, None),
        ("dd if=/dev/zero of=/f count=4 oflag=append", 0, 99999, 99999, None),
        ("dd if=/dev/zero of=/f bs=1M count=4 seek=9", 0, 0, 0, 0.0),
    ],
)
def test_positions_in_its_files_tell_how_far_it_is(
    machine: Machine, argv: str, zero: int, one: int, work: float, progress: float | None
) -> None:
    tree = tree_of(machine, argv)
    machine.opens(PID, 0, "/in", position=zero)
    machine.opens(PID, 1, "/out", position=one, flags=os.O_WRONLY)
    sight = Dd(tree, PID).look(tree, PID, 0.0)

    assert (sight.work, sight.progress) == (work, progress)


def test_an_input_file_is_as_long_as_it_is(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 8192)
    tree = tree_of(machine, "dd if=file of=/dev/null bs=1k skip=4")
    machine.lives_in(PID, tmp_path)
    machine.opens(PID, 0, "/file", position=6144)

    assert Dd(tree, PID).look(tree, PID, 0.0).progress == 0.5


def test_when_all_is_written_it_may_still_wait_for_the_disk(machine: Machine) -> None:
    tree = tree_of(machine, "dd if=/dev/zero of=/f bs=4k count=1 conv=fsync")
    machine.opens(PID, 1, "/f", position=4096)

    assert Dd(tree, PID).look(tree, PID, 0.0).state is State.SYNCING


def test_without_rights_it_is_said_what_cannot_be_seen(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of(machine, "dd if=/dev/zero of=/f bs=4k count=1")

    def denied(pid: int) -> None:
        raise PermissionError

    monkeypatch.setattr(tree, "open_files", denied)
    sight = Dd(tree, PID).look(tree, PID, 0.0)

    assert (sight.phase, sight.work, sight.blind) == ("write", None, ("descriptors",))


def test_results_are_claimed_under_the_name_of_the_phase(machine: Machine) -> None:
    bench = Dd(tree_of(machine, "dd if=/dev/zero of=/f bs=1M count=4"), PID)
    rate = Rate("copy", (Result("copy", "bytes_per_second", 7.0),), work=float(1 << 20))

    assert bench.claim(Ended("copy")) == Ended("write")
    assert bench.claim(rate) == Rate(
        "write", (Result("write", "bytes_per_second", 7.0),), progress=0.25, work=float(1 << 20)
    )


def test_a_real_dd_is_seen_at_work_and_its_words_are_read(tmp_path: Path) -> None:
    command = ["dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=64k", "count=2"]
    read, write = os.pipe()
    with subprocess.Popen(["dd", "bs=64k", "count=2", f"of={tmp_path}/file", "iflag=fullblock"], stdin=read) as process:
        os.close(read)
        os.write(write, b"x" * 65536)
        tree = Tree.below(Path("/proc"), process.pid)
        until(10, lambda: Dd(tree, process.pid).look(tree, process.pid, 0.0).work)
        sight = Dd(tree, process.pid).look(tree, process.pid, 0.0)
        os.close(write)
    words = subprocess.run(command, capture_output=True, check=True, text=True).stderr

    assert (sight.phase, sight.work, sight.progress) == ("copy", 65536, 0.5)
    assert {result.unit: result.value for result in the_end(words).results}["bytes"] == 131072


@given(st.lists(st.text(max_size=10) | st.sampled_from(["if=/x\0", "of=/dev/null", "bs=0", "count=x", "=", "skip=9"])))
def test_no_command_line_raises(words: list[str]) -> None:
    class Argv(Tree):
        def argv(self, pid: int) -> list[str]:
            return words

    tree = Argv(Path("/nonexistent"), {})
    Dd(tree, PID).look(tree, PID, 0.0)
