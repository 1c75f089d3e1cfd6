from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.rbd_bench import RbdBench, RbdReader
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.procfs import parse_stat, read_bytes

FIXTURES = Path(__file__).parents[1] / "fixtures"
MIB = 1 << 20
PID = 100

OLD = """\
bench-write  io_size 4096 io_threads 16 bytes 1048576
  SEC       OPS   OPS/SEC   BYTES/SEC
    1       120    119.50  17218.14
elapsed:     2  ops:      256  ops/sec:   126.42  bytes/sec: 517816.32
"""


def capture(name: str) -> bytes:
    return (FIXTURES / "captures" / name / "stdout.txt").read_bytes()


MIXED = (FIXTURES / "bench" / "rbd-bench-readwrite.txt").read_text()
SEED = (FIXTURES / "seeds" / "rbd-bench-interrupted.txt").read_bytes()


def events(data: bytes | str) -> list[Event]:
    reader = RbdReader()
    return [*reader.feed(data if isinstance(data, bytes) else data.encode()), *reader.close()]


def figures(found: Ended | Rate) -> dict[tuple[str, str], float]:
    return {(result.operation, result.unit): result.value for result in found.results}


def the_end(found: list[Event]) -> Ended:
    (ended,) = [event for event in found if isinstance(event, Ended)]
    return ended


def test_a_run_is_one_phase_named_after_its_operations() -> None:
    found = events(capture("rbd-bench-write"))
    began, start, rate, ended, completed = found

    assert (began, start, completed) == (RunBegan(), Began("write"), Completed())
    assert isinstance(rate, Rate)
    assert isinstance(ended, Ended)
    assert (rate.work, rate.progress) == (6464, 6464 * 4096 / 41943040)
    assert figures(rate) == {("write", "bytes_per_second"): 22 * MIB, ("write", "operations_per_second"): 5586.21}
    assert figures(ended) == {("write", "bytes_per_second"): 16 * MIB, ("write", "operations_per_second"): 4203.61}
    assert [result.printed for result in ended.results] == ["16 MiB/s", "4203.61 ops/sec"]


def test_its_length_is_more_exact_than_the_whole_seconds_that_are_printed() -> None:
    assert the_end(events(capture("rbd-bench-write"))).seconds == pytest.approx(10240 / 4203.61)


def test_an_interrupted_run_has_the_results_so_far_and_was_stopped() -> None:
    found = events(SEED)
    ended = the_end(found)

    assert Failed("received signal: Interrupt", stopped=True) in found
    assert Completed() not in found
    assert sum(isinstance(event, Rate) for event in found) == 11
    assert figures(ended) == {("write", "bytes_per_second"): 7557114.57, ("write", "operations_per_second"): 1845}
    assert ended.seconds == pytest.approx(30507 / 1845)


def test_a_signal_that_was_logged_elsewhere_shows_by_what_was_left_undone() -> None:
    lines = [line for line in SEED.splitlines(keepends=True) if b"signal" not in line]

    assert [event for event in events(b"".join(lines)) if isinstance(event, Failed)] == [
        Failed("interrupted after 124956672 of 1073741824 bytes")
    ]


def test_the_result_may_be_glued_to_the_log_line() -> None:
    assert the_end(events(SEED.replace(b"\nelapsed", b" elapsed"))).results[1].value == 1845


def test_the_text_of_old_releases_has_plain_bytes() -> None:
    found = events(OLD)
    rate = next(event for event in found if isinstance(event, Rate))

    assert rate.results[0].value == 17218.14
    assert rate.results[0].printed == "17218.14 bytes/sec"
    assert figures(the_end(found)) == {
        ("write", "bytes_per_second"): 517816.32,
        ("write", "operations_per_second"): 126.42,
    }
    assert found[-1] == Completed()


def test_reads_and_writes_together_have_the_results_of_each_too() -> None:
    found = events(MIXED)
    ended = the_end(found)

    assert ended.phase == "readwrite"
    assert figures(ended) == {
        ("readwrite", "bytes_per_second"): 65 * MIB,
        ("readwrite", "operations_per_second"): 16516.1,
        ("read", "bytes_per_second"): 32 * MIB,
        ("read", "operations_per_second"): 8255.04,
        ("write", "bytes_per_second"): 32 * MIB,
        ("write", "operations_per_second"): 8261.09,
    }
    assert found[-1] == Completed()


def test_the_results_of_both_are_not_lost_where_those_of_each_are_missing() -> None:
    assert the_end(events(MIXED[: MIXED.index("read_ops")])).results[0].value == 65 * MIB


def test_a_text_that_ends_before_its_result_is_of_a_run_that_failed() -> None:
    data = capture("rbd-bench-write")

    assert events(data[: data.index(b"elapsed")])[-1] == Failed("the output ends before the result")


def test_an_error_that_is_printed_fails_the_run() -> None:
    text = OLD[: OLD.index("elapsed")] + "write error: (28) No space left on device\n"

    assert events(text)[-1] == Failed("write error: (28) No space left on device")


def test_rows_without_a_header_are_not_believed() -> None:
    assert events(MIXED[MIXED.index("  SEC") :]) == []


@pytest.mark.parametrize("name", ["rados-bench-write", "rados-bench-seq", "fio-json", "ceph-tell-osd-bench"])
def test_foreign_output_tells_nothing(name: str) -> None:
    assert events(capture(name)) == []


WHOLE = SEED + OLD.encode() + MIXED.encode() + capture("rbd-bench-pipe") + SEED


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = RbdReader()
    found = [
        event for start, end in pairwise([0, *sorted(cuts), len(WHOLE)]) for event in reader.feed(WHOLE[start:end])
    ]

    assert [*found, *reader.close()] == events(WHOLE)


@given(st.lists(st.binary(max_size=40) | st.sampled_from(WHOLE.split(b"\n")), max_size=40))
def test_nothing_raises(lines: list[bytes]) -> None:
    events(b"\n".join(lines))


@given(st.text("0123456789e+-.", max_size=400), st.integers(0, 3))
def test_no_figure_raises(figure: str, place: int) -> None:
    head = "bench  type write io_size 4096 io_threads 16 bytes 41943040 pattern random\n"
    words = ["2", "10240", "4203.61", "16"]
    words[place] = figure
    elapsed, ops, rate, speed = words
    events(
        f"{head} 1 {ops} {rate} {speed} MiB/s\nelapsed: {elapsed}  ops: {ops}  ops/sec: {rate} bytes/sec: {speed} B/s\n"
    )
    events(head.replace("4096", figure).replace("41943040", figure))


def tree_of(machine: Machine, argv: str) -> Tree:
    machine.process(PID, "rbd", argv=tuple(argv.split()))
    return Tree(machine.procfs, {PID: parse_stat(read_bytes(machine.procfs / str(PID) / "stat"))})


@pytest.mark.parametrize(
    ("argv", "phase"),
    [
        ("rbd bench --io-type write pool/image", "write"),
        ("rbd -p pool bench image --io-type=read --io-pattern rand", "read"),
        ("rbd bench pool/image --io-type rw", "readwrite"),
        ("rbd bench --io-type readwrite image", "readwrite"),
        ("rbd bench-write image", "write"),
    ],
)
def test_the_command_line_names_the_phase(machine: Machine, argv: str, phase: str) -> None:
    tree = tree_of(machine, argv)
    sight = RbdBench(tree, PID).look(tree, PID, 0.0)

    assert RbdBench.leads(tree, PID)
    assert (sight.state, sight.phase, sight.source) == (State.RUNNING, phase, PhaseSource.ARGV)


@pytest.mark.parametrize(
    "argv", ["rbd create image", "rbd map pool/image", "rbd", "rbd import file pool bench-x", "rbd -p rbd map bench"]
)
def test_other_commands_of_rbd_are_no_benchmarks(machine: Machine, argv: str) -> None:
    assert not RbdBench.leads(tree_of(machine, argv), PID)


def test_results_of_another_type_are_not_ours(machine: Machine) -> None:
    bench = RbdBench(tree_of(machine, "rbd bench --io-type read image"), PID)

    assert bench.claim(Ended("read")) == Ended("read")
    assert bench.claim(Ended("write")) is None


def test_without_a_type_rbd_only_complains(machine: Machine) -> None:
    tree = tree_of(machine, "rbd bench image --io-type")

    assert RbdBench(tree, PID).look(tree, PID, 0.0).state is State.SETUP
