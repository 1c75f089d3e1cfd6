"""Requirements for every reader of the registry, on any output: its own and others'."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.captures import CAPTURES, EXPECTED
from pinchpoint.benchmarks import output
from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.events import Ended, Event, Scored
from pinchpoint.benchmarks.registry import BENCHMARKS

OUTPUTS = {path.parent.name: path.read_bytes() for path in sorted(CAPTURES.glob("*/stdout.txt"))}
SILENT = {
    # Outputs without a result: the run failed before one, or prints it elsewhere.
    name: data
    for name, data in OUTPUTS.items()
    if not data or name.rpartition("-")[2] in ("fail", "sigint", "baddir", "segv", "json") or "fail" in name
}
LENGTH = 1 << 17
"""Bytes of a long output."""
KINDS = pytest.mark.parametrize("kind", BENCHMARKS, ids=[kind.name for kind in BENCHMARKS])


def events(kind: type[Benchmark], pieces: Sequence[bytes]) -> list[Event]:
    reader = kind.reader()
    return [*(event for piece in pieces for event in reader.feed(piece)), *reader.close()]


def own(kind: type[Benchmark]) -> list[str]:
    return [name for name in OUTPUTS if EXPECTED[name].benchmark == kind.name]


def results(found: Sequence[Event]) -> list[Event]:
    return [event for event in found if isinstance(event, Scored) or (isinstance(event, Ended) and event.ran)]


@cache
def whole(kind: type[Benchmark], name: str) -> list[Event]:
    return events(kind, [OUTPUTS[name]])


@KINDS
def test_another_benchmarks_output_tells_no_results(kind: type[Benchmark]) -> None:
    for name in OUTPUTS:
        if name not in own(kind):
            assert results(whole(kind, name)) == [], name


@KINDS
def test_its_own_output_tells_results(kind: type[Benchmark]) -> None:
    for name in own(kind):
        if name not in SILENT:
            assert results(whole(kind, name)), name


@KINDS
def test_figures_are_numbers_of_base_units(kind: type[Benchmark]) -> None:
    units = {"bytes_per_second", "operations_per_second", "seconds", "bytes", "operations", "packets", "ratio"}
    for name in OUTPUTS:
        for event in whole(kind, name):
            if isinstance(event, Ended):
                told = event.results
                assert all(result.unit in units and 0 <= result.value < 2**63 for result in told), name
                assert len({(result.operation, result.unit) for result in told}) == len(told), name


@KINDS
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_pieces_of_any_size_tell_the_same(kind: type[Benchmark], size: int) -> None:
    for name, data in OUTPUTS.items():
        if len(data) / size < 20_000:
            found = events(kind, [data[at : at + size] for at in range(0, len(data), size)])
            assert found == whole(kind, name), name


@KINDS
def test_however_the_bytes_are_cut_the_events_are_the_same(kind: type[Benchmark]) -> None:
    @given(st.sampled_from(own(kind) or sorted(OUTPUTS)), st.lists(st.floats(0, 1), max_size=20))
    def check(name: str, cuts: list[float]) -> None:
        data = OUTPUTS[name]
        places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
        assert events(kind, [data[start:end] for start, end in pairwise(places)]) == whole(kind, name)

    check()


@KINDS
def test_nothing_raises(kind: type[Benchmark]) -> None:
    rows = sorted({row for name in own(kind) for row in OUTPUTS[name].splitlines(keepends=True)}) or [b"\n"]
    strange = st.binary(max_size=20) | st.sampled_from(
        [b"{", b"}", b'"', b"[", b"1e999", b"9" * 400, b"\xff", b"-", b"\r"]
    )

    @given(st.lists(st.one_of(st.sampled_from(rows), strange), max_size=60))
    def lines(pieces: list[bytes]) -> None:
        events(kind, pieces)

    @given(st.sampled_from(own(kind) or sorted(OUTPUTS)), st.lists(st.tuples(st.floats(0, 1), strange), max_size=6))
    def holes(name: str, changes: list[tuple[float, bytes]]) -> None:
        data = bytearray(OUTPUTS[name][:20_000])
        for place, piece in changes:
            at = int(place * len(data))
            data[at : at + len(piece)] = piece
        events(kind, [bytes(data)])

    lines()
    holes()


def long_output(kind: type[Benchmark], what: str) -> bytes:
    """Return a piece of an output that continues like this for ever."""
    texts = [OUTPUTS[name] for name in own(kind)] or [b"1+0 records in\n"]
    plain = [text for text in texts if b"{" not in text]
    piece = {
        "endless line": b"x1 ",
        "own lines": b"".join(texts),
        "beginnings": b"".join(text[: len(text) // 2] + b"\n" for text in plain) or b"x" * 60 + b"\n",
    }[what]
    return piece * (1 + (1 << 16) // len(piece))


@KINDS
@pytest.mark.parametrize("what", ["endless line", "own lines", "beginnings"])
def test_a_reader_does_not_grow_with_its_output(kind: type[Benchmark], what: str) -> None:
    reader, piece = kind.reader(), long_output(kind, what)
    tracemalloc.start()
    try:
        kept = []
        for _ in range(2):
            for _ in range(1 + LENGTH // len(piece)):
                reader.feed(piece)
            kept.append(tracemalloc.get_traced_memory()[0])
        assert kept[1] - kept[0] < LENGTH // 2
    finally:
        tracemalloc.stop()


@KINDS
def test_a_document_that_never_ends_is_bounded(kind: type[Benchmark], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_DOCUMENT_CHARACTERS", 1 << 16)
    reader, piece = kind.reader(), b"{ x\n" * (1 << 10)
    tracemalloc.start()
    try:
        for _ in range(8):  # 0.44 MiB of strings
            reader.feed(piece)
        assert tracemalloc.get_traced_memory()[0] < 1 << 18
    finally:
        tracemalloc.stop()
