from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, Rate, RunBegan, State
from pinchpoint.benchmarks.iperf3 import Iperf3, Iperf3Reader

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
DOCUMENT, REFUSED = (
    (CAPTURES / name / "stdout.txt").read_text() for name in ("iperf3-json", "iperf3-fail-refused-json")
)
PID = 100

# iperf 3.12, unless stated otherwise.
PLAIN = """\
Connecting to host 127.0.0.1, port 5201
[  5] local 127.0.0.1 port 54172 connected to 127.0.0.1 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  5.64 GBytes  48.5 Gbits/sec    0    895 KBytes
[  5]   1.00-2.00   sec  5.69 GBytes  48.8 Gbits/sec    1   1023 KBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-2.00   sec  11.3 GBytes  48.7 Gbits/sec    1             sender
[  5]   0.00-2.04   sec  11.2 GBytes  47.3 Gbits/sec                  receiver

iperf Done.
"""
REVERSE = """\
Connecting to host 127.0.0.1, port 5201
Reverse mode, remote host 127.0.0.1 is sending
[  5] local 127.0.0.1 port 54190 connected to 127.0.0.1 port 5201
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-1.00   sec  5.85 GBytes  50.3 Gbits/sec                  (omitted)
[  5]   0.00-1.00   sec  5.76 GBytes  49.5 Gbits/sec
[  5]   1.00-2.00   sec  5.87 GBytes  50.5 Gbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-2.00   sec  11.6 GBytes  50.1 Gbits/sec    0             sender
[  5]   0.00-2.00   sec  11.6 GBytes  50.0 Gbits/sec                  receiver

iperf Done.
"""
BOTH = """\
Connecting to host 127.0.0.1, port 5201
[  5] local 127.0.0.1 port 32928 connected to 127.0.0.1 port 5201
[  7] local 127.0.0.1 port 32942 connected to 127.0.0.1 port 5201
[  9] local 127.0.0.1 port 32954 connected to 127.0.0.1 port 5201
[ 12] local 127.0.0.1 port 32968 connected to 127.0.0.1 port 5201
[ ID][Role] Interval           Transfer     Bitrate         Retr  Cwnd
[  5][TX-C]   0.00-1.00   sec  2.87 GBytes  24.7 Gbits/sec    0    767 KBytes
[  7][TX-C]   0.00-1.00   sec  2.87 GBytes  24.7 Gbits/sec    0    895 KBytes
[SUM][TX-C]   0.00-1.00   sec  5.75 GBytes  49.4 Gbits/sec    0
[  9][RX-C]   0.00-1.00   sec   296 MBytes  2.48 Gbits/sec
[ 12][RX-C]   0.00-1.00   sec   296 MBytes  2.48 Gbits/sec
[SUM][RX-C]   0.00-1.00   sec   592 MBytes  4.96 Gbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID][Role] Interval           Transfer     Bitrate         Retr
[  5][TX-C]   0.00-1.00   sec  2.87 GBytes  24.7 Gbits/sec    0             sender
[  5][TX-C]   0.00-1.00   sec  2.87 GBytes  24.7 Gbits/sec                  receiver
[  7][TX-C]   0.00-1.00   sec  2.87 GBytes  24.7 Gbits/sec    0             sender
[  7][TX-C]   0.00-1.00   sec  2.87 GBytes  24.7 Gbits/sec                  receiver
[SUM][TX-C]   0.00-1.00   sec  5.75 GBytes  49.4 Gbits/sec    0             sender
[SUM][TX-C]   0.00-1.00   sec  5.75 GBytes  49.3 Gbits/sec                  receiver
[  9][RX-C]   0.00-1.00   sec   301 MBytes  2.53 Gbits/sec    0             sender
[  9][RX-C]   0.00-1.00   sec   296 MBytes  2.48 Gbits/sec                  receiver
[ 12][RX-C]   0.00-1.00   sec   300 MBytes  2.52 Gbits/sec    0             sender
[ 12][RX-C]   0.00-1.00   sec   296 MBytes  2.48 Gbits/sec                  receiver
[SUM][RX-C]   0.00-1.00   sec   601 MBytes  5.04 Gbits/sec    0             sender
[SUM][RX-C]   0.00-1.00   sec   592 MBytes  4.96 Gbits/sec                  receiver

iperf Done.
"""
PARALLEL = """\
Connecting to host 127.0.0.1, port 5201
[  5] local 127.0.0.1 port 32976 connected to 127.0.0.1 port 5201
[  7] local 127.0.0.1 port 32988 connected to 127.0.0.1 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  3.16 GBytes  27.2 Gbits/sec    0    767 KBytes
[  7]   0.00-1.00   sec  3.16 GBytes  27.2 Gbits/sec    0    895 KBytes
[SUM]   0.00-1.00   sec  6.33 GBytes  54.3 Gbits/sec    0
- - - - - - - - - - - - - - - - - - - - - - - - -
[  5]   1.00-2.00   sec  2.25 GBytes  19.4 Gbits/sec    0    767 KBytes
[  7]   1.00-2.00   sec  2.25 GBytes  19.3 Gbits/sec    2    767 KBytes
[SUM]   1.00-2.00   sec  4.50 GBytes  38.7 Gbits/sec    2
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-2.00   sec  5.42 GBytes  23.3 Gbits/sec    0             sender
[  5]   0.00-2.00   sec  5.42 GBytes  23.3 Gbits/sec                  receiver
[  7]   0.00-2.00   sec  5.41 GBytes  23.2 Gbits/sec    2             sender
[  7]   0.00-2.00   sec  5.41 GBytes  23.2 Gbits/sec                  receiver
[SUM]   0.00-2.00   sec  10.8 GBytes  46.5 Gbits/sec    2             sender
[SUM]   0.00-2.00   sec  10.8 GBytes  46.4 Gbits/sec                  receiver

iperf Done.
"""
DATAGRAMS = """\
Connecting to host 127.0.0.1, port 5201
[  5] local 127.0.0.1 port 51883 connected to 127.0.0.1 port 5201
[ ID] Interval           Transfer     Bitrate         Total Datagrams
[  5]   0.00-1.00   sec  1.22 MBytes  10.2 Mbits/sec  39
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-1.00   sec  1.22 MBytes  10.2 Mbits/sec  0.000 ms  0/39 (0%)  sender
[  5]   0.00-1.00   sec  1.19 MBytes  9.96 Mbits/sec  0.017 ms  1/39 (2.6%)  receiver

iperf Done.
"""
INTERRUPTED = """\
Connecting to host 127.0.0.1, port 5201
[  5] local 127.0.0.1 port 55492 connected to 127.0.0.1 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  6.01 GBytes  51.7 Gbits/sec    1   1023 KBytes
[  5]   1.00-1.70   sec  4.10 GBytes  50.4 Gbits/sec    1    895 KBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-1.70   sec  10.1 GBytes  51.1 Gbits/sec    2             sender
[  5]   0.00-1.70   sec  0.00 Bytes  0.00 bits/sec                  receiver
"""
OLD = """\
Connecting to host 192.168.1.11, port 5201
[  4] local 192.168.1.10 port 51342 connected to 192.168.1.11 port 5201
[ ID] Interval           Transfer     Bandwidth       Total Datagrams
[  4]   0.00-1.00   sec   116 KBytes   950 Kbits/sec  82
[  4]   1.00-2.00   sec   128 KBytes  1.05 Mbits/sec  90
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams
[  4]   0.00-2.00   sec   244 KBytes  1.00 Mbits/sec  0.041 ms  0/172 (0%)
[  4] Sent 172 datagrams

iperf Done.
"""
SERVER = """\
-----------------------------------------------------------
Server listening on 5201 (test #1)
-----------------------------------------------------------
Accepted connection from 127.0.0.1, port 54160
[  5] local 127.0.0.1 port 5201 connected to 127.0.0.1 port 54172
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-1.00   sec  5.64 GBytes  48.5 Gbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-1.00   sec  5.64 GBytes  48.5 Gbits/sec                  receiver
-----------------------------------------------------------
Server listening on 5201 (test #2)
-----------------------------------------------------------
Accepted connection from 127.0.0.1, port 54178
[  5] local 127.0.0.1 port 5201 connected to 127.0.0.1 port 54190
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  5.76 GBytes  49.5 Gbits/sec    0    895 KBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-1.00   sec  5.76 GBytes  49.5 Gbits/sec    0             sender
"""


def stream(document: str) -> str:
    """Return a document as --json-stream prints it (JSONStream_Output in src/iperf_api.c, iperf 3.17)."""
    whole: dict[str, Any] = json.loads(document)
    told = [("start", whole["start"]), *(("interval", interval) for interval in whole["intervals"])]
    told += [("error", whole["error"])] if "error" in whole else []
    told += [("end", whole["end"])]
    return "".join(json.dumps({"event": event, "data": data}) + "\n" for event, data in told)


def changed(*path: str, **values: object) -> str:
    """Return the document with other values in one of its objects."""
    whole = json.loads(DOCUMENT)
    inner = whole
    for key in path:
        inner = inner[key]
    inner.update(values)
    return json.dumps(whole, indent="\t")


STREAM = stream(DOCUMENT)
TEXTS = (
    PLAIN,
    REVERSE,
    BOTH,
    PARALLEL,
    DATAGRAMS,
    OLD,
    DOCUMENT,
    REFUSED,
    STREAM,
    stream(REFUSED),
    INTERRUPTED,
    SERVER,
)


def events(*pieces: str | bytes) -> list[Event]:
    reader = Iperf3Reader()
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return [*(event for piece in raw for event in reader.feed(piece)), *reader.close()]


def the_end(text: str) -> Ended:
    (ended,) = [event for event in events(text) if isinstance(event, Ended)]
    return ended


def figures(text: str) -> dict[tuple[str, str], float]:
    return {(result.operation, result.unit): result.value for result in the_end(text).results}


def rates(text: str) -> list[float]:
    return [event.results[0].value * 8 / 1e9 for event in events(text) if isinstance(event, Rate) and event.results]


def test_what_arrived_is_the_result() -> None:
    assert the_end(PLAIN).phase == "send"
    assert the_end(PLAIN).results[0].printed == "47.3 Gbits/sec"
    assert figures(PLAIN) == pytest.approx(
        {
            ("send", "bytes_per_second"): 47.3e9 / 8,
            ("sent", "bytes_per_second"): 48.7e9 / 8,
            ("transferred", "bytes"): 11.2 * 2**30,
            ("retransmits", "packets"): 1,
        }
    )
    assert the_end(PLAIN).seconds == 2.04
    assert events(PLAIN)[-1] == Completed()


def test_intervals_are_rates() -> None:
    assert rates(PLAIN) == pytest.approx([48.5, 48.8])
    assert rates(PARALLEL) == pytest.approx([54.3, 38.7])


def test_a_transfer_begins_with_its_table() -> None:
    reader = Iperf3Reader()

    assert reader.feed(PLAIN[: PLAIN.index("[  5]   0")].encode()) == [RunBegan(), Rate("send")]


def test_of_parallel_streams_the_sum_counts() -> None:
    assert the_end(PARALLEL).results[0].printed == "46.4 Gbits/sec"
    assert figures(PARALLEL)["retransmits", "packets"] == 2


def test_the_other_direction_is_received() -> None:
    assert the_end(REVERSE).phase == "receive"
    assert the_end(REVERSE).results[0].operation == "receive"
    assert the_end(REVERSE).results[0].printed == "50.0 Gbits/sec"


def test_what_is_omitted_is_no_rate() -> None:
    assert rates(REVERSE) == pytest.approx([49.5, 50.5])


def test_both_directions_are_one_phase() -> None:
    results = the_end(BOTH).results

    assert the_end(BOTH).phase == "bidirectional"
    assert [(result.operation, result.printed) for result in results[:2]] == [
        ("send", "49.3 Gbits/sec"),
        ("receive", "4.96 Gbits/sec"),
    ]
    assert len({(result.operation, result.unit) for result in results}) == len(results)
    last = [event for event in events(BOTH) if isinstance(event, Rate)][-1]
    assert [result.printed for result in last.results] == ["49.4 Gbits/sec", "4.96 Gbits/sec"]


def test_of_datagrams_the_losses_count() -> None:
    assert the_end(DATAGRAMS).results[0].printed == "9.96 Mbits/sec"
    assert figures(DATAGRAMS)["jitter", "seconds"] == pytest.approx(17e-6)
    assert figures(DATAGRAMS)["lost", "packets"] == 1


def test_older_releases_do_not_say_whose_row_it_is() -> None:
    assert the_end(OLD).results[0].printed == "1.00 Mbits/sec"
    assert len(rates(OLD)) == 2


def test_titles_and_times_in_front_change_nothing() -> None:
    stamped = "".join(f"Sat Nov 21 08:50:58 2026 foo:  {line}" for line in PLAIN.splitlines(keepends=True))

    assert events(stamped) == events(PLAIN)


def test_blanks_may_be_collapsed() -> None:
    for text in (PLAIN, BOTH, DATAGRAMS):
        assert events("\n".join(" ".join(line.split()) for line in text.splitlines())) == events(text)


def test_an_interrupted_client_does_not_know_what_arrived() -> None:
    assert the_end(INTERRUPTED).results[0].printed == "51.1 Gbits/sec"
    assert ("transferred", "bytes") not in figures(INTERRUPTED)
    assert events(INTERRUPTED)[-1] == Failed("the output ends before the result")


@pytest.mark.parametrize(
    "words", ["error - unable to connect to server: Connection refused", "interrupt - the client has terminated"]
)
def test_errors_fail_the_run_in_their_own_words(words: str) -> None:
    assert events(f"iperf3: {words}\n") == [RunBegan(), Failed(words)]
    assert events(INTERRUPTED + f"iperf3: {words}\n")[-1] == Failed(words)


def test_a_document_has_all_results() -> None:
    end = json.loads(DOCUMENT)["end"]

    assert [type(event) for event in events(DOCUMENT)] == [RunBegan, Ended, Completed]
    assert figures(DOCUMENT) == {
        ("send", "bytes_per_second"): end["sum_received"]["bits_per_second"] / 8,
        ("sent", "bytes_per_second"): end["sum_sent"]["bits_per_second"] / 8,
        ("transferred", "bytes"): end["sum_received"]["bytes"],
        ("retransmits", "packets"): end["sum_sent"]["retransmits"],
    }
    assert the_end(DOCUMENT).seconds == pytest.approx(3.007976)


def test_a_document_with_an_error_failed_though_iperf3_exits_with_0() -> None:
    refused = [RunBegan(), Failed("unable to connect to server: Connection refused")]

    assert events(REFUSED) == refused
    assert [event for event in events(stream(REFUSED)) if not isinstance(event, Rate)] == refused


def test_a_document_says_which_direction() -> None:
    assert the_end(changed("start", "test_start", reverse=1)).phase == "receive"
    assert the_end(changed("start", accepted_connection={})).phase == "receive"
    assert the_end(changed("start", "test_start", bidir=1)).phase == "bidirectional"
    both = the_end(changed("end", sum_sent_bidir_reverse={}, sum_received_bidir_reverse={"bits_per_second": 8}))
    assert [(result.operation, result.value) for result in both.results[1:2]] == [("receive", 1)]


def test_documents_of_datagrams_may_have_one_sum_only() -> None:
    whole = json.loads(DOCUMENT)
    whole["end"] = {"sum": {"bits_per_second": 8e6, "jitter_ms": 0.017, "lost_packets": 3, "seconds": 3.0, "bytes": 9}}

    assert figures(json.dumps(whole)) == {
        ("send", "bytes_per_second"): 1e6,
        ("transferred", "bytes"): 9,
        ("jitter", "seconds"): pytest.approx(17e-6),
        ("lost", "packets"): 3,
    }


def test_a_stream_of_documents_tells_each_interval() -> None:
    assert the_end(STREAM) == the_end(DOCUMENT)
    assert rates(STREAM) == pytest.approx(
        [interval["sum"]["bits_per_second"] / 1e9 for interval in json.loads(DOCUMENT)["intervals"]]
    )
    assert events(STREAM)[-1] == Completed()


def test_a_stream_that_ends_in_the_whole_document_counts_once() -> None:
    assert events(STREAM + DOCUMENT) == events(STREAM)


def test_a_stream_without_its_end_failed() -> None:
    assert isinstance(events(STREAM[: STREAM.rindex('{"event"')])[-1], Failed)


def test_a_servers_clients_are_runs() -> None:
    found = [event for event in events(SERVER) if not isinstance(event, Rate)]

    assert [type(event) for event in found] == [RunBegan, Ended, Completed] * 2
    ended = [event for event in found if isinstance(event, Ended)]
    assert [(event.phase, event.results[0].operation) for event in ended] == [("receive", "receive"), ("send", "send")]


def test_a_server_beside_a_client_is_left_out() -> None:
    head, header, rest = PLAIN.partition("[ ID]")

    assert the_end(head + SERVER.partition("[  5]")[0] + header + rest).results == the_end(PLAIN).results


def test_several_runs_may_follow_each_other() -> None:
    texts = [text for text in TEXTS if text is not STREAM]

    assert events("".join(texts)) == [event for text in texts for event in events(text)]


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 6000), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})

    assert events(*(raw[start:end] for start, end in pairwise(places))) == events(text)


ROWS = "".join(TEXTS).encode().split(b"\n")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.lists(st.binary(max_size=40) | st.sampled_from(ROWS), max_size=40))
def test_nothing_raises(lines: list[bytes]) -> None:
    events(b"\n".join(lines))


@given(
    st.sampled_from(
        [
            ("start",),
            ("start", "test_start"),
            ("end",),
            ("end", "sum_sent"),
            ("end", "sum_received"),
        ]
    ),
    st.sampled_from(
        ["test_start", "version", "cookie", "reverse", "sum_sent", "sum_received", "bits_per_second", "seconds"]
    ),
    ANYTHING,
)
def test_no_document_raises(path: tuple[str, ...], key: str, value: object) -> None:
    document = changed(*path, **{key: value})
    events(document)
    events(stream(document))


def iperf(machine: Machine, argv: str) -> Iperf3:
    machine.process(PID, "iperf3", argv=tuple(argv.split()))
    return Iperf3(machine.tree(), PID)


@pytest.mark.parametrize(
    ("argv", "phase", "expected"),
    [
        ("iperf3 -c host", "send", 10),
        ("iperf3 -c host -t 3 -i 1 -J", "send", 3),
        ("iperf3 -chost -t30 -O 2 -uR", "receive", 32),
        ("iperf3 --client host --time=5 --bidir", "bidirectional", 5),
        ("iperf3 -c host --title -R -t 5", "receive", 5),
        ("iperf3 -c host -n 1G", "send", None),
        ("iperf3 -c host -t 0", "send", None),
        ("iperf3 -c host -t", "send", None),
    ],
)
def test_the_command_line_tells_the_direction_and_how_long(
    machine: Machine, argv: str, phase: str, expected: float | None
) -> None:
    sight = iperf(machine, argv).look(machine.tree(), PID, 0.0)

    assert (sight.state, sight.phase, sight.expected) == (State.RUNNING, phase, expected)


@pytest.mark.parametrize(("argv", "leads"), [("iperf3 -c host", True), ("iperf3 -s", False), ("iperf3 -Ds", False)])
def test_a_server_leads_no_run(machine: Machine, argv: str, leads: bool) -> None:
    iperf(machine, argv)

    assert Iperf3.leads(machine.tree(), PID) is leads


def test_the_result_of_the_other_direction_is_anothers(machine: Machine) -> None:
    bench = iperf(machine, "iperf3 -c host -R")

    assert bench.claim(the_end(PLAIN)) is None
    assert bench.claim(the_end(REVERSE)) == the_end(REVERSE)
