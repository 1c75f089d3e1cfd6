from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, RunBegan, State
from pinchpoint.benchmarks.iozone import Iozone, IozoneReader

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
SINGLE, SWEEP, FAILED, SEVERAL = (
    (CAPTURES / f"iozone-{name}" / "stdout.txt").read_text() for name in ("single", "excel-R", "fail", "throughput")
)
PID = 100

# Formats and rows of iozone 3.487, the same as in 3.471 (CONTROL_STRING2 and 3); the old one is of 3.398.
PLAIN = "%16s%8s%9s%9s%8s%10s%8s %9s%9s %9s %9s%9s%9s%9s%9s"
NAMES = "kB reclen write rewrite read reread read write read rewrite read fwrite frewrite fread freread"
HEADER = PLAIN % tuple(NAMES.split()) + "\n"
MORE = "pwrite repwrite pread repread pwritev repwritev preadv repreadv"
EXTENDED_HEADER = (PLAIN + "%8s%9s%8s%10s%10s%10s%9s%9s") % (*NAMES.split(), *MORE.split()) + "\n"
OLD = "%16s%8s%8s%8s%8s%10s%8s%8s%8s %8s %8s%9s%9s%8s%9s"
OLD_HEADER = OLD % tuple(NAMES.split()) + "\n"


def run(row: str, options: str, *, header: str = HEADER, output: str = "Output is in kBytes/sec") -> str:
    """Return iozone's output with one row; a bar at its end protects trailing blanks from editors."""
    return (
        "\tIozone: Performance Test of File I/O\n"
        f"\tCommand line used: ./iozone {options} -s 4m -r 64k\n\t{output}\n"
        f"{header}{row.removesuffix('|')}\n\niozone test complete.\n"
    )


SPARSE = run(
    "            4096      64  5026578 11696488                                     14224033            2"
    "1346604                                   |",
    "-i 0 -i 3 -i 5",
)
EXTENDED = run(
    "            4096      64  5347310 12255528 16585996 16241044 21320113 15939671 15807673  35583402  2"
    "1779595 13299112 16996213 15341830 20905025 18883009 2142647419981106 21346604  5986422  16318176  1"
    "6715094 19242562",
    "-E",
    header=EXTENDED_HEADER,
)
MAPPED = run(
    "            4096      64   881253  3374022 16996213 17660123 18125940  3368069 17880690  40537136  17200411",
    "-aB",
)
OPERATIONS = run(
    "            4096      64    94128   218452   265565   316997",
    "-O -i 0 -i 1",
    output="OPS Mode. Output is in operations per second.",
)
MICROSECONDS = run(
    "            4096      64       12        6        4        4",
    "-N -i0 -i1",
    output="Microseconds/op Mode. Output is in microseconds per operation.",
)
NO_RETEST = run("            4096      64  4869845        0 10867793        0", "-+n -i 0 -i 1")
NARROW = run("            4096      64  486984  586985  123456   234567", "-ai 0 -i 1", header=OLD_HEADER)
THREADS = """\
\tIozone: Performance Test of File I/O
\tCommand line used: ./iozone -t 2 -T -O -+n -i 0 -i 1 -i 8 -s 4m -r 64k -F a b
\tEach thread writes a 4096 kByte file in 64 kByte records

\tChildren see throughput for  2 initial writers \t=   76743.96 ops/sec
\tParent sees throughput for  2 initial writers \t=    3556.95 ops/sec
\tMin throughput per thread \t\t\t=       0.00 ops/sec
\tMax throughput per thread \t\t\t=   76743.96 ops/sec
\tAvg throughput per thread \t\t\t=   38371.98 ops/sec
\tMin xfer \t\t\t\t\t=       0.00 ops

\tChildren see throughput for  2 readers \t\t=  130320.77 ops/sec
\tParent sees throughput for  2 readers \t\t=   15370.08 ops/sec
\tMin throughput per thread \t\t\t=       0.00 ops/sec
\tMax throughput per thread \t\t\t=  130320.77 ops/sec
\tAvg throughput per thread \t\t\t=   65160.38 ops/sec
\tMin xfer \t\t\t\t\t=       0.00 ops

\tChildren see throughput for 2 mixed workload \t=  101478.57 ops/sec
\tParent sees throughput for 2 mixed workload \t=    5254.96 ops/sec
\tMin throughput per thread \t\t\t=    3645.31 ops/sec
\tMax throughput per thread \t\t\t=   97833.26 ops/sec
\tAvg throughput per thread \t\t\t=   50739.29 ops/sec
\tMin xfer \t\t\t\t\t=       3.00 ops



iozone test complete.
Timer resolution is poor. Some small transfers may have
reported inaccurate results. Sizes 64 kBytes and below.
"""
TEXTS = (SINGLE, SWEEP, FAILED, SEVERAL, SPARSE, EXTENDED, MAPPED, OPERATIONS, NO_RETEST, NARROW, THREADS)


def events(*pieces: str | bytes) -> list[Event]:
    reader = IozoneReader()
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return [*(event for piece in raw for event in reader.feed(piece)), *reader.close()]


def ended(found: list[Event]) -> Iterator[tuple[str, float]]:
    for event in found:
        if isinstance(event, Ended) and event.ran:
            yield event.phase, event.results[0].value


def printed(text: str) -> dict[str, str]:
    return {event.phase: event.results[0].printed for event in events(text) if isinstance(event, Ended) and event.ran}


def order(text: str) -> list[str]:
    words = {RunBegan: "run", Completed: "complete", Failed: "failed"}
    return [
        f"{'>' if isinstance(event, Began) else '<'}{event.phase}"
        if isinstance(event, Began | Ended)
        else words.get(type(event), "?")
        for event in events(text)
    ]


def test_a_value_ends_its_test_and_the_next_one_begins() -> None:
    assert order(SINGLE) == [
        "run",
        *(">write", "<write", "<rewrite"),
        *(">read", "<read", "<reread"),
        *(">random_read", "<random_read", "<random_write"),
        "complete",
    ]


def test_values_are_kilobytes_of_1024() -> None:
    assert dict(ended(events(SINGLE))) == {
        "write": 1808945 * 1024,
        "rewrite": 4789914 * 1024,
        "read": 4988636 * 1024,
        "reread": 2030675 * 1024,
        "random_read": 3849841 * 1024,
        "random_write": 3247888 * 1024,
    }
    assert printed(SINGLE)["write"] == "1808945 kBytes/sec"


def test_a_test_took_what_its_rate_and_its_file_say() -> None:
    write = next(event for event in events(SINGLE) if isinstance(event, Ended))

    assert write.seconds == pytest.approx(65536 / 1808945)


def test_a_value_counts_as_soon_as_it_is_printed() -> None:
    """The line is complete only after the last test."""
    reader = IozoneReader()
    start = SINGLE.index("           65536")

    assert reader.feed(SINGLE[:start].encode()) == [RunBegan()]
    assert reader.feed(b"           65536") == []
    assert reader.feed(b"      64") == [Began("write")]
    assert reader.feed(b"  1808") == []
    assert [event.phase for event in reader.feed(b"945") if isinstance(event, Ended)] == ["write"]
    assert [type(event) for event in reader.feed(b"  4789914")] == [Ended, Began]


def test_tests_that_are_left_out_are_blanks() -> None:
    assert order(SPARSE) == [
        "run",
        *(">write", "<write", "<rewrite"),
        *(">bkwd_read", "<bkwd_read"),
        *(">stride_read", "<stride_read"),
        "complete",
    ]
    assert dict(ended(events(SPARSE)))["stride_read"] == 21346604 * 1024


def test_values_may_touch_each_other() -> None:
    found = printed(EXTENDED)

    assert found["repwrite"] == "21426474 kBytes/sec"
    assert found["pread"] == "19981106 kBytes/sec"
    assert list(found)[:13] == [
        *("write", "rewrite", "read", "reread", "random_read", "random_write", "bkwd_read", "record_rewrite"),
        *("stride_read", "fwrite", "frewrite", "fread", "freread"),
    ]
    assert list(found)[13:] == [
        *("pwrite", "repwrite", "pread", "repread", "pwritev", "repwritev", "preadv", "repreadv"),
    ]


def test_mapped_files_leave_out_the_last_tests() -> None:
    assert order(MAPPED)[-3:] == [">stride_read", "<stride_read", "complete"]


def test_a_sweep_repeats_its_phases_and_its_matrix_counts_once() -> None:
    assert [phase for phase, _ in ended(events(SWEEP))] == ["write", "rewrite", "read", "reread"] * 6
    assert events(SWEEP)[-1] == Completed()


def test_the_output_may_be_operations() -> None:
    (write, *_) = (event for event in events(OPERATIONS) if isinstance(event, Ended))

    assert (write.results[0].unit, write.results[0].value) == ("operations_per_second", 94128)
    assert write.seconds is None


def test_the_output_may_be_time() -> None:
    (write, *_) = (event for event in events(MICROSECONDS) if isinstance(event, Ended))

    assert (write.results[0].unit, write.results[0].value) == ("seconds", 12e-6)


def test_what_is_not_run_again_did_not_run() -> None:
    assert list(printed(NO_RETEST)) == ["write", "read"]
    assert Ended("rewrite", ran=False) in events(NO_RETEST)


@pytest.mark.parametrize(
    "text",
    [
        NARROW,
        run(
            "4096 64 486984 586985 123456 234567",
            "-i 0 -i 1",
            header=NAMES + "\n",
        ),
    ],
)
def test_without_its_columns_a_row_has_the_tests_of_the_command_line(text: str) -> None:
    values = {"write": 486984, "rewrite": 586985, "read": 123456, "reread": 234567}

    assert dict(ended(events(text))) == {phase: value * 1024 for phase, value in values.items()}


def test_several_processes_have_a_block_of_lines_for_each_test() -> None:
    assert order(SEVERAL) == [
        "run",
        *(">write", "<write", ">rewrite", "<rewrite", ">read", "<read", ">reread", "<reread"),
        *(">random_read", "<random_read", ">random_write", "<random_write"),
        "complete",
    ]
    (write, *_) = (event for event in events(SEVERAL) if isinstance(event, Ended))
    assert {result.operation: result.printed for result in write.results} == {
        "write": "477661.14 kB/sec",
        "parent": "285257.23 kB/sec",
        "min": "164634.58 kB/sec",
        "max": "313026.56 kB/sec",
        "avg": "238830.57 kB/sec",
    }
    assert write.results[0].value == pytest.approx(477661.14 * 1024)


def test_threads_without_retests_in_operations() -> None:
    assert order(THREADS)[1:-1] == [">write", "<write", ">read", "<read", ">mixed_workload", "<mixed_workload"]
    assert all(
        result.unit == "operations_per_second"
        for event in events(THREADS)
        if isinstance(event, Ended)
        for result in event.results
    )


def test_every_number_of_processes_has_its_own_tests() -> None:
    head, block = SEVERAL.split("\tEach process", 1)
    twice = f"{head}\tEach process{block.removesuffix('iozone test complete.' + chr(10))}\tEach process{block}"

    assert order(twice)[1:-1] == order(SEVERAL)[1:-1] * 2


def test_the_last_block_counts_without_its_last_line() -> None:
    cut = SEVERAL[: SEVERAL.index("\tMin xfer")]

    assert order(cut) == ["run", ">write", "<write", ">rewrite", "failed"]


def test_an_error_fails_the_run_in_its_own_words() -> None:
    assert events(FAILED)[-2:] == [Began("write"), Failed("Can not open temp file: /nonexistent/z")]


def test_an_interrupted_run_failed_though_iozone_exits_with_0() -> None:
    cut = SINGLE[: SINGLE.index("  3849841")] + "\niozone: interrupted\n\nexiting iozone\n\n"

    assert order(cut)[-2:] == [">random_read", "failed"]
    assert events(cut)[-1] == Failed("iozone: interrupted")


@pytest.mark.parametrize("text", [SINGLE, SWEEP, SEVERAL])
def test_output_that_ends_early_failed(text: str) -> None:
    assert events(text[: text.index("iozone test")])[-1] == Failed("the output ends before the test is complete")


def test_several_runs_may_follow_each_other() -> None:
    assert events(SINGLE + "and\n" + FAILED + SPARSE) == [*events(SINGLE), *events(FAILED), *events(SPARSE)]


def test_loose_rows_are_no_results() -> None:
    assert events(SINGLE[SINGLE.index("           65536") :]) == []
    assert events(SEVERAL[SEVERAL.index("\tChildren") :]) == []


def test_text_inside_of_a_row_ends_it() -> None:
    broken = SPARSE.replace("14224033", "x" * 8)

    assert dict(ended(events(broken))).keys() == {"write", "rewrite"}


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 5000), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})

    assert events(*(raw[start:end] for start, end in pairwise(places))) == events(text)


ALL = "".join(TEXTS).encode()


@given(st.integers(0, len(ALL)), st.binary(max_size=8), st.integers(0, 8))
def test_events_are_the_same_byte_by_byte_whatever_the_bytes_are(place: int, strange: bytes, gone: int) -> None:
    start = max(0, ALL.rfind(b"Iozone:", 0, place))
    raw = (ALL[start:place] + strange + ALL[place + gone :])[: place - start + 400]

    assert events(*(raw[at : at + 1] for at in range(len(raw)))) == events(raw)


@given(st.lists(st.binary(max_size=40) | st.sampled_from(ALL.split(b"\n")), max_size=40))
def test_nothing_raises(lines: list[bytes]) -> None:
    events(b"\n".join(lines))


def opened(machine: Machine, pid: int, *positions: int) -> None:
    for descriptor, position in enumerate(positions, 3):
        link = machine.procfs / str(pid) / "fd" / str(descriptor)
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to("/scratch/z")
        machine.write(f"proc/{pid}/fdinfo/{descriptor}", f"pos:\t{position}\nflags:\t0100002\n")


def iozone(machine: Machine, argv: str) -> Iozone:
    machine.process(PID, "iozone", argv=tuple(argv.split()))
    return Iozone(machine.tree(), PID)


def test_it_runs_when_a_file_is_open_and_works_as_it_moves_in_it(machine: Machine) -> None:
    bench = iozone(machine, "iozone -i 0 -s 4m")
    assert bench.look(machine.tree(), PID, 0.0).state == State.SETUP

    works = []
    for position in (4096, 8192, 8192, 0, 100):
        opened(machine, PID, position)
        sight = bench.look(machine.tree(), PID, 1.0)
        assert (sight.state, sight.phase, sight.vague) == (State.RUNNING, "iozone", True)
        works.append(sight.work)

    assert works == [4096, 8192, 8192, 16384, 16484]


def test_the_processes_of_a_throughput_test_work_together(machine: Machine) -> None:
    bench = iozone(machine, "iozone -t 2 -s 4m")
    for child, position in ((101, 100), (102, 1000)):
        machine.process(child, "iozone", ppid=PID)
        opened(machine, child, position)

    assert bench.look(machine.tree(), PID, 0.0).work == 1100
    assert Iozone.leads(machine.tree(), PID)
    assert not Iozone.leads(machine.tree(), 101)


@pytest.mark.parametrize("option", ["-B", "-aE", "-k"])
def test_where_positions_stand_still_no_work_is_seen(machine: Machine, option: str) -> None:
    bench = iozone(machine, f"iozone {option} -s 4m")
    opened(machine, PID, 4096)

    sight = bench.look(machine.tree(), PID, 0.0)
    assert (sight.state, sight.work) == (State.RUNNING, None)
