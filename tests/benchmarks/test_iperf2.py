from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, Rate, RunBegan, State
from pinchpoint.benchmarks.iperf2 import Iperf2, Iperf2Reader
from pinchpoint.runs import Result

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
PLAIN, PARALLEL, REFUSED = (
    (CAPTURES / name / "stdout.txt").read_text() for name in ("iperf2-seed", "iperf2-seed-P4-i1", "iperf2-fail")
)
PID = 100

# iperf 2.1.8, unless stated otherwise.
REVERSE = """\
Client connecting to 127.0.0.1, TCP port 5001
[  1] local 127.0.0.1 port 40850 connected with 127.0.0.1 port 5001 (reverse) (icwnd/mss/irtt=319/32741/20)
[ ID] Interval       Transfer     Bandwidth
[ *1] 0.0000-0.5000 sec  2.86 GBytes  49.2 Gbits/sec
[ *1] 0.5000-1.0000 sec  2.90 GBytes  49.8 Gbits/sec
[ *1] 0.0000-1.0001 sec  5.76 GBytes  49.5 Gbits/sec
"""
FULL_DUPLEX = """\
Client connecting to 127.0.0.1, TCP port 5001
[  1] local 127.0.0.1 port 40860 connected with 127.0.0.1 port 5001 (full-duplex) (icwnd/mss/irtt=319/32741/18)
[ ID] Interval       Transfer     Bandwidth
[  1] 0.0000-0.5000 sec  2.60 GBytes  44.6 Gbits/sec
[ *1] 0.0000-0.5000 sec   528 MBytes  8.86 Gbits/sec
[  1] 0.5000-1.0000 sec  2.65 GBytes  45.6 Gbits/sec
[ *1] 0.5000-1.0000 sec   135 MBytes  2.26 Gbits/sec
[  1] 0.0000-1.0002 sec  5.25 GBytes  45.1 Gbits/sec
[ *1] 0.0000-1.0009 sec   668 MBytes  5.60 Gbits/sec
"""
FULL_DUPLEX_TWICE = """\
Client connecting to 127.0.0.1, TCP port 5001
[  1] local 127.0.0.1 port 39726 connected with 127.0.0.1 port 5001 (full-duplex) (icwnd/mss/irtt=319/32741/14)
[  2] local 127.0.0.1 port 39724 connected with 127.0.0.1 port 5001 (full-duplex) (icwnd/mss/irtt=319/32741/16)
[ ID] Interval       Transfer     Bandwidth
[ *2] 0.0000-1.0005 sec  2.59 GBytes  22.2 Gbits/sec
[  2] 0.0000-1.0019 sec  2.02 GBytes  17.3 Gbits/sec
[  1] 0.0000-1.0009 sec  2.42 GBytes  20.8 Gbits/sec
[ *1] 0.0000-1.0019 sec  2.17 GBytes  18.6 Gbits/sec
[SUM] 0.0000-1.0027 sec  9.20 GBytes  78.8 Gbits/sec
"""
DUAL = """\
Server listening on TCP ports 4990-4999 with pid 22208
TCP window size:  128 KByte (default)
Client connecting to 127.0.0.1, TCP port 5001
[  1] local 127.0.0.1 port 39712 connected with 127.0.0.1 port 5001 (icwnd/mss/irtt=319/32741/28)
[  2] local 127.0.0.1 port 4990 connected with 127.0.0.1 port 60960
[ ID] Interval       Transfer     Bandwidth
[  1] 0.0000-0.5000 sec  3.08 GBytes  52.9 Gbits/sec
[  2] 0.0000-0.5000 sec  3.13 GBytes  53.7 Gbits/sec
[  2] 0.5000-0.9999 sec  3.15 GBytes  54.1 Gbits/sec
[  2] 0.0000-0.9999 sec  6.27 GBytes  53.9 Gbits/sec
[  1] 0.5000-1.0000 sec  3.10 GBytes  53.2 Gbits/sec
[  1] 1.0000-2.0150 sec   128 KBytes  1.03 Mbits/sec
[  1] 0.0000-2.0150 sec  6.18 GBytes  26.3 Gbits/sec
"""
TRADEOFF = """\
Server listening on TCP ports 4991-4999 with pid 22221
Client connecting to 127.0.0.1, TCP port 5001
[  1] local 127.0.0.1 port 39718 connected with 127.0.0.1 port 5001 (icwnd/mss/irtt=319/32741/22)
[ ID] Interval       Transfer     Bandwidth
[  1] 0.0000-1.0145 sec  5.71 GBytes  48.3 Gbits/sec
[  2] local 127.0.0.1 port 4991 connected with 127.0.0.1 port 54152
[ ID] Interval       Transfer     Bandwidth
[  2] 0.0000-1.0003 sec  5.64 GBytes  48.4 Gbits/sec
"""
SUMS_ONLY = """\
Client connecting to 127.0.0.1, TCP port 5001
[SUM-cnt] Interval       Transfer     Bandwidth
[SUM-2] 0.0000-0.5000 sec  6.17 GBytes   106 Gbits/sec
[SUM-2] 0.5000-1.0000 sec  6.30 GBytes   108 Gbits/sec
[SUM-2] 0.0000-1.0002 sec  12.5 GBytes   107 Gbits/sec
"""
ENHANCED = """\
Client connecting to 127.0.0.1, TCP port 5001 with pid 21817 (1 flows)
[  1] local 127.0.0.1%lo port 40838 connected with 127.0.0.1 port 5001 (sock=3) (icwnd/mss/irtt=319/32741/28)
[ ID] Interval            Transfer    Bandwidth       Write/Err  Rtry     Cwnd/RTT(var)        NetPwr
[  1] 0.0000-0.5000 sec  2.78 GBytes  47.8 Gbits/sec  22805/0          0      895K/29(4) us  206144622
[  1] 0.5000-1.0000 sec  2.79 GBytes  48.0 Gbits/sec  22895/0         17      895K/28(1) us  214349531
[  1] 0.0000-1.0155 sec  5.58 GBytes  47.2 Gbits/sec  45701/0         17      895K/1948(3844) us  3028222
"""
DATAGRAMS = """\
Client connecting to 127.0.0.1, UDP port 5001
Sending 1470 byte datagrams, IPG target: 1176.00 us (kalman adjust)
[  1] local 127.0.0.1 port 58188 connected with 127.0.0.1 port 5001
[ ID] Interval       Transfer     Bandwidth
[  1] 0.0000-0.5000 sec   613 KBytes  10.0 Mbits/sec
[  1] 0.5000-1.0000 sec   610 KBytes  10.0 Mbits/sec
[  1] 0.0000-1.0020 sec  1.20 MBytes  10.0 Mbits/sec
[  1] Sent 855 datagrams
[  1] Server Report:
[ ID] Interval       Transfer     Bandwidth        Jitter   Lost/Total Datagrams
[  1] 0.0000-1.0021 sec  1.19 MBytes  9.96 Mbits/sec   0.012 ms 3/854 (0.35%)
"""
CSV = """\
20261121084848,127.0.0.1,40930,127.0.0.1,5001,2,0.0-0.5,3069837372,49117397952
20261121084848,127.0.0.1,40916,127.0.0.1,5001,1,0.0-0.5,3231187004,51698992064
20261121084849,127.0.0.1,40930,127.0.0.1,5001,2,0.5-1.0,3109421056,49750736896
20261121084849,127.0.0.1,40916,127.0.0.1,5001,1,0.5-1.0,3348496384,53575942144
20261121084849,127.0.0.1,40930,127.0.0.1,5001,2,0.0-1.0,6179389500,49317296977
20261121084849,127.0.0.1,40916,127.0.0.1,5001,1,0.0-1.0,6579814460,52542572941
"""
OLD = """\
------------------------------------------------------------
Client connecting to 192.168.1.11, TCP port 5001
TCP window size: 85.0 KByte (default)
------------------------------------------------------------
[  3] local 192.168.1.10 port 51342 connected with 192.168.1.11 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0- 1.0 sec   112 MBytes   942 Mbits/sec
[  3]  1.0- 2.0 sec   112 MBytes   941 Mbits/sec
[  3]  0.0-10.0 sec  1.10 GBytes   941 Mbits/sec
"""
SERVER = """\
Server listening on TCP port 5001
TCP window size:  128 KByte (default)
[  1] local 127.0.0.1 port 5001 connected with 127.0.0.1 port 58188
[ ID] Interval       Transfer     Bandwidth
[  1] 0.0000-1.0021 sec  1.20 MBytes  10.0 Mbits/sec
[  2] local 127.0.0.1 port 5001 connected with 127.0.0.1 port 41692
[  2] 0.0000-1.0020 sec  1.21 MBytes  10.1 Mbits/sec
"""
TEXTS = (PLAIN, PARALLEL, REFUSED, REVERSE, FULL_DUPLEX, FULL_DUPLEX_TWICE, DUAL, TRADEOFF, SUMS_ONLY, ENHANCED)
MORE = (DATAGRAMS, CSV, OLD, SERVER)


def events(*pieces: str | bytes) -> list[Event]:
    reader = Iperf2Reader()
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return [*(event for piece in raw for event in reader.feed(piece)), *reader.close()]


def the_end(text: str) -> Ended:
    (ended,) = [event for event in events(text) if isinstance(event, Ended)]
    return ended


def figures(text: str) -> dict[tuple[str, str], float]:
    return {(result.operation, result.unit): result.value for result in the_end(text).results}


def rates(text: str) -> list[float]:
    return [event.results[0].value * 8 / 1e9 for event in events(text) if isinstance(event, Rate) and event.results]


def test_a_transfer_has_its_rate_and_its_bytes() -> None:
    assert events(PLAIN)[0] == RunBegan()
    assert events(PLAIN)[-2:] == [
        Ended(
            "send",
            (
                Result("send", "bytes_per_second", 12.3e9 / 8, "12.3 Gbits/sec"),
                Result("transferred", "bytes", 4.46 * 2**30, "4.46 GBytes"),
            ),
            3.1072,
        ),
        Completed(),
    ]


def test_of_parallel_streams_the_sum_counts() -> None:
    assert rates(PARALLEL) == pytest.approx([11.2, 18.7, 22.8])
    assert the_end(PARALLEL).results[0].printed == "17.5 Gbits/sec"
    assert the_end(PARALLEL).seconds == 3.0098


def test_an_interval_is_a_rate_as_soon_as_it_is_printed() -> None:
    reader = Iperf2Reader()
    head, row, _ = PARALLEL.partition("[SUM] 0.0000-1.0000 sec  1.31 GBytes  11.2 Gbits/sec\n")

    reader.feed(head.encode())
    assert reader.feed(row.encode()) == [
        Rate("send", (Result("send", "bytes_per_second", 11.2 * 1e9 / 8, "11.2 Gbits/sec"),))
    ]


def test_the_result_comes_with_the_row_of_the_whole_time() -> None:
    reader = Iperf2Reader()

    assert [type(event) for event in reader.feed(ENHANCED.encode())] == [RunBegan, *[Rate] * 3, Ended, Completed]
    assert reader.close() == []


def test_the_transfer_begins_when_it_is_connected() -> None:
    reader = Iperf2Reader()

    assert reader.feed(PLAIN[: PLAIN.index("[ ID]")].encode()) == [RunBegan(), Rate("send")]


@pytest.mark.parametrize(
    ("text", "rate", "seconds"),
    [(SUMS_ONLY, 107, 1.0002), (ENHANCED, 47.2, 1.0155), (OLD, 0.941, 10.0), (REVERSE, 49.5, 1.0001)],
)
def test_other_options_and_releases(text: str, rate: float, seconds: float) -> None:
    assert the_end(text).results[0].value == pytest.approx(rate * 1e9 / 8)
    assert the_end(text).seconds == seconds
    assert len(rates(text)) == 2
    assert events(text)[-1] == Completed()


@pytest.mark.parametrize(
    ("row", "value", "moved"),
    [
        ("5973 MBytes  5879 MBytes/sec", 5879 * 2**20, 5973 * 2**20),
        ("6009088 KBytes  48477091 Kbits/sec", 48477091e3 / 8, 6009088 * 2**10),
        ("2989228092 Bytes  47827649472 bits/sec", 47827649472 / 8, 2989228092),
        ("0.00 Bytes  0.00 bits/sec", 0, 0),
    ],
)
def test_bits_count_by_1000_and_bytes_by_1024(row: str, value: float, moved: float) -> None:
    text = PLAIN.replace("4.46 GBytes  12.3 Gbits/sec", row)

    assert figures(text) == {("send", "bytes_per_second"): value, ("transferred", "bytes"): moved}
    assert [result.printed for result in the_end(text).results] == [*reversed(row.split("  "))]


def test_what_comes_back_is_received() -> None:
    assert the_end(REVERSE).phase == "receive"
    assert the_end(REVERSE).results[0].operation == "receive"


@pytest.mark.parametrize(
    ("text", "send", "receive"), [(FULL_DUPLEX, 45.1, 5.6), (DUAL, 26.3, 53.9), (TRADEOFF, 48.3, 48.4)]
)
def test_both_directions_are_one_phase(text: str, send: float, receive: float) -> None:
    assert the_end(text).phase == "bidirectional"
    assert [(result.operation, result.unit) for result in the_end(text).results] == [
        ("send", "bytes_per_second"),
        ("receive", "bytes_per_second"),
        ("send", "bytes"),
        ("receive", "bytes"),
    ]
    assert [result.value for result in the_end(text).results[:2]] == pytest.approx([send * 1e9 / 8, receive * 1e9 / 8])


def test_the_sum_of_both_directions_is_that_of_neither() -> None:
    assert figures(FULL_DUPLEX_TWICE)["send", "bytes_per_second"] == pytest.approx((17.3 + 20.8) * 1e9 / 8)
    assert figures(FULL_DUPLEX_TWICE)["receive", "bytes_per_second"] == pytest.approx((22.2 + 18.6) * 1e9 / 8)


def test_one_direction_after_the_other_takes_the_time_of_both() -> None:
    assert the_end(TRADEOFF).seconds == pytest.approx(1.0145 + 1.0003)
    assert the_end(DUAL).seconds == 2.015


def test_of_datagrams_the_server_reports_what_arrived() -> None:
    assert figures(DATAGRAMS) == pytest.approx(
        {
            ("send", "bytes_per_second"): 10e6 / 8,
            ("transferred", "bytes"): 1.2 * 2**20,
            ("received", "bytes_per_second"): 9.96e6 / 8,
            ("jitter", "seconds"): 12e-6,
            ("lost", "packets"): 3,
        }
    )
    assert the_end(DATAGRAMS.partition("[  1] Server")[0]).results[0].printed == "10.0 Mbits/sec"


def test_csv_has_no_sum_and_is_summed() -> None:
    assert figures(CSV) == {
        ("send", "bytes_per_second"): pytest.approx((49317296977 + 52542572941) / 8),
        ("transferred", "bytes"): 6179389500 + 6579814460,
    }
    assert rates(CSV) == pytest.approx([(49117397952 + 51698992064) / 1e9])
    assert the_end(CSV).seconds == 1.0


def test_csv_of_older_releases_has_a_sum() -> None:
    row = "20101121084849,127.0.0.1,0,127.0.0.1,5001,-1,0.0-10.0,12759203960,101859869918"

    assert the_end(CSV + row + "\n" + row).results[0].value == 101859869918 / 8


def test_a_refused_connection_failed_though_iperf_exits_with_0() -> None:
    assert events(REFUSED) == [RunBegan(), Failed("the output ends before the result")]


@pytest.mark.parametrize("text", [ENHANCED, REVERSE, FULL_DUPLEX, DUAL])
def test_intervals_without_a_row_of_the_whole_time_are_no_result(text: str) -> None:
    found = events(text[: text.rstrip("\n").rindex("\n")])

    assert not any(isinstance(event, Ended) for event in found)
    assert isinstance(found[-1], Failed)


def test_streams_without_their_sum_are_summed() -> None:
    lines = PARALLEL.splitlines(keepends=True)

    assert events("".join(lines[:-2]))[-1] == Failed("the output ends before the result")
    assert figures("".join(lines[:-1]))["send", "bytes_per_second"] == pytest.approx((4.73 + 4 + 4.42 + 4.36) * 1e9 / 8)


def test_a_servers_clients_are_runs_that_receive() -> None:
    found = [event for event in events(SERVER) if not isinstance(event, Rate)]

    assert [type(event) for event in found] == [RunBegan, Ended, Completed] * 2
    assert [event.phase for event in found if isinstance(event, Ended)] == ["receive", "receive"]
    assert events(SERVER[: SERVER.index("[  1]")]) == []


def test_a_server_beside_a_client_is_left_out() -> None:
    server = SERVER.partition("[  1]")[0]

    assert events(PLAIN.replace("[ ID]", server + "[ ID]")) == events(PLAIN)


def test_several_runs_may_follow_each_other() -> None:
    assert events("".join(TEXTS)) == [event for text in TEXTS for event in events(text)]


def test_blanks_may_be_collapsed() -> None:
    text = "\n".join(" ".join(line.split()) for line in PARALLEL.splitlines())

    assert events(text) == events(PARALLEL)


def test_loose_rows_are_no_results() -> None:
    assert events(PLAIN[PLAIN.index("[ ID]") :]) == []


@given(st.sampled_from(TEXTS + MORE), st.lists(st.integers(0, 2000), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})

    assert events(*(raw[start:end] for start, end in pairwise(places))) == events(text)


ROWS = "".join(TEXTS + MORE).encode().split(b"\n")


@given(st.lists(st.binary(max_size=40) | st.sampled_from(ROWS), max_size=40))
def test_nothing_raises(lines: list[bytes]) -> None:
    events(b"\n".join(lines))


def iperf(machine: Machine, argv: str) -> Iperf2:
    machine.process(PID, "iperf", argv=tuple(argv.split()))
    return Iperf2(machine.tree(), PID)


@pytest.mark.parametrize(
    ("argv", "phase", "expected"),
    [
        ("iperf -c host", "send", 10),
        ("iperf -c host -t 3 -i 1 -P 4", "send", 3),
        ("iperf -chost -t30 -uR", "receive", 30),
        ("iperf --client host --time 5 --reverse", "receive", 5),
        ("iperf --client=host --time=5 --full-duplex", "bidirectional", 5),
        ("iperf -c host -d", "bidirectional", 10),
        ("iperf -c host -r -t 5", "bidirectional", 10),
        ("iperf -c host --bandwidth 10m -n 1G", "send", None),
        ("iperf -c host -t 0", "send", None),
        ("iperf -c host -t", "send", None),
        ("iperf -c host -t often", "send", None),
    ],
)
def test_the_command_line_tells_the_direction_and_how_long(
    machine: Machine, argv: str, phase: str, expected: float | None
) -> None:
    sight = iperf(machine, argv).look(machine.tree(), PID, 0.0)

    assert (sight.state, sight.phase, sight.expected) == (State.RUNNING, phase, expected)


@pytest.mark.parametrize(
    ("argv", "leads"), [("iperf -c host", True), ("iperf -s", False), ("iperf -sp 5001 -D", False)]
)
def test_a_server_leads_no_run(machine: Machine, argv: str, leads: bool) -> None:
    iperf(machine, argv)

    assert Iperf2.leads(machine.tree(), PID) is leads


def test_what_csv_does_not_tell_the_command_line_does(machine: Machine) -> None:
    bench = iperf(machine, "iperf -c host -y C -R -t 1")
    claimed = bench.claim(the_end(CSV))

    assert isinstance(claimed, Ended)
    assert (claimed.phase, claimed.results[0].operation, claimed.valid) == ("receive", "receive", True)
    assert bench.claim(Rate("receive")) == Rate("receive")


def test_a_transfer_that_ended_long_before_its_time_does_not_count(machine: Machine) -> None:
    claimed = iperf(machine, "iperf -c host -t 60").claim(the_end(PLAIN))

    assert isinstance(claimed, Ended)
    assert not claimed.valid
