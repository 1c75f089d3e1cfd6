from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.talk import (
    MAX_SAID_BYTES,
    Answer,
    Ask,
    Done,
    Found,
    Said,
    Task,
    answers,
    ask_in,
    message,
)
from pinchpoint.host.procfs import FormatError
from pinchpoint.runs import PhaseMark, Result, RunState

RUN = RunState("", "fio", 1.0, phases=[PhaseMark("write", 1.0, results=[Result("write", "bytes_per_second", 2e9)])])
SAID: list[Answer] = [Said("a line"), Found(7, 99, "fio", 1.0, None, RUN), Done(1)]
TASKS = (Task(7, "fio", "S", 1, 99, own=True, syncs=True), Task(1, "\ufffd", "S", 0, 0, own=False))


def frame(raw: bytes) -> bytearray:
    return bytearray(struct.pack("=I", len(raw)) + raw)


@given(st.lists(st.integers(1, 40), max_size=30))
def test_what_a_helper_says_is_understood_in_whatever_pieces_it_arrives(sizes: list[int]) -> None:
    raw = b"".join(map(message, SAID))
    buffer, heard = bytearray(), []
    for size in [*sizes, len(raw)]:
        buffer += raw[:size]
        raw = raw[size:]
        heard += list(answers(buffer))

    assert heard == SAID
    assert not buffer


def test_a_question_is_understood_once_it_is_complete() -> None:
    ask = Ask(3, 1.5, 2.5, TASKS, (8,))
    raw = message(ask)
    buffer = bytearray(raw[:-1])

    assert ask_in(buffer) is None
    buffer += raw[-1:]
    assert ask_in(buffer) == ask


def changed(**fields: object) -> dict[str, object]:
    run = {"run": "", "benchmark": "fio", "start": 1.0}
    return {"type": "found", "pid": 7, "start": 99, "kind": "fio", "began": 1.0, "ended": None, "run": run, **fields}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage",
        b"[" * 100_000,
        b'{"type":"other"}',
        b'{"type":"done"}',
        b'{"type":"done","number":1e400}',
        json.dumps(changed(pid=-1)).encode(),
        json.dumps(changed(began=10**400)).encode(),
        json.dumps(changed(began=float("nan"))).encode(),
        json.dumps(changed(ended=float("inf"))).encode(),
        json.dumps(changed(kind=3)).encode(),
        json.dumps(changed(run={"run": "", "benchmark": "fio", "start": 1.0, "total": 10**400})).encode(),
    ],
)
def test_what_no_helper_says_is_refused(raw: bytes) -> None:
    assert list(answers(frame(json.dumps(changed()).encode())))
    with pytest.raises(FormatError):
        list(answers(frame(raw)))


def test_the_announcement_of_a_long_message_is_refused_before_it_arrives() -> None:
    with pytest.raises(FormatError):
        list(answers(bytearray(struct.pack("=I", MAX_SAID_BYTES + 1))))


@given(st.binary())
def test_any_bytes_are_refused_or_understood(raw: bytes) -> None:
    for buffer in (bytearray(raw), frame(raw)):
        try:
            list(answers(buffer))
        except FormatError:
            pass
