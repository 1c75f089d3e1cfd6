from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from pinchpoint.benchmarks.workloads import Workload
from pinchpoint.cli import main
from pinchpoint.commands.chain import MAX_LISTED_NODES, listing
from pinchpoint.probes.path import Path
from pinchpoint.waits.chain import SELF, Chain, Kind, Node

RUN = Workload("mdtest", "20261125T120000Z-storm")
FUSE, MDS = Node("ceph-fuse", "client_lock"), Node("mds.a", "mds_lock")
WATCH = [sys.executable, "-m", "pinchpoint", "watch", "--chain"]


def chain(*parts: tuple[Node, Kind, float], passed: tuple[tuple[Node, Node, float], ...] = ()) -> Chain:
    found = Chain(seconds=sum(seconds for _, _, seconds in parts), waits=1234)
    found.parts.update({(node, kind): seconds for node, kind, seconds in parts})
    found.passed.update({(before, after): seconds for before, after, seconds in passed})
    return found


def test_a_listing_has_shares_what_they_are_made_of_and_the_heaviest_chain() -> None:
    found = chain(
        (SELF, Kind.CPU, 0.1),
        (FUSE, Kind.CPU, 0.3),
        (FUSE, Kind.RUNQUEUE, 0.2),
        (MDS, Kind.DISK, 0.4),
        passed=((FUSE, SELF, 0.5), (MDS, FUSE, 0.1)),
    )

    assert "\n".join(listing({RUN: found})) == (
        "20261125T120000Z-storm: where its threads' time goes (1,234 waits)\n"
        " 50.0%  ceph-fuse client_lock            on a CPU 30.0%, without a CPU 20.0%\n"
        " 40.0%  mds.a mds_lock                   disk 40.0%\n"
        " 10.0%  itself                           on a CPU 10.0%\n"
        "  20261125T120000Z-storm <- ceph-fuse client_lock <- mds.a mds_lock"
    )


def test_a_listing_says_how_many_threads_were_asleep() -> None:
    found = chain((SELF, Kind.CPU, 1.0))
    found.asleep = 1200

    first, *_ = listing({RUN: found})
    assert first.endswith("(1,234 waits; 1,200 threads that were asleep are left out)")


def test_a_listing_is_bounded_and_leaves_out_what_is_nothing() -> None:
    many = [(Node(f"owner{number}", "x"), Kind.CPU, 1.0) for number in range(3 * MAX_LISTED_NODES)]
    lines = [*listing({RUN: chain(*many)}), *listing({RUN: chain((SELF, Kind.CPU, 1.0), (MDS, Kind.CPU, 0.001))})]

    assert len(lines) == 1 + MAX_LISTED_NODES + 1 + 1


@pytest.mark.parametrize("found", [{}, {RUN: Chain()}])
def test_without_a_benchmark_that_is_what_is_said(found: dict[Workload, Chain]) -> None:
    assert [*listing(found)] == ["No benchmark works on this host, or all its threads are asleep."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chain", "--target", "x:1"], "--chain reads this host's own processes: run it there"),
        (["--chain", "--stacks"], "two listings: leave out one"),
        (["--chain", "--judge", "x:1"], "leave out --target, --prometheus, --stacks and --chain"),
    ],
)
def test_what_it_cannot_show_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["watch", *arguments])

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_where_it_does_not_work_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, now: float) -> bool:
        self.reason = "no libbpf.so.1"
        return False

    monkeypatch.setattr(Path, "begin", fail)
    result = CliRunner().invoke(main, ["watch", "--chain", "--once"])

    assert (result.exit_code, result.stderr) == (1, "pinchpoint: no chains here: no libbpf.so.1\n")


def test_a_listing_of_this_host_works_once() -> None:
    done = subprocess.run([*WATCH, "--once"], capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr
    assert done.stdout or done.stderr.startswith("pinchpoint: no chains here: ")
