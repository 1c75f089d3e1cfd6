from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.rados_bench import RadosBench, RadosReader
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.procfs import parse_stat, read_bytes

FIXTURES = Path(__file__).parents[1] / "fixtures"
MIB = 1 << 20
PID = 100

OLD = """\
 Maintaining 32 concurrent writes of 4194304 bytes for up to 40 seconds or 0 objects
 Object prefix: benchmark_data_node1_4711
   sec Cur ops   started  finished  avg MB/s  cur MB/s  last lat   avg lat
     0       0         0         0         0         0         -         0
     1      16        30        14   55.9210        56  0.912345  0.701234
 Total time run:         40.312134
Total writes made:      399
Write size:             4194304
Bandwidth (MB/sec):     31.722

Stddev Bandwidth:       4.5
Average Latency:        0.412811
Max latency:            1.234567
Min latency:            0.037912
"""
"""The format before Ceph 10: no IOPS, other words for latencies, no object size."""


def capture(name: str) -> bytes:
    return (FIXTURES / "captures" / name / "stdout.txt").read_bytes()


def seed(name: str) -> bytes:
    return (FIXTURES / "seeds" / f"{name}.txt").read_bytes()


def events(data: bytes | str) -> list[Event]:
    reader = RadosReader()
    return [*reader.feed(data if isinstance(data, bytes) else data.encode()), *reader.close()]


def rates(found: list[Event]) -> list[Rate]:
    return [event for event in found if isinstance(event, Rate)]


def without_rates(found: list[Event]) -> list[Event]:
    return [event for event in found if not isinstance(event, Rate)]


def ends(found: list[Event]) -> list[Ended]:
    return [event for event in found if isinstance(event, Ended)]


def figures(ended: Ended) -> dict[tuple[str, str], float]:
    return {(result.operation, result.unit): result.value for result in ended.results}


def test_a_write_and_its_clean_up_are_two_phases_with_what_rados_printed_of_each() -> None:
    found = events(capture("rados-bench-4k-pipe"))
    write, cleanup = ends(found)

    assert [type(event) for event in without_rates(found)] == [RunBegan, Began, Ended, Began, Ended, Completed]
    assert found[1] == Began("write", expected=5.0)
    assert (write.phase, write.seconds) == ("write", 5.00356)
    assert figures(write) == {
        ("write", "bytes_per_second"): 7.50169 * MIB,
        ("write", "operations_per_second"): 1920,
        ("average_latency", "seconds"): 0.00832721,
        ("max_latency", "seconds"): 0.258805,
    }
    assert write.results[0].printed == "7.50169 MB/sec"
    assert (cleanup.phase, cleanup.seconds) == ("cleanup", 3.03966)
    assert figures(cleanup) == {("removed", "operations_per_second"): 9609 / 3.03966, ("removed", "operations"): 9609}


def test_each_row_is_a_rate_but_the_first_which_is_printed_at_the_start() -> None:
    found = rates(events(capture("rados-bench-4k-pipe")))

    assert [rate.work for rate in found] == [0, 1838, 4088, 6785, 7988]
    assert [rate.progress for rate in found] == [0, 0.2, 0.4, 0.6, 0.8]
    assert [[result.value / MIB for result in rate.results] for rate in found] == [
        [], [7.17969], [8.78906], [10.5352], [4.69922],
    ]  # fmt: skip
    assert found[1].results[0].printed == "7.17969 MB/s"


def test_a_rate_of_minus_one_in_the_first_row_is_none() -> None:
    text = "hints = 1\n  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)\n"
    row = "    0      16        40        24   421.500        -1   0.0271234   0.0301234\n"

    assert rates(events(text + row)) == [Rate("seq", (), work=24)]


def test_a_read_has_no_line_that_says_how_long_it_will_take() -> None:
    found = events(capture("rados-bench-seq"))
    (ended,) = ends(found)

    assert [type(event) for event in without_rates(found)] == [RunBegan, Ended, Completed]
    assert (ended.phase, ended.seconds, ended.results[0].operation) == ("seq", 4.29825, "read")
    assert figures(ended)["read", "bytes_per_second"] == 604.898 * MIB
    assert {rate.progress for rate in rates(found)} == {None}


@pytest.mark.parametrize("mode", ["seq", "rand"])
def test_a_command_line_in_the_text_tells_the_two_reads_apart(mode: str) -> None:
    prompt = f"[root@client ~]# rados bench -p test 10 {mode} -t 16\n".encode()

    assert {
        event.phase for event in events(prompt + capture("rados-bench-seq")) if isinstance(event, Rate | Ended)
    } == {mode}


def test_prose_that_names_both_reads_tells_nothing() -> None:
    prose = b"After that `rados bench` reads: seq first, then rand.\n"

    assert ends(events(prose + capture("rados-bench-seq")))[0].phase == "seq"


def test_the_document_grows_row_by_row_though_it_is_one_line() -> None:
    data = capture("rados-bench-json")
    reader = RadosReader()
    at = data.index(b'},{"sec":"2"') + 1

    assert rates(reader.feed(data[:at]))[-1].results[0].value == 9.335938 * MIB


def test_the_documents_clean_up_is_text_in_its_middle_and_its_summary_comes_last() -> None:
    found = events(capture("rados-bench-json"))
    cleanup, write = ends(found)

    assert without_rates(found) == [
        RunBegan(), Began("write", expected=5.0), Began("cleanup"), cleanup, write, Completed(),
    ]  # fmt: skip
    assert [rate.work for rate in rates(found)] == [0, 2390, 5011, 8107, 10461, 12235]
    assert (cleanup.phase, cleanup.seconds) == ("cleanup", 3.48477)
    assert (write.phase, write.seconds) == ("write", 5.002025)
    assert figures(write)["write", "bytes_per_second"] == 9.565658 * MIB
    assert figures(write)["max_latency", "seconds"] == 0.108012


def test_a_document_of_an_hour_is_read_to_its_end() -> None:
    row = (
        ',{"sec":"%d","cur_ops":"16","started":"%d","finished":"%d","avg_bw":"9.3","cur_bw":"9.3","last_lat":"0.1",'
        '"avg_lat":"0.1"}'
    )
    head, tail = capture("rados-bench-json").decode().split("Cleaning up")
    rows = "".join(row % (second, 12249 + second, 12249 + second) for second in range(6, 3600))

    found = events(f"{head}{rows}Cleaning up{tail}")

    assert len(rates(found)) == 3600
    assert found[-1] == Completed()


def test_an_indented_document_is_the_same() -> None:
    data = capture("rados-bench-json").decode()
    indented = data.replace('","', '",\n    "').replace("{", "{\n    ").replace(":[", ": [\n")

    assert events(indented) == events(data)


def test_a_document_as_rados_indents_it() -> None:
    found = events((FIXTURES / "bench" / "rados-bench-seq-json-pretty.txt").read_bytes())

    assert [type(event) for event in found] == [RunBegan, Rate, Ended, Completed]
    assert (ends(found)[0].phase, ends(found)[0].seconds) == ("seq", 0.804354)
    assert figures(ends(found)[0])["read", "bytes_per_second"] == 1285.270040 * MIB


def test_the_reads_have_a_document_too() -> None:
    text = (
        'hints = 1\n{"datas":[{"sec":"0","cur_ops":"16","started":"16","finished":"0","avg_bw":"0.0","cur_bw":"0.0",'
        '"last_lat":"0.0","avg_lat":"0.0"}],"total_time_run":"2.5","total_reads_made":"50","read_size":"4194304",'
        '"object_size":"4194304","bandwidth":"80.0","average_iops":"20","stddev_iops":"1","max_iops":"21",'
        '"min_iops":"19","average_latency":"0.5","max_latency:":"0.9","min_latency":"0.1"}\n'
    )
    found = events(text)

    assert [type(event) for event in found] == [RunBegan, Rate, Ended, Completed]
    assert figures(ends(found)[0]) == {
        ("read", "bytes_per_second"): 80 * MIB,
        ("read", "operations_per_second"): 20,
        ("average_latency", "seconds"): 0.5,
        ("max_latency", "seconds"): 0.9,
    }


def test_headers_and_latencies_between_the_rows_of_a_long_run_begin_no_other_one() -> None:
    found = events(seed("rados-bench-overrun"))
    write, cleanup = ends(found)

    assert sum(isinstance(event, RunBegan) for event in found) == 1
    assert len(rates(found)) == 75
    assert (write.seconds, cleanup.seconds) == (74.7826, 7.81279)
    assert figures(write)["write", "bytes_per_second"] == 11.0186 * MIB
    assert figures(cleanup)["removed", "operations"] == 206


def test_a_second_in_which_nothing_was_done_has_a_rate_of_0_and_a_run_past_its_time_is_not_more_than_done() -> None:
    last = rates(events(seed("rados-bench-overrun")))[-1]

    assert [result.value for result in last.results] == [0]
    assert last.progress == 1.0
    assert last.work == 198


def test_a_text_that_ends_without_a_summary_is_of_a_run_that_failed() -> None:
    found = events(seed("rados-bench-cut-off"))

    assert ends(found) == []
    assert found[-1] == Failed("the output ends before the summary")


def test_another_run_after_one_that_was_cut_off_begins_anew() -> None:
    found = events(seed("rados-bench-cut-off") + b"and again:\n" + seed("rados-bench-burst"))
    kinds = [type(event) for event in without_rates(found)]

    assert kinds == [RunBegan, Began, Failed, RunBegan, Began, Ended, Began, Ended, Completed]


def test_whether_a_write_is_all_is_known_at_the_end_of_the_text_or_when_another_run_begins() -> None:
    data = capture("rados-bench-write")
    kinds = [type(event) for event in without_rates(events(data + data))]

    assert isinstance(RadosReader().feed(data)[-1], Ended)
    assert kinds == [RunBegan, Began, Ended, Completed] * 2


def test_a_clean_up_that_does_not_end_fails() -> None:
    data = capture("rados-bench-4k-pipe")

    assert events(data[: data.index(b"Removed")])[-1] == Failed("the output ends before the clean-up does")


def test_a_summary_that_is_cut_off_behind_its_bandwidth_still_counts() -> None:
    data = capture("rados-bench-write")

    assert ends(events(data[: data.index(b"Stddev Bandwidth")]))[0].results[0].value == 322.304 * MIB


def test_the_text_of_old_releases() -> None:
    found = events(OLD)
    (ended,) = ends(found)

    assert found[1] == Began("write", expected=40.0)
    assert [rate.work for rate in rates(found)] == [0, 14]
    assert figures(ended) == {
        ("write", "bytes_per_second"): 31.722 * MIB,
        ("average_latency", "seconds"): 0.412811,
        ("max_latency", "seconds"): 1.234567,
    }
    assert found[-1] == Completed()


def test_an_average_without_a_colon() -> None:
    data = capture("rados-bench-seq").replace(b"Average IOPS:  ", b"Average IOPS   ")

    assert figures(ends(events(data))[0])["read", "operations_per_second"] == 151


@pytest.mark.parametrize("stamp", ["2020-10-13 15:31:22.669988 ", "2023-03-04T23:19:34.671+0800 "])
def test_dates_in_front_of_lines_change_nothing(stamp: str) -> None:
    lines = capture("rados-bench-write").decode().splitlines(keepends=True)

    assert events("".join(stamp + line for line in lines)) == events("".join(lines))


def test_a_summary_alone_is_a_run() -> None:
    data = capture("rados-bench-write")

    assert [type(event) for event in events(data[data.index(b"Total time") :])] == [RunBegan, Ended, Completed]


def test_rados_cleanup_is_one_line_which_is_believed_where_nothing_stands_before_it() -> None:
    found = events(capture("rados-cleanup"))

    assert [type(event) for event in found] == [RunBegan, Ended, Completed]
    assert figures(ends(found)[0]) == {("removed", "operations"): 650}
    assert events("$ make clean\nRemoved 650 objects\n") == []


@pytest.mark.parametrize("before", ["Warning: using slow linear search\n", "[root@deploy ~]# rados -p lma cleanup\n"])
def test_rados_cleanup_is_known_by_what_stands_before(before: str) -> None:
    assert [type(event) for event in events(f"$ ls\n{before}Removed 39 objects\n")] == [RunBegan, Ended, Completed]


def test_an_error_that_rados_tells_of_ends_the_run() -> None:
    head = seed("rados-bench-cut-off")

    assert events(head + b"error during benchmark: (5) Input/output error\n")[-1] == Failed(
        "error during benchmark: (5) Input/output error"
    )
    assert events("hints = 1\nMust write data before running a read benchmark!\n") == [
        RunBegan(),
        Failed("Must write data before running a read benchmark!"),
    ]


@pytest.mark.parametrize(
    "name", ["fio-json", "ior-singleton-pipe", "mdtest-std", "rbd-bench-pipe", "ceph-tell-osd-bench"]
)
def test_foreign_output_tells_nothing(name: str) -> None:
    assert events(capture(name)) == []


WHOLE = seed("rados-bench-overrun") + capture("rados-bench-json") + capture("rados-bench-seq") + OLD.encode()


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = RadosReader()
    at = [0, *sorted(cuts), len(WHOLE)]
    found = [event for start, end in pairwise(at) for event in reader.feed(WHOLE[start:end])]

    assert [*found, *reader.close()] == events(WHOLE)


LINES = WHOLE.split(b"\n")


@given(st.lists(st.binary(max_size=40) | st.sampled_from(LINES), max_size=40))
def test_nothing_raises(pieces: list[bytes]) -> None:
    events(b"\n".join(pieces))


@given(st.binary(max_size=30), st.integers(0, len(WHOLE)))
def test_damaged_output_never_raises(damage: bytes, at: int) -> None:
    events(WHOLE[:at] + damage + WHOLE[at + len(damage) :])


def test_what_is_kept_is_bounded() -> None:
    reader = RadosReader()
    reader.feed(b"hints = 1\n" + b'{"datas":[' + b'"sec":"1",' * 100_000)
    reader.feed(b'"total_time_run":"1"' + b'"object_size":"1",' * 100_000)

    assert len(repr(vars(reader))) < 100_000


def look(machine: Machine, *threads: str, argv: str = "rados bench -p rbd 60 write") -> tuple[Tree, RadosBench]:
    machine.process(PID, "rados", argv=tuple(argv.split()), threads=dict(enumerate(threads, PID + 1)))
    tree = Tree(machine.procfs, {PID: parse_stat(read_bytes(machine.procfs / str(PID) / "stat"))})
    return tree, RadosBench(tree, PID)


@pytest.mark.parametrize(
    ("thread", "phase"), [("write_stat", "write"), ("seq_read_stat", "seq"), ("rand_read_stat", "rand")]
)
def test_the_thread_that_prints_names_the_phase(machine: Machine, thread: str, phase: str) -> None:
    tree, bench = look(machine, "log", "msgr-worker-0", thread, argv=f"rados bench 60 {phase} -p rbd")
    sight = bench.look(tree, PID, 0.0)

    assert (sight.state, sight.phase, sight.source, sight.expected) == (State.RUNNING, phase, PhaseSource.THREAD, 60.0)


def test_before_the_first_row_it_connects(machine: Machine) -> None:
    tree, bench = look(machine, "log", "msgr-worker-0")

    assert bench.look(tree, PID, 0.0).state is State.SETUP


@pytest.mark.parametrize(
    ("argv", "state", "phase"),
    [
        ("rados bench -p rbd 60 write", State.RUNNING, "cleanup"),
        ("rados bench -p rbd 60 write --no-cleanup", State.BETWEEN, None),
        ("rados bench -p rbd 60 seq", State.BETWEEN, None),
    ],
)
def test_when_that_thread_has_gone_a_write_cleans_up_unless_told_not_to(
    machine: Machine, argv: str, state: State, phase: str | None
) -> None:
    tree, bench = look(machine, "write_stat", argv=argv)
    bench.look(tree, PID, 0.0)
    machine.end(PID, PID + 1)
    sight = bench.look(tree, PID, 1.0)

    assert (sight.state, sight.phase) == (state, phase)


def test_without_threads_the_command_line_has_to_do(machine: Machine) -> None:
    tree, bench = look(machine, argv="rados -p rbd bench 30 rand -t 4")
    for path in sorted((machine.procfs / str(PID) / "task").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    sight = bench.look(tree, PID, 0.0)

    assert (sight.phase, sight.source, sight.vague, sight.expected) == ("rand", PhaseSource.ARGV, True, 30.0)


@pytest.mark.parametrize(
    ("argv", "leads"),
    [
        ("rados bench -p rbd 60 write", True),
        ("rados -p rbd --id admin bench 60 seq", True),
        ("rados -p rbd cleanup --prefix benchmark", True),
        ("rados -p rbd put bench file", False),
        ("rados -p bench ls", False),
        ("rados", False),
    ],
)
def test_only_these_two_commands_of_rados_are_benchmarks(machine: Machine, argv: str, leads: bool) -> None:
    tree, _ = look(machine, argv=argv)

    assert RadosBench.leads(tree, PID) is leads


@pytest.mark.parametrize(
    "argv",
    [
        "rados bench -t 16 -p rbd 60 write -b 4096",
        "rados bench --show-time 60 write",
        "rados bench --concurrent-ios 16 --no-hints 60 write",
        "rados bench -t16 --pool=rbd 60 write",
    ],
)
def test_seconds_are_told_from_the_values_of_options(machine: Machine, argv: str) -> None:
    tree, bench = look(machine, "write_stat", argv=argv)

    assert bench.look(tree, PID, 0.0).expected == 60.0


def test_a_command_that_cleans_up_is_one_phase(machine: Machine) -> None:
    tree, bench = look(machine, "log", argv="rados -p rbd cleanup")

    assert bench.look(tree, PID, 0.0).phase == "cleanup"


def test_the_rows_of_a_random_read_are_claimed_as_such(machine: Machine) -> None:
    _, bench = look(machine, argv="rados -p rbd bench 30 rand")

    assert bench.claim(Ended("seq")) == Ended("rand")
    assert bench.claim(Rate("seq", work=1.0)) == Rate("rand", work=1.0)
    assert bench.claim(Ended("write")) is None
    assert bench.claim(Ended("cleanup")) is None


@given(st.lists(st.text(max_size=10) | st.sampled_from(["bench", "write", "-p", "--no-cleanup", "10"]), max_size=8))
def test_no_command_line_raises(words: list[str]) -> None:
    class Argv(Tree):
        def argv(self, pid: int) -> list[str]:
            return words

    tree = Argv(Path("/nonexistent"), {PID: parse_stat(b"100 (rados) S 1 " + b"0 " * 40)})
    RadosBench.leads(tree, PID)
    RadosBench(tree, PID).look(tree, PID, 0.0)
