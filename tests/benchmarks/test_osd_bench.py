from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, PhaseSource, RunBegan, State
from pinchpoint.benchmarks.osd_bench import OsdBench, OsdBenchReader
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.procfs import parse_stat, read_bytes

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURE = (FIXTURES / "captures" / "ceph-tell-osd-bench" / "stdout.txt").read_text()
SEED = (FIXTURES / "seeds" / "osd-bench.txt").read_text()
PID = 100

CRIMSON = """\
{
    "osd_bench_results": {
        "bytes_written": 1073741824,
        "blocksize": 4194304,
        "elapsed_sec": 0.5,
        "bytes_per_sec": 2147483648,
        "iops": 512
    }
}
"""
STRINGS = '{\n    "bytes_written": 1073741824,\n    "blocksize": 4194304,\n    "bytes_per_sec": "134217728.000000"\n}\n'
SENTENCE = (
    "osd.0 10.0.0.4:6802/4711 12 : [INF] bench: wrote 1024 MB in blocks of 4096 KB in 4.501234 sec at 227 MB/sec\n"
)


def events(text: str) -> list[Event]:
    reader = OsdBenchReader()
    return [*reader.feed(text.encode()), *reader.close()]


def the_end(text: str) -> Ended:
    _, ended, _ = events(text)
    assert isinstance(ended, Ended)
    return ended


def figures(ended: Ended) -> dict[str, float]:
    return {result.unit: result.value for result in ended.results}


@pytest.mark.parametrize(
    ("text", "rate", "operations", "seconds"),
    [
        (CAPTURE, 643658505.61831903, 153.46014633615471, 1.6681855589999999),
        (SEED, 472844294.73573411, 112.73486488717415, 2.2708148029999999),
        (CRIMSON, 2147483648, 512, 0.5),
    ],
    ids=["16.2", "seed", "crimson"],
)
def test_an_answer_is_a_whole_run(text: str, rate: float, operations: float, seconds: float) -> None:
    began, ended, completed = events(text)

    assert isinstance(ended, Ended)
    assert (began, completed) == (RunBegan(), Completed())
    assert (ended.phase, ended.seconds) == ("write", seconds)
    assert figures(ended) == {"bytes_per_second": rate, "operations_per_second": operations}


def test_a_figure_is_shown_with_all_its_digits() -> None:
    assert the_end(CAPTURE).results[0].printed == "643658505.61831903 bytes/s"


def test_older_answers_have_figures_as_strings_and_no_time() -> None:
    ended = the_end(STRINGS)

    assert figures(ended) == {"bytes_per_second": 134217728}
    assert ended.seconds == 8
    assert ended.results[0].printed == "134217728.000000 bytes/s"


def test_the_oldest_ones_are_a_sentence_in_the_clusters_log() -> None:
    ended = the_end(SENTENCE)

    assert (ended.seconds, figures(ended)) == (4.501234, {"bytes_per_second": 227 << 20})
    assert the_end(SENTENCE.replace("227 MB", "46500 KB")).results[0].value == 46500 << 10


def test_a_compact_answer_is_the_same() -> None:
    compact = CAPTURE.replace("\n", "").replace(" ", "") + "\n"

    assert events(compact) == events(CAPTURE)


def test_the_answers_of_several_osds_are_phases_of_one_run() -> None:
    found = events("".join(f"osd.{number}: {CAPTURE}" for number in range(3)))

    assert [type(event) for event in found] == [RunBegan] + [Ended, Completed] * 3


def test_answers_to_two_commands_are_two_runs() -> None:
    assert [type(event) for event in events(CAPTURE + CAPTURE)] == [RunBegan, Ended, Completed] * 2
    assert [type(event) for event in events(f"osd.0: {CAPTURE}$ again\nosd.0: {CAPTURE}")].count(RunBegan) == 2


def test_an_answer_that_is_cut_off_fails() -> None:
    assert events(CAPTURE[: CAPTURE.index('"iops"')]) == [
        RunBegan(),
        Failed("the output ends before the result does"),
    ]


@pytest.mark.parametrize("name", ["fio-json", "iperf3-json", "ior-json", "rados-bench-json"])
def test_other_documents_tell_nothing(name: str) -> None:
    assert events((FIXTURES / "captures" / name / "stdout.txt").read_text()) == []
    assert events('{"bytes_written": 5}\n{"osd_bench_results": 7}\n') == []


WHOLE = (CAPTURE + SENTENCE + CRIMSON + "osd.1: " + STRINGS + "osd.2: " + STRINGS).encode()


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = OsdBenchReader()
    found = [
        event for start, end in pairwise([0, *sorted(cuts), len(WHOLE)]) for event in reader.feed(WHOLE[start:end])
    ]

    assert [*found, *reader.close()] == events(WHOLE.decode())


@given(st.lists(st.binary(max_size=40) | st.sampled_from(WHOLE.split(b"\n")), max_size=40))
def test_nothing_raises(lines: list[bytes]) -> None:
    reader = OsdBenchReader()
    reader.feed(b"\n".join(lines))
    reader.close()


@given(
    st.dictionaries(
        st.sampled_from(["bytes_written", "blocksize", "bytes_per_sec", "elapsed_sec", "iops"]),
        st.sampled_from(['"x"', "1e999", "-5", "0", "1e-320", "null", "[]", "true", "9" * 400]),
    )
)
def test_no_figure_raises(answer: dict[str, str]) -> None:
    document = ", ".join(f'"{key}": {value}' for key, value in answer.items())
    events(f"{{{document}}}\n")


def tree_of(machine: Machine, comm: str, argv: str) -> Tree:
    machine.process(PID, comm, argv=tuple(argv.split()))
    return Tree(machine.procfs, {PID: parse_stat(read_bytes(machine.procfs / str(PID) / "stat"))})


@pytest.mark.parametrize(
    ("comm", "argv"),
    [
        ("ceph", "/usr/bin/python3 /usr/bin/ceph tell osd.3 bench"),
        ("python3", "python3 -s /usr/bin/ceph --id admin tell osd.* bench 12288000 4096"),
        ("ceph", "/usr/bin/python3 /usr/bin/ceph -f json tell osd.0 bench"),
        ("ceph", "ceph daemon osd.0 bench"),
        ("ceph", "ceph --verbose --cluster=other tell osd.0 bench"),
    ],
)
def test_the_command_line_tells_of_its_only_phase(machine: Machine, comm: str, argv: str) -> None:
    tree = tree_of(machine, comm, argv)
    sight = OsdBench(tree, PID).look(tree, PID, 0.0)

    assert OsdBench.leads(tree, PID)
    assert (sight.state, sight.phase, sight.source) == (State.RUNNING, "write", PhaseSource.ARGV)


@pytest.mark.parametrize(
    ("comm", "argv"),
    [
        ("ceph", "/usr/bin/python3 /usr/bin/ceph tell osd.0 version"),
        ("ceph", "/usr/bin/python3 /usr/bin/ceph tell mds.a bench"),
        ("ceph", "/usr/bin/python3 /usr/bin/ceph osd pool create bench"),
        ("ceph", "/usr/bin/python3 /usr/bin/ceph tell"),
        ("ceph", "/usr/bin/python3 /usr/bin/ceph config set tell osd.0 bench"),
        ("python3", "python3 report.py tell osd.0 bench"),
        ("python3", ""),
    ],
)
def test_other_commands_are_no_benchmarks(machine: Machine, comm: str, argv: str) -> None:
    assert not OsdBench.leads(tree_of(machine, comm, argv), PID)
