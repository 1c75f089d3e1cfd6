from __future__ import annotations

from pathlib import Path

import pytest

from machine import Machine
from pinchpoint.benchmarks.tail import MAX_LAST_BYTES, MAX_LAST_LINES, MAX_PIECE_BYTES, Tail
from pinchpoint.benchmarks.tree import Tree


@pytest.fixture
def file(machine: Machine) -> Path:
    machine.process(10, "toy")
    machine.lives_in(10, machine.procfs.parent / "root", "/home")
    return machine.write("root/home/out", "one\n")


def tail(machine: Machine, **more: bool) -> Tail:
    return Tail(Tree(machine.procfs, {}), 10, "out", **more)


def test_each_byte_is_read_once(machine: Machine, file: Path) -> None:
    found = tail(machine)

    assert found.read() == b"one\n"
    assert found.read() == b""
    file.open("a").write("two\n")
    assert found.close() == b"two\n"


def test_from_the_end_only_what_is_new_counts(machine: Machine, file: Path) -> None:
    found = tail(machine, from_end=True)
    file.open("a").write("two\n")

    assert found.close() == b"two\n"


def test_the_end_is_read_when_the_file_and_its_writer_have_gone(machine: Machine, file: Path) -> None:
    found = tail(machine)
    file.open("a").write("two\n")
    file.unlink()
    machine.end(10)

    assert found.close() == b"one\ntwo\n"


def test_a_file_that_was_emptied_is_read_anew(machine: Machine, file: Path) -> None:
    found = tail(machine)
    found.read()
    file.write_text("2\n")

    assert found.close() == b"2\n"


def test_of_a_huge_file_only_its_last_piece_is_read(machine: Machine, file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(10 << 30)
        sparse.seek(0, 2)
        sparse.write(b"end")
    found = tail(machine)
    piece = found.read()

    assert len(piece) == MAX_PIECE_BYTES + 1
    assert piece.startswith(b"\n")
    assert piece.endswith(b"end")
    assert found.close() == b""


def test_of_much_that_is_left_at_the_end_the_last_is_read(machine: Machine, file: Path) -> None:
    found = tail(machine)
    found.read()
    with file.open("ab") as sparse:
        sparse.truncate(10 << 30)
        sparse.seek(0, 2)
        sparse.write(b"end")
    rest = found.close()

    assert len(rest) == MAX_LAST_BYTES + 1
    assert rest.startswith(b"\n")
    assert rest.endswith(b"end")


def test_of_many_lines_that_are_left_at_the_end_the_last_are_read(machine: Machine, file: Path) -> None:
    file.write_text("y\n" * (2 * MAX_LAST_LINES) + "end")

    assert tail(machine).close() == b"\n" + b"y\n" * (MAX_LAST_LINES - 1) + b"end"
