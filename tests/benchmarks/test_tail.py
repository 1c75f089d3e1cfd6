from __future__ import annotations

from pathlib import Path

import pytest

from machine import Machine
from pinchpoint.benchmarks.tail import BACKLOG, PIECE, Tail
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

    assert len(piece) == PIECE
    assert piece.endswith(b"end")
    assert len(found.close()) <= BACKLOG
