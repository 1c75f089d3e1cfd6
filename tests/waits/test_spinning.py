from __future__ import annotations

from pathlib import Path

import pytest

from machine import Machine, stat_line
from pinchpoint.waits.spinning import Spin
from pinchpoint.waits.stack_rules import RUNNING, YIELDS

BLOCK = 0.5


class Rank:
    """A rank that a test controls, one block at a time."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.machine.process(10, "ior")
        self.directory = str(machine.procfs / "10")
        self.spin = Spin()
        self.user = self.system = self.characters = 0

    def block(
        self,
        *,
        user: int = 0,
        system: int = 0,
        moved: int = 0,
        busy: float = BLOCK,
        stacks: tuple[str | None, ...] = (),
    ) -> bool:
        """Pass a block in which it used these clock ticks; return whether it spun."""
        self.user += user
        self.system += system
        self.characters += moved
        self.machine.write("proc/10/stat", stat_line(10, "ior", utime=self.user, stime=self.system))
        counters = f"rchar: {self.characters}\nwchar: 7\nsyscr: 1\nsyscw: 1\n"
        self.machine.write("proc/10/io", f"{counters}read_bytes: {self.user}\n")
        self.spin.ran(busy)
        for wait in stacks:
            self.spin.saw(wait, empty=False)
        return self.spin.judge(self.directory, BLOCK)


@pytest.fixture
def rank(machine: Machine) -> Rank:
    found = Rank(machine)
    found.block()
    return found


def test_a_rank_that_polls_in_user_space_spins(rank: Rank) -> None:
    blocks = [rank.block(user=50) for _ in range(3)]

    assert blocks == [False, True, True], "one block alone may be a computation"


def test_a_rank_that_offers_its_cpu_to_others_spins(rank: Rank) -> None:
    stacks = (YIELDS, YIELDS, YIELDS, RUNNING)

    assert [rank.block(user=15, system=35, stacks=stacks) for _ in range(2)] == [False, True]


def test_a_loop_of_metadata_calls_does_not_spin_though_no_counter_of_io_shows_it(rank: Rank) -> None:
    # As seen: open, stat and unlink on tmpfs; 8 % user time.
    stacks = (RUNNING, None, RUNNING)

    assert not any(rank.block(user=4, system=46, stacks=stacks) for _ in range(5))


def test_a_rank_that_reads_in_between_does_not_spin(rank: Rank) -> None:
    assert not any(rank.block(user=50, moved=4096) for _ in range(5))


def test_a_rank_that_yields_and_also_waits_for_a_disk_does_not_spin(rank: Rank) -> None:
    assert not any(rank.block(user=10, system=40, stacks=(YIELDS, YIELDS, "disk")) for _ in range(5))


def test_a_rank_that_does_not_use_all_of_its_time_does_not_spin(rank: Rank) -> None:
    assert not any(rank.block(user=25, busy=0.25) for _ in range(5))


def test_a_rank_whose_counters_may_not_be_read_is_not_called_spinning(machine: Machine, tmp_path: Path) -> None:
    spin = Spin()
    for _ in range(3):
        spin.ran(BLOCK)
        assert not spin.judge(str(tmp_path / "nothing"), BLOCK)
