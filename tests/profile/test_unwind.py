from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.profile.binaries import Image
from pinchpoint.profile.cfi import Budget, CfiError, Row, Rule
from pinchpoint.profile.perf_events import parse_records
from pinchpoint.profile.unwind import RIP, RSP, unwind
from profile_samples import RECORDS, toy_image

CALL = Row(Rule("register", 8), RSP, ((RIP, Rule("offset", -8)),), RIP, signal=False)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return toy_image(Machine(tmp_path / "host"))


def names(image: Image, frames: tuple[int, ...]) -> list[str | None]:
    found = []
    for frame in frames:
        place = image.place(frame)
        assert place is not None
        assert place.binary is not None
        found.append(place.binary.symbols.name(place.address))
    return found


def test_a_recorded_stack_reaches_the_start_of_the_program(image: Image) -> None:
    for sample in parse_records(RECORDS).samples:
        found = unwind(sample.registers, sample.stack, image.row, image.is_code)

        assert names(image, found.frames)[:4] == ["leaf", "middle", "main_loop", "_start"]


def test_a_short_copy_gives_the_inner_frames(image: Image) -> None:
    sample = parse_records(RECORDS).samples[0]

    found = unwind(sample.registers, sample.stack[:64], image.row, image.is_code)

    assert found.end == "cut"
    assert names(image, found.frames) == ["leaf", "middle"]


def registers(address: int = 0x1000, stack: int = 0x7000) -> list[int]:
    values = [0] * 17
    values[RSP], values[RIP] = stack, address
    return values


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def test_a_stack_that_goes_on_for_ever_is_cut_off() -> None:
    found = unwind(registers(), words(*[0x1001] * 500), lambda address, budget: CALL, lambda address: True)

    assert found.end == "deep"
    assert len(found.frames) == 96


def test_a_frame_that_is_its_own_caller_ends_the_walk() -> None:
    same = CALL._replace(cfa=Rule("register", 0))

    found = unwind(registers(), words(*[0x1001] * 8), lambda address, budget: same, lambda address: True)

    assert (found.end, found.frames) == ("cut", (0x1000,))


def test_a_return_address_that_is_no_code_ends_the_walk() -> None:
    found = unwind(registers(), words(0x9999), lambda address, budget: CALL, lambda address: address == 0x1000)

    assert (found.end, found.frames) == ("damaged", (0x1000,))


def test_a_damaged_table_ends_the_walk() -> None:
    def broken(address: int, budget: Budget) -> Row:
        raise CfiError("x")

    assert unwind(registers(), b"", broken, lambda address: True).end == "damaged"


def test_code_made_at_run_time_is_left_by_its_frame_pointer() -> None:
    values = registers()
    values[6] = 0x7010

    def row_of(address: int, budget: Budget) -> Row | None:
        return None if address == 0x1000 else CALL

    found = unwind(values, words(1, 2, 0x7020, 0x2001, 0), row_of, lambda address: address in (0x1000, 0x2001))

    assert (found.end, found.frames) == ("start", (0x1000, 0x2000))


def test_what_a_signal_interrupted_is_not_a_call() -> None:
    saved = Row(
        Rule("value_expression", code=b"\x77\x10\x06"), 0, ((RIP, Rule("expression", code=b"\x77\x08")),), RIP, True
    )
    rows = {0x1000: saved, 0x2000: CALL}

    found = unwind(registers(), words(0, 0x2000, 0x7018, 0), lambda address, _: rows[address], lambda address: True)

    assert (found.end, found.frames) == ("start", (0x1000, 0x2000))


@given(st.binary(max_size=40), st.binary(max_size=64))
def test_no_expression_breaks_it(code: bytes, stack: bytes) -> None:
    row = Row(Rule("value_expression", code=code), 0, ((RIP, Rule("expression", code=code)),), RIP, signal=False)

    unwind(registers(), stack, lambda address, budget: row, lambda address: True)
