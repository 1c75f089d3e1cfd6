from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinchpoint.benchmarks import output
from pinchpoint.benchmarks.events import Began, Event, Failed
from pinchpoint.benchmarks.output import (
    MAX_DOCUMENT_CHARACTERS,
    MAX_LINE_BYTES,
    Documents,
    Lines,
    OutputReader,
    number,
    text,
)


def pieces(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    yield from (data[start:end] for start, end in pairwise(places))


def lines(data: bytes, cuts: Iterable[int] = ()) -> list[str]:
    reader = Lines()
    return [line for piece in pieces(data, cuts) for line in reader.feed(piece)] + list(reader.close())


def documents(given: str) -> list[object]:
    reader = Documents()
    return [document for line in given.split("\n") for document in reader.feed(line)]


class Shouter(OutputReader):
    """Reads each line as a phase."""

    def line(self, line: str) -> Iterable[Event]:
        yield Began(line)

    def end(self) -> Iterable[Event]:
        yield Failed("over")


def test_newlines_and_carriage_returns_end_lines() -> None:
    assert lines(b"a\nb\rc\r\nd") == ["a", "b", "c", "", "d"]


def test_a_last_line_without_end_comes_at_the_end() -> None:
    reader = Lines()

    assert list(reader.feed(b"one\ntw")) == ["one"]
    assert reader.rest == "tw"
    assert list(reader.feed(b"o")) == []
    assert list(reader.close()) == ["two"]
    assert list(reader.close()) == []


def test_what_is_not_text_is_replaced_and_a_no_break_space_is_a_space() -> None:
    assert lines(b"a\xff\xc2\xa0b\n") == ["a\ufffd b"]


def test_a_long_line_is_cut_off_and_the_next_one_is_whole() -> None:
    assert [len(line) for line in lines(b"x" * (MAX_LINE_BYTES + 5) + b"\nabc\n")] == [MAX_LINE_BYTES, 3]


@given(data=st.text("a\n\r\xa0é€\U0001f600").map(str.encode) | st.binary(), cuts=st.lists(st.integers(0, 1000)))
def test_it_does_not_matter_how_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    assert lines(data, cuts) == lines(data)
    assert "\n".join(lines(data)) == text(data).replace("\r", "\n").removesuffix("\n")


@given(data=st.binary(), cuts=st.lists(st.integers(0, 1000)))
def test_a_reader_tells_the_same_however_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    reader = Shouter()

    told = [event for piece in pieces(data, cuts) for event in reader.feed(piece)] + reader.close()

    assert told == [*map(Began, lines(data)), Failed("over")]


def test_documents_stand_among_other_lines() -> None:
    given = 'fio-3.33\n{\n "a": {"b": 1}\n}\nmore\n{"c": "}"}\n'

    assert documents(given) == [{"a": {"b": 1}}, {"c": "}"}]


def test_a_brace_inside_of_a_line_begins_nothing() -> None:
    assert documents(' {"a": 1}\nx {"b": 2}\n') == []


def test_a_broken_document_is_left_out_and_the_next_one_read() -> None:
    assert documents('{"a": nothing}\n{"b": 2}\n') == [{"b": 2}]


def test_a_document_nested_without_end_is_left_out() -> None:
    assert documents('{"a":' * 9000 + "}" * 9000) == []


def test_a_document_that_never_ends_is_dropped() -> None:
    reader = Documents()
    row = '"x": ' + '"y' * 500
    for line in ["{", *[row] * (MAX_DOCUMENT_CHARACTERS // len(row) + 1)]:
        assert list(reader.feed(line)) == []

    assert not reader.inside
    assert list(reader.feed('{"a": 1}')) == [{"a": 1}]


@pytest.mark.parametrize("line", ["{", "{{"])
def test_what_is_kept_of_a_document_is_bounded_however_short_its_lines_are(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = MAX_DOCUMENT_CHARACTERS >> 4
    monkeypatch.setattr(output, "MAX_DOCUMENT_CHARACTERS", limit)
    reader = Documents()
    tracemalloc.start()
    try:
        for _ in range(2 * limit // 60):
            list(reader.feed("".join([*line])))
        assert tracemalloc.get_traced_memory()[1] < 3 * limit
    finally:
        tracemalloc.stop()


@settings(max_examples=30)
@given(
    document=st.dictionaries(
        st.text(), st.recursive(st.integers() | st.text() | st.none(), lambda inner: st.lists(inner)), min_size=1
    )
)
def test_every_document_is_read(document: dict[str, object]) -> None:
    assert documents(json.dumps(document)) == [document]
    assert documents(json.dumps(document, indent=1)) == [document]


@given(st.text('{}"\\\na:1,'))
def test_any_text_is_read_without_error(given: str) -> None:
    for document in documents(given):
        assert isinstance(document, dict)


def test_each_character_of_a_line_is_looked_at_once() -> None:
    """A line of escaped quotes would take minutes if each of them could begin a string."""
    assert documents('{"' + '\\"' * (MAX_LINE_BYTES // 2)) == []


@pytest.mark.parametrize(("value", "figure"), [(1, 1.0), (2.5, 2.5), ("1.25e3", 1250.0), (-3, -3.0)])
def test_a_number_may_stand_in_a_string(value: object, figure: float) -> None:
    assert number(value) == figure


@pytest.mark.parametrize(
    "value", [None, True, [], {}, "", "x", "nan", "inf", float("nan"), float("inf"), 10**400, "9" * 30]
)
def test_what_is_no_usable_number_is_none(value: object) -> None:
    assert number(value) is None
