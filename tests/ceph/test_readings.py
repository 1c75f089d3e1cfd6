from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.ceph.perf import PerfDump
from pinchpoint.ceph.readings import MAX_VALUE_CHARACTERS, Messages, Options, asked, option_points
from pinchpoint.host.procfs import FormatError
from pinchpoint.model import Snapshot


def taken(value: str) -> Options:
    options = Options(asked(("size", "other")))
    options.take({"config get size": b'{"size":"%s"}' % value.encode()})
    return options


def test_an_option_holds_until_it_is_answered_again() -> None:
    options = taken("5")
    options.take({})

    assert options.limit("size") == 5
    options.take({"config get size": b'{"size":"7"}'})
    assert options.limit("size") == 7


def test_an_option_that_the_release_lacks_is_missing() -> None:
    options = taken("5")
    options.take({"config get other": b'{"error":"unknown"}'})

    assert options.limit("other") is None
    assert list(options.items()) == [("size", "5")]


def test_empty_options_are_shown_and_long_ones_cut() -> None:
    assert list(taken("").items()) == [("size", "")]
    assert list(taken("x" * 1000).items()) == [("size", "x" * MAX_VALUE_CHARACTERS)]


def test_daemons_that_agree_are_one_series_and_one_that_does_not_shows() -> None:
    points = option_points("osd", [taken("5"), taken("5"), taken("8")])

    assert [(labels, number) for _, labels, number in points] == [(("osd", "size", "5"), 2), (("osd", "size", "8"), 1)]


@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf", "1e300", "", "4K"])
def test_what_is_no_number_above_zero_limits_nothing(value: str) -> None:
    assert taken(value).limit("size") is None


def test_workers_without_the_counter_count_for_nothing() -> None:
    messages = Messages()
    messages.take(
        PerfDump.parse(
            b'{"AsyncMessenger::Worker-0":{"msgr_recv_messages":2},"AsyncMessenger::Worker-1":{},'
            b'"AsyncMessenger::Worker-2":{"msgr_recv_messages":3}}'
        )
    )
    found = Snapshot.of(0, messages.points("osd.0"))

    assert found.values == {"pinchpoint_ceph_messages_total": {(("daemon", "osd.0"), ("direction", "received")): 5}}


@given(st.binary(max_size=50))
def test_any_answer_is_an_option_or_a_format_error(raw: bytes) -> None:
    options = Options(asked(("size",)))
    try:
        options.take({"config get size": raw})
    except FormatError:
        assert list(options.items()) == []
