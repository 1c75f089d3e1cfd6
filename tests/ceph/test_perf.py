from __future__ import annotations

import gc
import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinchpoint.ceph.perf import Average, PerfDump, parse_option, parse_version
from pinchpoint.host.procfs import FormatError

DUMP = PerfDump.parse(
    b'{"mds":{"caps":15004,"reply_latency":{"avgcount":2,"sum":0.5,"avgtime":0.25}},'
    b'"AsyncMessenger::Worker-0":{},"AsyncMessenger::Worker-1":{},"odd":7}'
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "avgcount", "sum", "version"]), inner)
    ),
)


def test_a_counter_is_found_under_the_first_name_that_this_release_has() -> None:
    assert DUMP.value("mds", "caps") == 15004
    assert DUMP.value("mds", "newer_name", "caps") == 15004
    assert DUMP.average("mds", "reply_latency") == Average(2, 0.5)


def test_what_a_release_does_not_have_is_none_and_never_zero() -> None:
    assert DUMP.value("mds", "none") is None
    assert DUMP.value("none", "caps") is None
    assert DUMP.value("odd", "caps") is None
    assert DUMP.average("mds", "caps") is None
    assert DUMP.value("mds", "reply_latency") is None


def test_what_nobody_asks_for_is_not_made_into_objects() -> None:
    raw = b'{"mds":{"caps":1,"other":[' + b"[]," * 100_000 + b"[]]}}"
    before = len(gc.get_objects())
    dump = PerfDump.parse(raw)
    assert (dump.value("mds", "caps"), dump.value("mds", "other"), dump.value("mds", "none")) == (1, None, None)
    assert len(gc.get_objects()) - before < 10_000


def test_loggers_are_listed_by_the_beginning_of_their_name() -> None:
    assert DUMP.loggers("AsyncMessenger::Worker-") == ["AsyncMessenger::Worker-0", "AsyncMessenger::Worker-1"]


def test_an_option_is_the_text_of_its_value() -> None:
    assert parse_option(b'{"mds_cache_memory_limit":"8388608"}') == "8388608"
    assert parse_option(b'{"error":"(2) No such file or directory"}') is None
    assert parse_option(b"{}") is None


def test_a_version_is_a_number_or_nothing() -> None:
    assert parse_version(b'{"version":"16.2.15","release":"pacific","release_type":"stable"}') == "16.2.15"
    assert parse_version(b'{"version":3}') == ""


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b'{"a":', b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_a_format_error(raw: bytes) -> None:
    for parse in (PerfDump.parse, parse_option, parse_version):
        with pytest.raises(FormatError):
            parse(raw)


@example({"a": {"a": 10**400, "sum": {"avgcount": 1e308, "sum": math.inf}}})
@given(JSON | st.dictionaries(st.just("a"), JSON))
def test_any_json_has_counters_or_none(document: object) -> None:
    raw = json.dumps(document).encode()
    try:
        dump = PerfDump.parse(raw)
    except FormatError:
        return
    value = dump.value("a", "a", "sum")
    assert value is None or math.isfinite(float(value))
    assert isinstance(dump.average("a", "a", "avgcount"), Average | None)
    assert isinstance(parse_option(raw), str | None)
    assert isinstance(parse_version(raw), str)
