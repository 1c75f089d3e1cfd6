from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from machine import Machine
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, Rate, RunBegan, State
from pinchpoint.benchmarks.ping import Ping, PingReader
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.procfs import parse_stat, read_bytes

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURE = (FIXTURES / "captures" / "ping-pipe" / "stdout.txt").read_text()
PID = 100

BSD = """\
PING 127.0.0.1 (127.0.0.1): 56 data bytes
64 bytes from 127.0.0.1: icmp_seq=0 ttl=64 time=0.052 ms
64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.071 ms

--- 127.0.0.1 ping statistics ---
2 packets transmitted, 2 packets received, 0.0% packet loss
round-trip min/avg/max/stddev = 0.052/0.061/0.071/0.010 ms
"""
BUSYBOX = """\
PING 10.0.0.1 (10.0.0.1): 56 data bytes
64 bytes from 10.0.0.1: seq=0 ttl=64 time=1.054 ms

--- 10.0.0.1 ping statistics ---
2 packets transmitted, 1 packets received, 50% packet loss
round-trip min/avg/max = 1.054/1.054/1.054 ms
"""
LOST = """\
PING 10.0.0.9 (10.0.0.9) 56(84) bytes of data.
From 10.0.0.1 icmp_seq=1 Destination Host Unreachable

--- 10.0.0.9 ping statistics ---
4 packets transmitted, 0 received, +4 errors, 100% packet loss, time 3068ms
pipe 4
"""
SIX = """\
PING ::1(::1) 56 data bytes
64 bytes from ::1: icmp_seq=1 ttl=64 time=0.031 ms

--- ::1 ping statistics ---
1 packets transmitted, 1 received, 0% packet loss, time 0ms
rtt min/avg/max/mdev = 0.031/0.031/0.031/0.000 ms, pipe 2, ipg/ewma 0.3/0.2 ms
"""


def events(text: str) -> list[Event]:
    reader = PingReader()
    return [*reader.feed(text.encode()), *reader.close()]


def trips(found: list[Event]) -> list[float]:
    return [event.results[0].value for event in found if isinstance(event, Rate)]


def the_end(found: list[Event]) -> Ended:
    (ended,) = [event for event in found if isinstance(event, Ended)]
    return ended


def figures(found: list[Event]) -> dict[str, float]:
    return {result.operation: result.value for result in the_end(found).results}


def test_each_answer_is_a_rate_and_the_statistics_are_the_result() -> None:
    found = events(CAPTURE)

    assert found[:2] == [RunBegan(), Began("ping")]
    assert trips(found) == pytest.approx([0.634e-3, 0.037e-3, 0.033e-3, 0.038e-3])
    assert [event.work for event in found if isinstance(event, Rate)] == [1, 2, 3, 4]
    assert figures(found) == pytest.approx(
        {
            "average_round_trip": 0.185e-3,
            "min_round_trip": 0.033e-3,
            "max_round_trip": 0.634e-3,
            "mdev_round_trip": 0.258e-3,
            "loss": 0.0,
            "transmitted": 4,
            "received": 4,
        }
    )
    assert the_end(found).seconds == pytest.approx(0.956)
    assert the_end(found).results[0].printed == "0.185 ms"
    assert found[-1] == Completed()


@pytest.mark.parametrize(
    ("text", "average", "loss"), [(BSD, 0.061e-3, 0.0), (BUSYBOX, 1.054e-3, 0.5), (SIX, 0.031e-3, 0.0)]
)
def test_other_pings_print_nearly_the_same(text: str, average: float, loss: float) -> None:
    found = events(text)

    assert len(trips(found)) == text.count("time=")
    assert figures(found)["average_round_trip"] == pytest.approx(average)
    assert figures(found)["loss"] == loss
    assert found[-1] == Completed()


def test_busybox_has_no_deviation() -> None:
    assert "mdev_round_trip" not in figures(events(BUSYBOX))


def test_without_any_answer_all_is_lost_and_there_is_no_round_trip() -> None:
    found = events(LOST)

    assert figures(found) == {"loss": 1.0, "transmitted": 4, "received": 0}
    assert the_end(found).results[0].printed == "100%"
    assert the_end(found).seconds == pytest.approx(3.068)
    assert found[-1] == Completed()


def test_packets_too_short_for_a_time_have_none() -> None:
    text = "".join(line for line in CAPTURE.splitlines(keepends=True) if not line.startswith("rtt"))

    assert figures(events(text.replace("time=", "x="))) == {"loss": 0.0, "transmitted": 4, "received": 4}


def test_quiet_output_has_its_statistics_only() -> None:
    lines = [line for line in CAPTURE.splitlines(keepends=True) if "icmp_seq" not in line]

    assert [type(event) for event in events("".join(lines))] == [RunBegan, Began, Ended, Completed]


def test_statistics_without_a_beginning_are_a_run_too() -> None:
    assert [type(event) for event in events(CAPTURE[CAPTURE.index("---") :])] == [RunBegan, Began, Ended, Completed]


def test_times_in_front_change_nothing() -> None:
    stamped = "".join(
        f"[1695912345.123456] {line}" if "icmp_seq" in line else line for line in CAPTURE.splitlines(keepends=True)
    )

    assert events(stamped) == events(CAPTURE)


def test_a_duplicate_is_no_further_answer() -> None:
    row = "64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.634 ms"

    assert events(CAPTURE.replace(row, f"{row}\n{row} (DUP!)")) == events(CAPTURE)


def test_output_that_ends_before_its_statistics_fails() -> None:
    assert events(CAPTURE[: CAPTURE.index("---")])[-1] == Failed("the output ends before the statistics")


def test_a_text_of_several_pings_has_several_runs() -> None:
    kinds = [type(event) for event in events(CAPTURE + "and\n" + BSD + LOST) if not isinstance(event, Rate)]

    assert kinds == [RunBegan, Began, Ended, Completed] * 3


@pytest.mark.parametrize("name", ["iperf2-seed", "fio-randwrite-pipe", "rados-bench-write"])
def test_foreign_output_tells_nothing(name: str) -> None:
    assert events((FIXTURES / "captures" / name / "stdout.txt").read_text()) == []
    assert events("64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.634 ms\n") == []


WHOLE = (CAPTURE + BSD + BUSYBOX + LOST + SIX).encode()


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = PingReader()
    found = [
        event for start, end in pairwise([0, *sorted(cuts), len(WHOLE)]) for event in reader.feed(WHOLE[start:end])
    ]

    assert [*found, *reader.close()] == events(WHOLE.decode())


@given(st.lists(st.binary(max_size=40) | st.sampled_from(WHOLE.split(b"\n")), max_size=40))
def test_nothing_raises(lines: list[bytes]) -> None:
    reader = PingReader()
    reader.feed(b"\n".join(lines))
    reader.close()


@given(st.text("0123456789.", max_size=400))
def test_no_figure_raises(figure: str) -> None:
    for known in ("0.634", "0.185", "4 packets", "956", "0%"):
        events(CAPTURE.replace(known, figure + known.lstrip("0123456789.")))


def ping(machine: Machine, argv: str) -> tuple[Tree, Ping]:
    machine.process(PID, "ping", argv=tuple(argv.split()))
    tree = Tree(machine.procfs, {PID: parse_stat(read_bytes(machine.procfs / str(PID) / "stat"))})
    return tree, Ping(tree, PID)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("ping -c 4 -i 0.3 127.0.0.1", 0.9),
        ("ping 127.0.0.1 -qc11", 10.0),
        ("ping -c 100 -w 5 127.0.0.1", 5.0),
        ("ping -w 5 127.0.0.1", 5.0),
        ("ping 127.0.0.1", None),
        ("ping -c 1 127.0.0.1", None),
        ("ping -f -c 1000 127.0.0.1", None),
        ("ping -c many -i often 127.0.0.1", None),
        ("ping -c", None),
        ("ping", None),
    ],
)
def test_the_command_line_says_how_long_it_will_take(machine: Machine, argv: str, expected: float | None) -> None:
    tree, bench = ping(machine, argv)
    bench.look(tree, PID, 0.0)
    sight = bench.look(tree, PID, 1.0)

    assert (sight.state, sight.phase) == (State.RUNNING, "ping")
    assert sight.expected == pytest.approx(expected)


def test_a_ping_that_ends_before_the_second_look_had_no_phase(machine: Machine) -> None:
    tree, bench = ping(machine, "ping -c 4 -p zz 127.0.0.1")
    sight = bench.look(tree, PID, 0.0)

    assert (sight.state, sight.phase) == (State.SETUP, None)


def test_answers_are_a_share_of_the_packets_that_were_asked_for(machine: Machine) -> None:
    _, bench = ping(machine, "ping -c 4 127.0.0.1")
    rate = Rate("ping", work=1.0)

    assert bench.claim(rate) == replace(rate, progress=0.25)
    assert ping(machine, "ping 127.0.0.1")[1].claim(rate) == rate


@given(st.lists(st.text(max_size=10) | st.sampled_from(["-c", "-i", "-w", "5", "--", "-f"]), max_size=8))
def test_no_command_line_raises(words: list[str]) -> None:
    class Argv(Tree):
        def argv(self, pid: int) -> list[str]:
            return words

    tree = Argv(Path("/nonexistent"), {})
    Ping(tree, PID).look(tree, PID, 0.0)
