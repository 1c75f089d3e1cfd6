from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import patience
from pinchpoint.benchmarks.nursery import Nursery, start_nursery
from pinchpoint.benchmarks.progress import Progress, read_progress
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.confine import User, can_confine
from polling import until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not can_confine(), reason="needs root, to become other users, and a kernel with seccomp"
)
NOBODY = User(65534, 65534, (100,))
ALL = ("CapEff", "CapPrm", "CapInh", "CapAmb")
SYS_PTRACE = 1 << 19
START_HELPERS = 1 << 5 | 1 << 6 | 1 << 7 | SYS_PTRACE


def reports(connection: socket.socket, progress: Progress) -> None:
    """Say what a helper is, then wait for the end."""
    with open("/proc/self/status", "rb", buffering=0) as file:
        status = dict(re.findall(r"^(\w+):\s*(.*?)\s*$", file.read().decode(), re.MULTILINE))
    progress.read(7)
    files = sorted(map(int, os.listdir("/proc/self/fd")))
    connection.sendall(json.dumps({**status, "files": files}).encode() + b"\n")
    connection.recv(1)


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = start_nursery(reports)
    yield nursery
    nursery.close()


def report(connection: socket.socket) -> dict[str, str]:
    connection.settimeout(patience(20))
    return dict(json.loads(connection.makefile("rb").readline()))


def alive(nursery: Nursery) -> int:
    """Return how many helpers there are."""
    return len(Tree.below(Path("/proc"), nursery.pid).processes) - 1


def test_a_helper_has_the_rights_of_its_user_and_no_others(nursery: Nursery) -> None:
    _, connection, progress = nursery.start(NOBODY)
    with connection:
        found = report(connection)
        assert read_progress(progress) == 7

    assert (found["Uid"].split(), found["Gid"].split()) == (["65534"] * 4, ["65534"] * 4)
    assert found["Groups"].split() == ["100"]
    assert [int(found[name], 16) for name in ALL] == [0] * 4
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    # What lists the descriptors is one of them.
    assert len(found["files"]) == 3 + 1 + 1


def test_a_helper_of_root_may_see_processes_that_have_capabilities(nursery: Nursery) -> None:
    _, connection, _ = nursery.start(User(0, 0))
    with connection:
        found = report(connection)

    assert [int(found[name], 16) for name in ALL] == [SYS_PTRACE, SYS_PTRACE, 0, 0]
    assert found["Seccomp"] == "2"


def test_the_nursery_keeps_what_starting_helpers_takes(nursery: Nursery) -> None:
    def rights() -> list[int]:
        status = Path(f"/proc/{nursery.pid}/status").read_text()
        return [int(mask, 16) for mask in re.findall(r"^Cap(?:Eff|Prm|Bnd):\s*(\w+)$", status, re.MULTILINE)]

    assert until(20, lambda: rights() == [START_HELPERS] * 3), rights()


def test_a_helper_ends_when_its_connection_is_closed_or_it_is_killed(nursery: Nursery) -> None:
    _, first, _ = nursery.start(NOBODY)
    number, second, _ = nursery.start(User(65533, 65533))
    with first, second:
        report(first)
        report(second)
        assert alive(nursery) == 2

        nursery.kill(number)
        assert second.recv(1) == b""
        assert until(20, lambda: alive(nursery) == 1)

        first.close()
        assert until(20, lambda: alive(nursery) == 0)


def test_a_number_that_is_over_kills_nobody(nursery: Nursery) -> None:
    number, first, _ = nursery.start(NOBODY)
    with first:
        report(first)
    assert until(20, lambda: alive(nursery) == 0)
    _, second, _ = nursery.start(NOBODY)
    with second:
        report(second)
        nursery.kill(number)
        nursery.kill(number + 100)
        _, third, _ = nursery.start(NOBODY)
        with third:
            report(third)

            assert alive(nursery) == 2


def test_all_end_when_the_nursery_is_closed() -> None:
    nursery = start_nursery(reports)
    _, connection, _ = nursery.start(NOBODY)
    with connection:
        report(connection)
        nursery.close()

        assert connection.recv(1) == b""
    assert not Path(f"/proc/{nursery.pid}").exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        nursery.start(NOBODY)
